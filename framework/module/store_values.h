// The values of a ParamStore as both ends of a move: all fields, in whatever
// form and on whatever device they are kept.
//
// kParameters is read where the master is, or both its halves, or, where there
// is neither, the weights; and written to the weights, with as much of master
// or low half as this rank holds. A gradient that is written is rounded as the
// store keeps it. What the store does not have is nowhere, and neither is
// anything on a device that computes nothing.
//
// Work goes to one stream and is done when a call returns. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "framework/module/param_store.h"
#include "framework/module/value_end.h"

namespace delink {

class BlockParts;
struct StorePlace;

class StoreValues final : public ValueSource, public ValueSink {
 public:
  // The store must outlive this. A const one is a source only.
  explicit StoreValues(ParamStore& store);
  explicit StoreValues(const ParamStore& store);
  ~StoreValues() override;

  DType type(const Field& field) const override;

  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override;
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override;
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override;

  Descriptor Wants(const Field& field,
                   const LogicalTensor& tensor) const override;
  // Of 8-bit state a block; 1 of what is cut along the tensor axis, whose
  // blocks are not those of the whole slab. Of such values, and where the other
  // end's layout cuts blocks, a block is written when all of it has come: on
  // the host until then, in f32, at most a tensor's.
  int64_t grain(const Field& field, const LogicalTensor& tensor) const override;
  // Also of an extent of another rank. 8-bit state that is cut along the tensor
  // axis is left as it is.
  void AsKept(const Field& field, const LogicalTensor& tensor,
              const Extent& extent, void* values) const override;
  absl::Status Write(const Field& field, const LogicalTensor& tensor,
                     const Extent& extent, const void* values) override;
  // From a store on the same device, of values in the same form: as stored,
  // with the scales of 8-bit blocks, which both extents must have whole.
  bool Copy(ValueSource& source, const Field& field, const LogicalTensor& from,
            const Extent& extent, const LogicalTensor& to,
            const Extent& target) override;

 private:
  StoreValues(const ParamStore& store, bool writable);

  // The state of that name; -1 if there is none.
  int StateOf(const Field& field) const;
  // Whether the store has the field, and computes.
  bool HasAny(const Field& field) const;
  // The plane that says which rank has what of a field.
  Plane PlaneOf(const Field& field) const;
  StateFormat FormatOf(const Field& field, const LogicalTensor& tensor) const;
  // How one plane keeps what travels.
  StateCodec CodecOf(const Field& field, const LogicalTensor& tensor) const;
  Descriptor In(Plane plane, const Field& field,
                const LogicalTensor& tensor) const;

  StorePlace PlaceOf(const Field& field, const LogicalTensor& tensor,
                     const Extent& extent) const;
  StorePlace PlaceIn(Plane plane, const StateCodec& codec,
                     const Extent& extent) const;
  void WriteParameters(const Extent& extent, const void* values);

  const ParamStore& store_;
  bool writable_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<BlockParts> parts_;
};

}  // namespace delink
