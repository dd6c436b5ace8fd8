// The values of a ParamStore as a source and sink of moves: all fields, in any
// form and on any device.
//
// kParameters is read from the master, or from both its halves, or, without a
// master, from the weights. It is written to the weights and to the part of
// master or low half that this rank holds. A written gradient is rounded as the
// store keeps it. Fields that the store does not have are nowhere; on a device
// that computes nothing, all fields are nowhere. An exact parameter of a bf16
// store is kParameters alone: its kWeight, kMaster and kLow are nowhere.
//
// Calls use one stream and return when the work is done. Not thread-safe.
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
  // A block for 8-bit state; but 1 if tensor parallelism cuts the parameter or
  // moves it in its slab, so that its blocks are not those of the whole slab.
  // With a grain of 1, and if the other end's layout cuts blocks, a block is
  // written once it is complete. Until then its values are on the host in f32,
  // at most a tensor's.
  int64_t grain(const Field& field, const LogicalTensor& tensor) const override;
  // The extent may be of another rank. 8-bit state whose grain is 1 is not
  // changed.
  void AsKept(const Field& field, const LogicalTensor& tensor,
              const Extent& extent, void* values) const override;
  absl::Status Write(const Field& field, const LogicalTensor& tensor,
                     const Extent& extent, const void* values) override;
  // Needs a source store on the same device with values in the same form.
  // Copies them as stored, with the scales of 8-bit blocks, which must be whole
  // in both extents.
  bool Copy(ValueSource& source, const Field& field, const LogicalTensor& from,
            const Extent& extent, const LogicalTensor& to,
            const Extent& target) override;

 private:
  StoreValues(const ParamStore& store, bool writable);

  // The state of that name; -1 if there is none.
  int StateOf(const Field& field) const;
  // Whether the store has the tensor's field and its device computes.
  bool HasAny(const Field& field, const LogicalTensor& tensor) const;
  bool IsSplit(const LogicalTensor& tensor) const {
    return store_.has(Plane::kLow) && !store_.IsExact(tensor);
  }
  // The plane whose placement says which rank has what of a tensor's field.
  Plane PlaneOf(const Field& field, const LogicalTensor& tensor) const;
  StateFormat FormatOf(const Field& field, const LogicalTensor& tensor) const;
  // How one plane stores the values that move.
  StateCodec CodecOf(const Field& field, const LogicalTensor& tensor) const;
  Descriptor In(Plane plane, const Field& field,
                const LogicalTensor& tensor) const;

  StorePlace PlaceOf(const Field& field, const LogicalTensor& tensor,
                     const Extent& extent) const;
  StorePlace PlaceIn(Plane plane, const StateCodec& codec,
                     const Extent& extent) const;
  void WriteParameters(const LogicalTensor& tensor, const Extent& extent,
                       const void* values);

  const ParamStore& store_;
  bool writable_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<BlockParts> parts_;
};

}  // namespace delink
