#include "framework/module/param_store.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/bfloat16.h"

namespace delink {
namespace {

const PlanePlacement& PlacementOf(const PlacementRow& row, Plane plane) {
  switch (plane) {
    case Plane::kWeight:
      return row.weight;
    case Plane::kGradient:
      return row.gradient;
    case Plane::kState0:
    case Plane::kState1:
    case Plane::kMaster:
      break;
  }
  return row.state;
}

// Elements [begin, begin + count) of a freshly initialised parameter.
template <typename T>
void Generate(const Init& init, RngKey key, int64_t begin, int64_t count,
              T* out) {
  for (int64_t i = 0; i < count; ++i) {
    switch (init.kind) {
      case Init::Kind::kZeros:
        out[i] = 0;
        break;
      case Init::Kind::kOnes:
        out[i] = 1;
        break;
      case Init::Kind::kNormal:
        out[i] = static_cast<T>(init.stddev *
                                Normal(key, static_cast<uint64_t>(begin + i)));
        break;
    }
  }
}

// The parameter at `place`, generated on the host a chunk at a time.
template <typename T>
void InitParam(ParamStore& store, Stream& stream, int slab,
               const SlabParam& place, const Init& init, RngKey key) {
  constexpr int64_t kChunk = int64_t{1} << 18;
  std::vector<T> staging(static_cast<size_t>(std::min(place.elements, kChunk)));
  for (int64_t begin = 0; begin < place.elements; begin += kChunk) {
    const int64_t count = std::min(kChunk, place.elements - begin);
    Generate(init, key, begin, count, staging.data());
    store.SetParameters(stream, slab, place.offset + begin, count,
                        staging.data());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParamStore>> ParamStore::Create(
    Device& device, const ParamRegistry& registry, int blocks,
    const SharingMap& sharing, int zero, const Options& options) {
  std::unique_ptr<ParamStore> store(new ParamStore);
  store->device_ = &device;
  store->registry_ = &registry;
  store->options_ = options;
  store->blocks_ = blocks;
  store->sharing_ = sharing;
  store->slabs_ = LayOutSlabs(registry, blocks, sharing);
  store->updates_.assign(store->slabs_.size(), 0);
  store->placement_ = PlacementTable::DataParallel(
      static_cast<int>(store->slabs_.size()), zero, options.ranks);
  store->BuildBindings();
  DELINK_RETURN_IF_ERROR(store->AllocatePlanes());
  return store;
}

void ParamStore::BuildBindings() {
  const size_t layers = static_cast<size_t>(blocks_) + 2;
  for (const ParamDecl& decl : registry_->decls) {
    DELINK_CHECK_LT(static_cast<size_t>(decl.layer), layers) << decl.name;
  }
  bindings_.resize(layers);
  slabs_of_layer_.resize(layers);
  for (size_t s = 0; s < slabs_.size(); ++s) {
    for (const int layer : slabs_[s].layers) {
      slabs_of_layer_[static_cast<size_t>(layer)].push_back(
          static_cast<int>(s));
    }
  }
  std::map<std::string, Param*> params;
  std::map<std::string, int> layer_of;
  for (const ParamDecl& decl : registry_->decls) {
    params[decl.name] = decl.param.get();
    layer_of[decl.name] = decl.layer;
  }
  for (const LogicalTensor& tensor : logical_tensors()) {
    const auto layer = static_cast<size_t>(layer_of[tensor.name]);
    const std::vector<int>& slabs = slabs_of_layer_[layer];
    const auto at = std::find(slabs.begin(), slabs.end(), tensor.slab);
    DELINK_CHECK(at != slabs.end());
    bindings_[layer].push_back({.param = params[tensor.name],
                                .shape = tensor.shape,
                                .slab = tensor.slab,
                                .index = static_cast<int>(at - slabs.begin()),
                                .offset = tensor.offset});
  }
  FindStrangers();
}

void ParamStore::FindStrangers() {
  strangers_.resize(bindings_.size());
  for (size_t layer = 0; layer < bindings_.size(); ++layer) {
    std::set<std::pair<int, int64_t>> bound;
    for (const Binding& b : bindings_[layer]) bound.emplace(b.slab, b.offset);
    const std::vector<int>& slabs = slabs_of_layer_[layer];
    for (size_t i = 0; i < slabs.size(); ++i) {
      for (const SlabParam& param :
           slabs_[static_cast<size_t>(slabs[i])].params) {
        if (bound.contains({slabs[i], param.offset})) continue;
        strangers_[layer].push_back({.slab = slabs[i],
                                     .index = static_cast<int>(i),
                                     .offset = param.offset,
                                     .elements = param.elements});
      }
    }
  }
}

bool ParamStore::has(Plane plane) const {
  return !planes_[static_cast<size_t>(plane)].empty();
}

DType ParamStore::dtype(Plane plane) const {
  return plane == Plane::kWeight ? options_.dtype
                                 : StatisticsOf(options_.dtype);
}

Range ParamStore::held(int slab, Plane plane) const {
  const auto s = static_cast<size_t>(slab);
  if (PlacementOf(placement_.rows[s], plane).sharded) return owned(slab);
  return {0, slabs_[s].elements};
}

int64_t ParamStore::PlaneElements(int slab, Plane plane) const {
  const Slab& s = slabs_[static_cast<size_t>(slab)];
  const int64_t shard = s.ShardElements(options_.ranks);
  const PlacementRow& row = placement_.rows[static_cast<size_t>(slab)];
  return PlacementOf(row, plane).sharded ? shard : shard * options_.ranks;
}

bool ParamStore::Wanted(Plane plane) const {
  switch (plane) {
    case Plane::kWeight:
      break;
    case Plane::kGradient:
      return options_.gradients;
    case Plane::kState0:
      return options_.states >= 1;
    case Plane::kState1:
      return options_.states >= 2;
    case Plane::kMaster:
      return options_.states >= 1 &&
             dtype(Plane::kMaster) != dtype(Plane::kWeight);
  }
  return true;
}

int64_t ParamStore::WantedBytes() const {
  int64_t bytes = 0;
  for (int p = 0; p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (!Wanted(plane)) continue;
    for (size_t s = 0; s < slabs_.size(); ++s) {
      bytes += PlaneElements(static_cast<int>(s), plane) * SizeOf(dtype(plane));
    }
  }
  return bytes;
}

absl::Status ParamStore::AllocatePlanes() {
  planes_.resize(kPlanes);
  const std::unique_ptr<Stream> stream = device_->NewStream();
  for (int p = 0; p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (!Wanted(plane)) continue;
    for (size_t s = 0; s < slabs_.size(); ++s) {
      const int64_t bytes =
          PlaneElements(static_cast<int>(s), plane) * SizeOf(dtype(plane));
      absl::StatusOr<Buffer> buffer = Buffer::Allocate(*device_, bytes);
      if (!buffer.ok()) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "parameters of ", slabs_[s].name, ": ", buffer.status().message(),
            "; weights, gradients and optimizer state need ", WantedBytes(),
            " bytes in all; share more layers (stage.share), shard the state "
            "over more ranks (stage.parallel.zero = 1) or make the model "
            "smaller"));
      }
      device_->FillZero(*stream, buffer->data(), bytes);
      planes_[static_cast<size_t>(p)].push_back(*std::move(buffer));
    }
  }
  stream->Synchronize();
  return absl::OkStatus();
}

void* ParamStore::at(int slab, Plane plane, int64_t element) const {
  DELINK_CHECK(has(plane));
  const Range range = held(slab, plane);
  DELINK_CHECK_GE(element, range.begin);
  const Buffer& buffer =
      planes_[static_cast<size_t>(plane)][static_cast<size_t>(slab)];
  const int64_t offset = (element - range.begin) * SizeOf(dtype(plane));
  DELINK_CHECK_LE(offset, buffer.bytes());
  return buffer.at(offset);
}

void ParamStore::InitWeights(uint64_t seed) {
  const std::unique_ptr<Stream> stream = device_->NewStream();
  const RngKey root = Fold(KeyFromSeed(seed), "init");
  for (size_t s = 0; s < slabs_.size(); ++s) {
    for (const SlabParam& place : slabs_[s].params) {
      const ParamDecl& decl = registry_->decls[static_cast<size_t>(place.decl)];
      const RngKey key = Fold(root, std::string_view(decl.name));
      if (IsMeta(device_->kind())) continue;
      const auto init =
          options_.dtype == DType::kF64 ? InitParam<double> : InitParam<float>;
      init(*this, *stream, static_cast<int>(s), place, decl.spec.init, key);
    }
  }
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
  const std::vector<BFloat16> rounded(exact, exact + count);
  device_->CopyFromHost(stream, at(slab, Plane::kWeight, element),
                        rounded.data(), count * SizeOf(options_.dtype));
  if (has(Plane::kMaster)) {
    const Range own = held(slab, Plane::kMaster);
    const int64_t begin = std::max(own.begin, element);
    const int64_t end = std::min(own.end, element + count);
    if (begin < end) {
      device_->CopyFromHost(stream, at(slab, Plane::kMaster, begin),
                            exact + (begin - element),
                            (end - begin) * SizeOf(DType::kF32));
    }
  }
  stream.Synchronize();
}

void ParamStore::Bind(int layer, const std::vector<bool>* written,
                      const std::vector<void*>* gradients) {
  const DType gradient_dtype = dtype(Plane::kGradient);
  const auto gradient_at = [&](int slab, size_t index, int64_t offset) {
    if (gradients == nullptr || (*gradients)[index] == nullptr) {
      return at(slab, Plane::kGradient, offset);
    }
    return static_cast<void*>(static_cast<char*>((*gradients)[index]) +
                              offset * SizeOf(gradient_dtype));
  };
  for (const Binding& b : bindings_[static_cast<size_t>(layer)]) {
    const Tensor weight(at(b.slab, Plane::kWeight, b.offset), options_.dtype,
                        b.shape);
    Tensor grad;
    bool accumulate = false;
    if (written != nullptr) {
      const auto index = static_cast<size_t>(b.index);
      grad =
          Tensor(gradient_at(b.slab, index, b.offset), gradient_dtype, b.shape);
      accumulate = (*written)[index];
    }
    b.param->Bind(weight, grad, accumulate);
  }
  strange_gradients_.clear();
  if (written == nullptr) return;
  for (const Stranger& s : strangers_[static_cast<size_t>(layer)]) {
    const auto index = static_cast<size_t>(s.index);
    if ((*written)[index]) continue;
    strange_gradients_.emplace_back(gradient_at(s.slab, index, s.offset),
                                    gradient_dtype, Shape{s.elements});
  }
}

void ParamStore::FinishGradients(int layer, Stream& stream) {
  for (const Binding& b : bindings_[static_cast<size_t>(layer)]) {
    if (b.param->written()) continue;
    const Tensor& grad = b.param->grad();
    device_->FillZero(stream, grad.data(), grad.bytes());
  }
  for (const Tensor& grad : strange_gradients_) {
    device_->FillZero(stream, grad.data(), grad.bytes());
  }
}

int64_t ParamStore::bytes(Plane plane) const {
  int64_t total = 0;
  for (const Buffer& buffer : planes_[static_cast<size_t>(plane)]) {
    total += buffer.bytes();
  }
  return total;
}

int64_t ParamStore::unique_parameters() const {
  int64_t total = 0;
  for (const Slab& slab : slabs_) {
    for (const SlabParam& param : slab.params) total += param.elements;
  }
  return total;
}

int64_t ParamStore::virtual_parameters() const {
  int64_t total = 0;
  for (const ParamDecl& decl : registry_->decls) {
    if (decl.link < 0) total += decl.spec.shape.elements();
  }
  return total;
}

}  // namespace delink
