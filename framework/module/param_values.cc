// What goes through the host: parameters as they are initialised, loaded and
// saved, and the values of the optimizer's state (state_codec.h).
#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/module/param_store.h"
#include "framework/module/state_codec.h"
#include "framework/tensor/block8.h"

namespace delink {
namespace {

// Elements [begin, begin + count) of a freshly initialised parameter.
template <typename T>
void Generate(const Init& init, RngKey key, int64_t begin, int64_t count,
              T* out) {
  switch (init.kind) {
    case Init::Kind::kZeros:
      std::fill_n(out, count, T{0});
      return;
    case Init::Kind::kOnes:
      std::fill_n(out, count, T{1});
      return;
    case Init::Kind::kNormal:
#pragma omp parallel for schedule(static) if (count > 4096)
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<T>(init.stddev *
                                Normal(key, static_cast<uint64_t>(begin + i)));
      }
  }
}

// What is here of a parameter, generated on the host a chunk at a time.
template <typename T>
void InitParam(ParamStore& store, Stream& stream, int slab, size_t param,
               const Init& init, RngKey key) {
  constexpr int64_t kChunk = int64_t{1} << 18;
  const SlabParam& place = store.slab(slab).params[param];
  std::vector<T> staging(static_cast<size_t>(std::min(place.elements, kChunk)));
  for (int64_t begin = 0; begin < place.elements; begin += kChunk) {
    const Range chunk{begin, std::min(begin + kChunk, place.elements)};
    ForEachLogicalRun(store.local(slab), param, store.registry(), chunk,
                      [&](Range run, int64_t first) {
                        Generate(init, key, first, run.size(),
                                 staging.data() + (run.begin - begin));
                      });
    store.SetParameters(stream, slab, place.offset + begin, chunk.size(),
                        staging.data());
  }
}

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

}  // namespace

void ParamStore::InitWeights(uint64_t seed) {
  for (size_t s = 0; s < slabs_.size(); ++s) {
    const int slab = static_cast<int>(s);
    for (size_t p = 0; p < slabs_[s].params.size(); ++p) {
      InitParameter(seed, slab, p, DeclOf(slab, p).spec.init);
    }
  }
}

void ParamStore::InitParameter(uint64_t seed, int slab, size_t param,
                               const Init& init) {
  if (IsMeta(device_->kind())) return;
  const std::unique_ptr<Stream> stream = device_->NewStream();
  const RngKey key = Fold(Fold(KeyFromSeed(seed), "init"),
                          std::string_view(DeclOf(slab, param).name));
  const auto fill =
      options_.dtype == DType::kF64 ? InitParam<double> : InitParam<float>;
  fill(*this, *stream, slab, param, init, key);
}

void ParamStore::SetParameters(Stream& stream, int slab, int64_t element,
                               int64_t count, const void* values) {
  if (options_.dtype == StatisticsOf(options_.dtype)) {
    device_->CopyFromHost(stream, at(slab, Plane::kWeight, element), values,
                          count * SizeOf(options_.dtype));
    stream.Synchronize();
    return;
  }
  DELINK_CHECK(options_.dtype == DType::kBF16);
  const auto* const exact = static_cast<const float*>(values);
  const auto n = static_cast<size_t>(count);
  const bool is_split = options_.master == MasterForm::kSplit;
  std::vector<uint16_t> rounded(n), low(is_split ? n : 0);
  EncodeWeights({exact, n}, rounded.data(), is_split ? low.data() : nullptr);
  device_->CopyFromHost(stream, at(slab, Plane::kWeight, element),
                        rounded.data(), count * SizeOf(options_.dtype));
  for (const auto& [plane, from] :
       {std::pair{Plane::kMaster, values},
        std::pair{Plane::kLow, static_cast<const void*>(low.data())}}) {
    if (!has(plane)) continue;
    const int64_t size = SizeOf(dtype(plane));
    const Range own = held(slab, plane);
    const int64_t begin = std::max(own.begin, element);
    const int64_t end = std::min(own.end, element + count);
    if (begin >= end) continue;
    device_->CopyFromHost(
        stream, at(slab, plane, begin),
        static_cast<const char*>(from) + (begin - element) * size,
        (end - begin) * size);
  }
  stream.Synchronize();
}

