// A source of a model's values after a switch, computed from a source of the
// values before it: as Delink between two stores, but value by value as they
// are read. Only the values that are read are in memory.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "framework/module/state_codec.h"
#include "framework/module/value_end.h"
#include "framework/sharing/grow.h"
#include "framework/sharing/resolve.h"
#include "framework/sharing/state_policy.h"

namespace delink {

class DelinkedValues : public ValueSource {
 public:
  struct Change {
    const Layout& from;  // the model before the switch
    const Layout& to;    // after it
    // As a store without tensor parallelism keeps them, for either model;
    // values are rounded to that before and after they change.
    std::vector<StateSpec> states;
    std::vector<SlabOrigin> origins;  // GrowthOf the slabs after
    StatePolicy policy = StatePolicy::kScale;
    Growth growth = {};
  };

  // Callers pass tensors of change.to. `before` gets the tensors of change.from
  // that they come from; it must have the fields that are read, whole on every
  // rank. An extent must be rows or a part of one row. References must outlive
  // this.
  DelinkedValues(ValueSource& before, Change change);

  DType type(const Field& field) const override { return before_.type(field); }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override;
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override;
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;

 private:
  const SlabOrigin& OriginOf(const LogicalTensor& tensor) const;
  // The old tensor of a tensor that does not begin fresh.
  const LogicalTensor& Old(const LogicalTensor& tensor) const;
  const ParamDecl& DeclOf(const LogicalTensor& tensor) const;
  const StateSpec& SpecOf(const Field& field) const;
  const StateFormat& FormatOf(const Field& field,
                              const LogicalTensor& tensor) const;
  StateCodec CodecOf(const Field& field, const LogicalTensor& tensor) const;
  // All of a tensor that begins fresh, on the first `ranks` ranks.
  Descriptor Fresh(int ranks, const Field& field,
                   const LogicalTensor& tensor) const;
  void InitWeight(const LogicalTensor& tensor, DType type, const Rect& rect,
                  void* values) const;
  absl::Status ReadState(const Field& field, const LogicalTensor& tensor,
                         const Extent& extent, void* values);
  void Divide(const Field& field, const LogicalTensor& tensor,
              const StateCodec& codec, Range range);

  ValueSource& before_;
  Change change_;
  // Before the switch, by slab and parameter; no links.
  std::map<std::pair<int, size_t>, const LogicalTensor*> old_;
  std::vector<char> staging_;
};

}  // namespace delink
