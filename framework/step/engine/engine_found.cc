// The results of passes other than a step: a few numbers on the host, which
// instructions find and kSum combines. The host waits for the device in each of
// these instructions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/comm/chain.h"
#include "framework/optim/find_kernels.h"
#include "framework/step/engine/engine_state.h"
#include "framework/step/program/shape_table.h"
#include "framework/tensor/bfloat16.h"

namespace delink {
namespace {

// Of host memory.
double ValueAt(const char* values, DType dtype, size_t i) {
  switch (dtype) {
    case DType::kF64:
      return reinterpret_cast<const double*>(values)[i];
    case DType::kBF16:
      return float{reinterpret_cast<const BFloat16*>(values)[i]};
    default:
      DELINK_CHECK(dtype == DType::kF32) << ToString(dtype);
      return reinterpret_cast<const float*>(values)[i];
  }
}

// The first element of a device tensor that is not finite.
std::optional<size_t> FirstNonFinite(Device& device, Stream& stream,
                                     const Tensor& x) {
  const auto n = static_cast<size_t>(x.elements());
  std::vector<char> bytes(static_cast<size_t>(x.bytes()));
  device.CopyToHost(stream, bytes.data(), x.data(), x.bytes());
  stream.Synchronize();
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(ValueAt(bytes.data(), x.dtype(), i))) return i;
  }
  return std::nullopt;
}

}  // namespace

// Keeps only the rank's first visit with a value that is not finite, in the
// order in which one rank alone would run them, and of this the first value.
// The rows of `x` are this rank's tokens of the micro-batch.
void Engine::Inspect(const Pass& pass, const Instruction& at,
                     std::string_view what, const Tensor& x) {
  const int64_t visit =
      int64_t{at.micro_batch} * pass.program.shape.layers + at.layer;
  if (found_.not_finite >= 0 && found_.not_finite <= visit) return;
  const std::optional<size_t> first =
      FirstNonFinite(*env_.device, *compute_stream_, x);
  if (!first) return;
  found_.not_finite = visit;
  const Layout& layout = env_.store->layout();
  const int64_t rows = x.elements() / x.dim(-1);
  int64_t row = static_cast<int64_t>(*first) / x.dim(-1);
  if (rows < memory_.batch.local_tokens()) {  // a tensor rank's own
    row += rows * layout.mesh().PlaceOf(env_.store->rank())[Axis::kTensor];
  }
  const int64_t length = memory_.batch.local_seq();
  const std::vector<int32_t>& places = loaded_tokens_.places;
  const int64_t token =
      places.empty() ? row % length : At(places, row % length);
  found_.what = absl::StrCat(
      "the ", absl::string_view(what.data(), what.size()), " of ",
      env_.model->layer_name(LayerAt(at.layer)), " is not finite (micro-batch ",
      at.micro_batch, ", sequence ", row / length, ", token ", token, ")");
}

// The sum of squares of `elements` of the slab's gradient. They are at
// `gradient` and begin with one of the slab's blocks: the sum is taken by the
// same blocks as that of the step's norm.
double Engine::SumSquaresOf(int slab, const void* gradient, int64_t elements) {
  if (elements == 0) return 0;
  const Slab& of = env_.store->slab(slab);
  const DType dtype = env_.store->dtype(slab, Plane::kGradient);
  const OptimKernels* const kernels =
      FindOptimKernels(env_.device->kind(), StatisticsOf(dtype));
  DELINK_CHECK(kernels != nullptr);
  auto* const blocks = static_cast<double*>(workspace_.data());
  SumSquaresArgs args{.n = elements, .block = of.block, .sums = blocks};
  if (dtype == DType::kBF16) {
    args.w = static_cast<const uint16_t*>(gradient);
  } else {
    args.x = gradient;
  }
  kernels->sum_squares(*compute_stream_, args);
  const int64_t count = (elements + of.block - 1) / of.block;
  std::vector<double> sums(static_cast<size_t>(count));
  env_.device->CopyToHost(*compute_stream_, sums.data(), blocks,
                          count * SizeOf(DType::kF64));
  compute_stream_->Synchronize();
  double sum = 0;
  for (const double block : sums) sum += block;
  return sum;
}

