// The two ends of a move: the source and the sink of tensors' values. A
// ParamStore is both (store_values.h), a checkpoint is one or the other
// (framework/checkpoint), and tests define others.
//
// Has, Owners, Wants, grain and type are pure and equal on all ranks. An end
// that is no store may use Extent::slab and param as it likes, and may count
// offset from anywhere. But offset grows by 1 with each column and by pitch
// with each row (Part), and with a grain above 1 the sink's offset counts from
// the parameter's start.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "framework/module/descriptor.h"
#include "framework/module/field.h"
#include "framework/tensor/dtype.h"

namespace delink {

class ValueSource {
 public:
  virtual ~ValueSource() = default;

  // The type of the values that are read (field.h).
  virtual DType type(const Field& field) const = 0;
  // Where values are: Has names all places, Owners one for each value. A file
  // that every rank can read is whole on every rank, so that nothing crosses
  // the network.
  virtual Descriptor Has(const Field& field,
                         const LogicalTensor& tensor) const = 0;
  virtual Descriptor Owners(const Field& field,
                            const LogicalTensor& tensor) const = 0;
  // Copies an extent of this rank to host memory, packed row by row; done when
  // this returns.
  virtual absl::Status Read(const Field& field, const LogicalTensor& tensor,
                            const Extent& extent, void* values) = 0;
};

class ValueSink {
 public:
  virtual ~ValueSink() = default;

  virtual DType type(const Field& field) const = 0;
  // Empty if there is no memory to write to (a device that computes nothing):
  // then nothing is moved.
  virtual Descriptor Wants(const Field& field,
                           const LogicalTensor& tensor) const = 0;
  // Above 1 for elementwise values only. If the layouts of both ends have whole
  // grains, ranges of elements are written, with extents of one column as of a
  // vector (AsRanges). They begin and end at multiples of the grain, counted
  // from the logical slab's start (LogicalTensor::offset), or at the ends of
  // the parameter.
  virtual int64_t grain(const Field& field, const LogicalTensor& tensor) const;
  // Rounds values of an extent, also of another rank's, to what would be read
  // back once they are written. A move's change is applied to such values,
  // except if layouts cut grains.
  virtual void AsKept(const Field& field, const LogicalTensor& tensor,
                      const Extent& extent, void* values) const;
  // Copies an extent of this rank from host memory, packed; the caller may
  // reuse `values` when this returns. Every wanted value is written once; the
  // order of pieces does not matter.
  virtual absl::Status Write(const Field& field, const LogicalTensor& tensor,
                             const Extent& extent, const void* values) = 0;
  // The same without host memory, for extents that are both on this rank. They
  // are whole, not cut into pieces. Returns false, with nothing done, if that
  // is not possible.
  virtual bool Copy(ValueSource& source, const Field& field,
                    const LogicalTensor& from, const Extent& extent,
                    const LogicalTensor& to, const Extent& target);
};

}  // namespace delink
