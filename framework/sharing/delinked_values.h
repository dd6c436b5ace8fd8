// A model as it is once links are cut, read from where they are not: what
// Delink does between two stores, of values on their way. Nothing but what is
// asked for is in memory.
#pragma once

#include <vector>

#include "framework/module/state_codec.h"
#include "framework/module/value_end.h"
#include "framework/sharing/resolve.h"
#include "framework/sharing/state_policy.h"

namespace delink {

class DelinkedValues : public ValueSource {
 public:
  // `before` is asked for tensors of `layout`, the model after the switch, and
  // goes by their names alone, as a checkpoint does, in which what is shared
  // has many, and has all of a tensor on every rank. What is read are rows, or
  // a part of one. `states`: as a store of either model keeps them that is not
  // cut over the tensor axis; values are rounded to that before they change,
  // and after. `origins`: what RelationOf
  // says of the layout's slabs. References must outlive this.
  DelinkedValues(ValueSource& before, const Layout& layout,
                 std::vector<StateSpec> states, std::vector<SlabOrigin> origins,
                 StatePolicy policy);

  DType type(const Field& field) const override { return before_.type(field); }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override {
    return before_.Has(field, tensor);
  }
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override {
    return before_.Owners(field, tensor);
  }
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;

 private:
  const StateSpec& SpecOf(const Field& field) const;
  StateCodec CodecOf(const Field& field, const LogicalTensor& tensor) const;
  absl::Status ReadState(const Field& field, const LogicalTensor& tensor,
                         const Extent& extent, void* values);
  void Change(const Field& field, const LogicalTensor& tensor,
              const StateCodec& codec, Range range);

  ValueSource& before_;
  const Layout& layout_;
  std::vector<StateSpec> states_;
  std::vector<SlabOrigin> origins_;
  StatePolicy policy_;
  std::vector<char> staging_;
};

}  // namespace delink