// `written`: the slab's gradient already has contributions of other layers. If
// several ranks have parts of a gradient, each takes the squares of a shard of
// the sum.
std::unique_ptr<Pending> Engine::Probe(const Pass& pass, const Instruction& at,
                                       bool written) {
  ParamStore& store = *env_.store;
  const std::vector<int32_t>& slabs =
      At(pass.program.shape.slabs_of_layer, at.layer);
  const auto which = std::find(slabs.begin(), slabs.end(), at.slab);
  const std::vector<void*> kept = ApartAddresses(pass, at.layer);
  void* const apart = At(kept, which - slabs.begin());
  const int slab = SlabHere(store, at.slab);
  void* const sum = WholeGradient(pass, slab);
  const DType dtype = store.dtype(slab, Plane::kGradient);
  const int64_t elements = store.slab(slab).elements;
  if (written) {
    env_.accumulate(*env_.device, *compute_stream_, dtype, sum, apart,
                    elements);
  } else {
    if (store.placement(slab).gradient.sharded) {
      ClearPadding(slab, sum, *compute_stream_);
    }
    env_.device->Copy(*compute_stream_, sum, apart, elements * SizeOf(dtype));
  }
  double& found = At(found_.apart, at.slab);
  StreamCommunicator* const group =
      probe_groups_ == nullptr ? nullptr : probe_groups_->OfVisits(slab);
  if (group == nullptr) {
    found += SumSquaresOf(slab, apart, elements);
    return nullptr;
  }
  ClearIdentical(*compute_stream_, slab, apart);
  const Slab& of = store.slab(slab);
  const Range shard = ShardRange(of, group->rank(), group->size());
  void* const staging = copies_.at(memory_.probe_staging);
  return Chain(
      group->ReduceScatter(apart, staging, of.ShardElements(group->size()),
                           dtype, ReduceOp::kSum),
      {[=, this, &found]() -> std::unique_ptr<Pending> {
        found += SumSquaresOf(slab, staging, shard.size());
        return nullptr;
      }});
}

// All stages and places that share the slab have the same sum; only the first
// one's counts.
bool Engine::CountsTogether(const Pass& pass, int32_t program_slab) const {
  const ProgramShape& shape = pass.program.shape;
  if (ShapeTable(shape).FirstStageOf(program_slab) != pass.program.stage) {
    return false;
  }
  const Mesh& mesh = env_.store->layout().mesh();
  const AxisCut cut = CutOf(shape, program_slab);
  const int here = mesh.InStage(mesh.PlaceOf(env_.store->rank()));
  const int together = mesh.PlacesOfVisit(cut);
  for (int place = here / together * together; place < here; ++place) {
    if (mesh.PieceAt(place, cut) == mesh.PieceAt(here, cut)) return false;
  }
  return true;
}

LossRecord Engine::FoundLosses() {
  LossRecord record;
  env_.device->CopyToHost(*compute_stream_, &record, records_->loss,
                          sizeof(record));
  compute_stream_->Synchronize();
  return record;
}

std::vector<double> Engine::FoundAgreements(const Pass& pass) {
  const ParamStore& store = *env_.store;
  const std::vector<int32_t> sharers = SharersOf(pass.program.shape);
  std::vector<double> found;
  for (int32_t s = 0; s < pass.program.shape.slabs; ++s) {
    if (At(sharers, s) < 2) continue;
    double together = 0;
    if (CountsTogether(pass, s)) {
      const int slab = SlabHere(store, s);
      together = SumSquaresOf(slab, WholeGradient(pass, slab),
                              store.slab(slab).elements);
    }
    found.push_back(together);
    found.push_back(At(found_.apart, s));
  }
  return found;
}

std::unique_ptr<Pending> Engine::Sum(const Pass& pass) {
  // After this the device does not read the batch any more.
  compute_stream_->Synchronize();
  ReduceOp op = ReduceOp::kSum;
  const LossRecord losses = FoundLosses();
  double lost = losses.lost;
  switch (pass.program.kind) {
    case PassKind::kEvaluation:
      numbers_ = {losses.loss_sum, static_cast<double>(losses.tokens)};
      break;
    case PassKind::kProbe:
      numbers_ = FoundAgreements(pass);
      break;
    default: {  // a diagnosis: the lowest data place's first visit; of its
                // ranks, which see each other's tokens, the lowest that saw it
      op = ReduceOp::kMin;
      lost = -lost;
      const ProgramShape& shape = pass.program.shape;
      const int64_t visits = int64_t{shape.micro_batches} * shape.layers;
      const MeshPlace place =
          env_.store->layout().mesh().PlaceOf(env_.store->rank());
      const int within =
          place[Axis::kTensor] + shape.tensor * place[Axis::kContext];
      const int64_t visit = place[Axis::kData] * visits + found_.not_finite;
      numbers_ = {static_cast<double>(
          found_.not_finite >= 0 ? visit * shape.tensor * shape.context + within
                                 : shape.ranks * visits)};
    }
  }
  numbers_.push_back(lost);
  return Chain(env_.compute->AllReduce(numbers_.data(),
                                       static_cast<int64_t>(numbers_.size()),
                                       DType::kF64, op),
               {[this]() -> std::unique_ptr<Pending> {
                 lost_ = std::abs(numbers_.back());
                 numbers_.pop_back();
                 return nullptr;
               }});
}

}  // namespace delink
