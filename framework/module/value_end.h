// The two ends of a move: where values of tensors come from and where they go.
// A ParamStore is both (store_values.h), a checkpoint is one or the other
// (framework/checkpoint), and tests have their own.
//
// Has, Owners, Wants, grain and type are pure and say the same on all ranks. In
// a Descriptor of an end that is no store, Extent::slab and param are its own
// business, and so is what offset counts from, but not how: it grows by 1 with
// each column and by pitch with each row (Part), and with a grain above 1 it is
// the sink's from the parameter's start.
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

  // Of the values that are read, as field.h says.
  virtual DType type(const Field& field) const = 0;
  // Where values are: all places, and of each value one. A file that every rank
  // can read is whole on every rank, so that nothing crosses the network.
  virtual Descriptor Has(const Field& field,
                         const LogicalTensor& tensor) const = 0;
  virtual Descriptor Owners(const Field& field,
                            const LogicalTensor& tensor) const = 0;
  // An extent of this rank, packed row by row, to host memory; it is there when
  // this returns.
  virtual absl::Status Read(const Field& field, const LogicalTensor& tensor,
                            const Extent& extent, void* values) = 0;
};

class ValueSink {
 public:
  virtual ~ValueSink() = default;

  virtual DType type(const Field& field) const = 0;
  // Nothing where there is no memory to write to (a device that computes
  // nothing): then nothing is moved.
  virtual Descriptor Wants(const Field& field,
                           const LogicalTensor& tensor) const = 0;
  // Above 1, of elementwise values: where the layouts of both ends have whole
  // grains, what is written are ranges of elements, and their extents are as of
  // a vector, of one column (AsRanges). They begin and end at multiples of the
  // grain, counted from the logical slab's start (LogicalTensor::offset), or
  // with the parameter.
  virtual int64_t grain(const Field& field, const LogicalTensor& tensor) const;
  // Values of an extent, also of another rank's, as they would be read back
  // once written: rounded as they are kept. What a change is made of, but where
  // layouts cut grains.
  virtual void AsKept(const Field& field, const LogicalTensor& tensor,
                      const Extent& extent, void* values) const;
  // An extent of this rank from host memory, packed; `values` are free when
  // this returns. Every value that is wanted is written once; the order of
  // pieces changes nothing.
  virtual absl::Status Write(const Field& field, const LogicalTensor& tensor,
                             const Extent& extent, const void* values) = 0;
  // The same without host memory, of extents that are both on this rank, uncut:
  // false where that is not possible, and nothing was done.
  virtual bool Copy(ValueSource& source, const Field& field,
                    const LogicalTensor& from, const Extent& extent,
                    const LogicalTensor& to, const Extent& target);
};

}  // namespace delink
