// The values of a store by plain copies, element by element and state by state:
// what tests set, and hold what the framework moves against.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/module/param_store.h"
#include "framework/module/state_codec.h"
#include "framework/module/state_layout.h"
#include "framework/tensor/block8.h"

namespace delink::testing {

// Copies a vector to device memory, and is done.
template <typename T>
void ToDevice(Device& device, Stream& stream, void* to,
              const std::vector<T>& values) {
  device.CopyFromHost(stream, to, values.data(),
                      static_cast<int64_t>(values.size() * sizeof(T)));
  stream.Synchronize();
}

// Host memory that device memory is copied to, once the stream is done.
template <typename T>
std::vector<T> ToHost(Device& device, Stream& stream, const void* from,
                      int64_t count) {
  std::vector<T> staging(static_cast<size_t>(count));
  device.CopyToHost(stream, staging.data(), from,
                    count * static_cast<int64_t>(sizeof(T)));
  stream.Synchronize();
  return staging;
}

// Replaces elements [element, element + count) of a slab's parameters by
// `values`: host memory, f64 where the weights are, else f32. The master gets
// what the rank holds of it.
inline void SetParameters(ParamStore& store, Stream& stream, int slab,
                          int64_t element, int64_t count, const void* values) {
  const DType type = store.dtype(slab, Plane::kWeight);
  if (type != DType::kBF16) {
    store.device().CopyFromHost(stream, store.at(slab, Plane::kWeight, element),
                                values, count * SizeOf(type));
    stream.Synchronize();
    return;
  }
  const auto* const exact = static_cast<const float*>(values);
  const auto n = static_cast<size_t>(count);
  const bool is_split = store.options().master == MasterForm::kSplit;
  std::vector<uint16_t> rounded(n), low(is_split ? n : 0);
  EncodeWeights({exact, n}, rounded.data(), is_split ? low.data() : nullptr);
  store.device().CopyFromHost(stream, store.at(slab, Plane::kWeight, element),
                              rounded.data(), count * SizeOf(type));
  for (const auto& [plane, from] :
       {std::pair{Plane::kMaster, values},
        std::pair{Plane::kLow, static_cast<const void*>(low.data())}}) {
    if (!store.has(plane)) continue;
    const int64_t size = SizeOf(store.dtype(slab, plane));
    const Range own = store.held(slab, plane);
    const int64_t begin = std::max(own.begin, element);
    const int64_t end = std::min(own.end, element + count);
    if (begin >= end) continue;
    store.device().CopyFromHost(
        stream, store.at(slab, plane, begin),
        static_cast<const char*>(from) + (begin - element) * size,
        (end - begin) * size);
  }
  stream.Synchronize();
}

// The same elements, which must be held where the parameters are, to the host.
inline void ReadParameters(const ParamStore& store, Stream& stream, int slab,
                           int64_t element, int64_t count, void* values) {
  const Plane master = store.master(slab);
  const void* const from = store.at(slab, master, element);
  const DType type = store.dtype(slab, master);
  if (type != DType::kBF16) {
    store.device().CopyToHost(stream, values, from, count * SizeOf(type));
    stream.Synchronize();
    return;
  }
  const std::span exact(static_cast<float*>(values),
                        static_cast<size_t>(count));
  const auto weights = ToHost<uint16_t>(store.device(), stream, from, count);
  if (!store.has(slab, Plane::kLow))
    return DecodeWeights(weights.data(), nullptr, exact);
  const auto low = ToHost<uint16_t>(
      store.device(), stream, store.at(slab, Plane::kLow, element), count);
  DecodeWeights(weights.data(), low.data(), exact);
}

// Values of a parameter's state, which must be held, to host memory and from
// there. Written ranges of 8-bit values begin and end where blocks do, or where
// the held ones do.
inline void ReadState(const ParamStore& store, Stream& stream, int slab,
                      int state, size_t param, Range range, void* values) {
  const ParamStore::StatePlace place = store.state(slab, state, param);
  DELINK_CHECK(range.begin >= place.held.begin && range.end <= place.held.end);
  if (range.size() == 0) return;
  const StateStorage storage = place.format.storage;
  const int64_t size = SizeOf(storage, place.codec.exact);
  const void* const from = static_cast<const char*>(place.values) +
                           (range.begin - place.held.begin) * size;
  if (storage == StateStorage::kExact) {
    store.device().CopyToHost(stream, values, from, range.size() * size);
    stream.Synchronize();
    return;
  }
  const int64_t offset = store.slab(slab).params[param].offset;
  const int64_t element = offset + range.begin;
  const auto stored =
      ToHost<char>(store.device(), stream, from, range.size() * size);
  std::vector<float> scales;
  if (storage == StateStorage::kBlock8) {
    const int64_t skipped =
        element / kBlock8 - (offset + place.held.begin) / kBlock8;
    scales = ToHost<float>(store.device(), stream, place.scales + skipped,
                           ScalesOf(element, element + range.size()));
  }
  place.codec.Decode(element, range.size(), stored.data(), scales.data(),
                     values);
}

inline void WriteState(ParamStore& store, Stream& stream, int slab, int state,
                       size_t param, Range range, const void* values) {
  const ParamStore::StatePlace place = store.state(slab, state, param);
  DELINK_CHECK(range.begin >= place.held.begin && range.end <= place.held.end);
  if (range.size() == 0) return;
  const StateStorage storage = place.format.storage;
  const int64_t size = SizeOf(storage, place.codec.exact);
  void* const to = static_cast<char*>(place.values) +
                   (range.begin - place.held.begin) * size;
  if (storage == StateStorage::kExact) {
    store.device().CopyFromHost(stream, to, values, range.size() * size);
    stream.Synchronize();
    return;
  }
  const int64_t offset = store.slab(slab).params[param].offset;
  const int64_t element = offset + range.begin;
  const int64_t last = offset + range.end;
  if (storage == StateStorage::kBlock8) {
    DELINK_CHECK(element % kBlock8 == 0 || range.begin == place.held.begin);
    DELINK_CHECK(last % kBlock8 == 0 || range.end == place.held.end);
  }
  std::vector<char> stored(static_cast<size_t>(range.size() * size));
  std::vector<float> scales(static_cast<size_t>(ScalesOf(element, last)));
  place.codec.Encode(element, range.size(), values, stored.data(),
                     scales.data());
  ToDevice(store.device(), stream, to, stored);
  if (storage != StateStorage::kBlock8) return;
  ToDevice(store.device(), stream,
           place.scales +
               (element / kBlock8 - (offset + place.held.begin) / kBlock8),
           scales);
}

}  // namespace delink::testing