void ParamStore::ReadParameters(Stream& stream, int slab, int64_t element,
                                int64_t count, void* values) const {
  const void* const from = at(slab, master(), element);
  if (dtype(master()) != DType::kBF16) {
    device_->CopyToHost(stream, values, from, count * SizeOf(dtype(master())));
    stream.Synchronize();
    return;
  }
  const std::span exact(static_cast<float*>(values),
                        static_cast<size_t>(count));
  const auto weights = ToHost<uint16_t>(*device_, stream, from, count);
  if (!has(Plane::kLow)) return DecodeWeights(weights.data(), nullptr, exact);
  const auto low =
      ToHost<uint16_t>(*device_, stream, at(slab, Plane::kLow, element), count);
  DecodeWeights(weights.data(), low.data(), exact);
}

ParamStore::StatePlace ParamStore::state(int slab, int state,
                                         size_t param) const {
  const Plane plane = StatePlane(state);
  const StateLayout::Piece& piece = LayoutOf(slab, plane).pieces[param];
  const Buffer& buffer = At(At(planes_, plane), slab);
  StatePlace place{.format = piece.format,
                   .codec = {.storage = piece.format.storage,
                             .is_signed = At(options_.states, state).is_signed,
                             .exact = dtype(plane)},
                   .held = piece.held,
                   .values = buffer.at(piece.at)};
  if (piece.format.storage == StateStorage::kBlock8) {
    place.scales = static_cast<float*>(buffer.at(piece.scales));
  }
  return place;
}

Shape ParamStore::state_shape(int slab, int state, size_t param) const {
  const ParamDecl& decl = DeclOf(slab, param);
  const StateSpec& spec = At(options_.states, state);
  return StateShape(decl.spec.shape, spec.Of(KindOf(decl, blocks())).extent);
}

void ParamStore::ReadState(Stream& stream, int slab, int state, size_t param,
                           Range range, void* values) const {
  const StatePlace place = this->state(slab, state, param);
  DELINK_CHECK(range.begin >= place.held.begin && range.end <= place.held.end);
  if (range.size() == 0) return;
  const StateStorage storage = place.format.storage;
  const int64_t size = SizeOf(storage, place.codec.exact);
  const void* const from = static_cast<const char*>(place.values) +
                           (range.begin - place.held.begin) * size;
  if (storage == StateStorage::kExact) {
    device_->CopyToHost(stream, values, from, range.size() * size);
    stream.Synchronize();
    return;
  }
  const int64_t offset = At(slabs_, slab).params[param].offset;
  const int64_t element = offset + range.begin;
  const auto stored = ToHost<char>(*device_, stream, from, range.size() * size);
  std::vector<float> scales;
  if (storage == StateStorage::kBlock8) {
    const int64_t skipped =
        element / kBlock8 - (offset + place.held.begin) / kBlock8;
    scales = ToHost<float>(*device_, stream, place.scales + skipped,
                           ScalesOf(element, element + range.size()));
  }
  place.codec.Decode(element, range.size(), stored.data(), scales.data(),
                     values);
}

void ParamStore::WriteState(Stream& stream, int slab, int state, size_t param,
                            Range range, const void* values) {
  const StatePlace place = this->state(slab, state, param);
  DELINK_CHECK(range.begin >= place.held.begin && range.end <= place.held.end);
  if (range.size() == 0) return;
  const StateStorage storage = place.format.storage;
  const int64_t size = SizeOf(storage, place.codec.exact);
  void* const to = static_cast<char*>(place.values) +
                   (range.begin - place.held.begin) * size;
  if (storage == StateStorage::kExact) {
    device_->CopyFromHost(stream, to, values, range.size() * size);
    stream.Synchronize();
    return;
  }
  const int64_t offset = At(slabs_, slab).params[param].offset;
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
  ToDevice(*device_, stream, to, stored);
  if (storage != StateStorage::kBlock8) return;
  ToDevice(*device_, stream,
           place.scales +
               (element / kBlock8 - (offset + place.held.begin) / kBlock8),
           scales);
}

}  // namespace delink
