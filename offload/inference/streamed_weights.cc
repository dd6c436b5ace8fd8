#include "offload/inference/streamed_weights.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/step/plan/layout_shape.h"
#include "framework/step/plan/memory.h"
#include "offload/plan/residency.h"

namespace delink {
namespace {

// One forward pass over this rank's layers.
Program BarePass(const ParamStore& store) {
  const Layout& layout = store.layout();
  Program pass{.shape = ShapeOf(layout, 1),
               .kind = PassKind::kEvaluation,
               .stage = layout.mesh().PlaceOf(store.rank())[Axis::kPipeline]};
  for (int32_t layer = 0; layer < pass.shape.layers; ++layer) {
    if (StageOf(pass.shape, layer) != pass.stage) continue;
    const bool last = layer + 1 == pass.shape.layers;
    pass.instructions.push_back({.op = last ? Op::kLoss : Op::kForward,
                                 .flags = kForwardOnly,
                                 .layer = layer,
                                 .micro_batch = 0});
  }
  return pass;
}

// By class of copies, the slabs of it that the program's layers use.
std::vector<std::set<int32_t>> SlabsByClass(const Program& program) {
  const ProgramShape& shape = program.shape;
  std::vector<std::set<int32_t>> slabs(shape.copies.size());
  for (const Instruction& at : program.instructions) {
    if (!IsVisit(at)) continue;
    for (const int32_t slab : At(shape.slabs_of_layer, at.layer)) {
      const int32_t copies = CopyClassOf(shape, PlaneSet::kWeight, slab);
      if (copies >= 0) At(slabs, copies).insert(slab);
    }
  }
  return slabs;
}

Program PassOf(const ParamStore& store) {
  Program pass = BarePass(store);
  const std::vector<std::set<int32_t>> slabs = SlabsByClass(pass);
  for (size_t c = 0; c < slabs.size(); ++c) {
    const auto most = static_cast<int32_t>(slabs[c].size());
    pass.shape.copies[c] = std::min(pass.shape.copies[c], most);
  }
  return AddResidency(pass);
}

// By class of copies, of the largest of its slabs.
std::vector<int64_t> CopyBytes(const ParamStore& store,
                               const Program& program) {
  std::vector<int64_t> sizes;
  for (const std::set<int32_t>& slabs : SlabsByClass(program)) {
    int64_t& size = sizes.emplace_back(0);
    for (const int32_t slab : slabs) {
      size = std::max(size, AlignUp(store.whole_bytes(SlabHere(store, slab),
                                                      Plane::kWeight)));
    }
  }
  return sizes;
}

int64_t BytesOfAll(const Program& program, const std::vector<int64_t>& sizes) {
  return std::inner_product(sizes.begin(), sizes.end(),
                            program.shape.copies.begin(), int64_t{0});
}

}  // namespace

absl::StatusOr<std::unique_ptr<StreamedWeights>> StreamedWeights::Create(
    ParamStore& store, GatherLane* gathers) {
  std::unique_ptr<StreamedWeights> weights(new StreamedWeights(store, gathers));
  DELINK_RETURN_IF_ERROR(weights->Allocate());
  return weights;
}

int64_t StreamedWeights::BytesOf(const ParamStore& store) {
  const Program program = PassOf(store);
  return BytesOfAll(program, CopyBytes(store, program));
}

StreamedWeights::StreamedWeights(ParamStore& store, GatherLane* gathers)
    : store_(store),
      gathers_(gathers),
      program_(PassOf(store)),
      fetches_(static_cast<size_t>(std::count_if(
          program_.instructions.begin(), program_.instructions.end(),
          [](const Instruction& at) { return at.op == Op::kFetch; }))) {}

StreamedWeights::~StreamedWeights() {
  for (const Copy* copy : begun_) {
    if (copy->gather > 0) gathers_->Finish(copy->gather);
    in_->Wait(*copy->came);
  }
  if (in_ != nullptr) in_->Synchronize();
  for (size_t slab = 0; slab < now_.size(); ++slab) {
    if (now_[slab] != nullptr) Redirect(static_cast<int32_t>(slab), nullptr);
  }
}

absl::Status StreamedWeights::Allocate() {
  if (fetches_ == 0) return absl::OkStatus();
  Device& device = store_.device();
  const ProgramShape& shape = program_.shape;
  const std::vector<int64_t> sizes = CopyBytes(store_, program_);
  const int64_t bytes = BytesOfAll(program_, sizes);
  DELINK_ASSIGN_OR_RETURN(memory_,
                          Buffer::Allocate(device, bytes, "fetched planes"));
  in_ = device.NewStream("in");
  free_.resize(sizes.size());
  now_.resize(static_cast<size_t>(shape.slabs));
  int64_t offset = 0;
  std::vector<size_t> classes;  // by copy
  for (size_t c = 0; c < sizes.size(); ++c) {
    for (int32_t i = 0; i < shape.copies[c]; ++i) {
      Copy& copy = copies_.emplace_back();
      copy.memory = static_cast<char*>(memory_.at(offset));
      copy.came = device.NewEvent();
      copy.left = device.NewEvent();
      in_->Record(*copy.left);
      classes.push_back(c);
      offset += sizes[c];
    }
  }
  for (size_t i = 0; i < copies_.size(); ++i) {
    free_[classes[i]].push_back(&copies_[i]);
  }
  return absl::OkStatus();
}

void StreamedWeights::Bring(size_t place, Stream& compute) {
  if (fetches_ == 0 || static_cast<int64_t>(place) == place_) return;
  place_ = static_cast<int64_t>(place);
  size_t passed = 0;
  for (bool here = false; !here; at_ = After(at_)) {
    DELINK_CHECK_LT(passed++, program_.instructions.size())
        << "layer " << place << " is not here";
    const Instruction& at = At(program_.instructions, at_);
    if (at.op == Op::kFetch) {
      Arrive(at.slab, compute);
    } else if (at.op == Op::kRelease) {
      Leave(at.slab, compute);
    } else {
      here = at.layer == static_cast<int32_t>(place);
    }
  }
  while (begun_.size() < fetches_ && Fetch()) {
  }
}

bool StreamedWeights::Fetch() {
  while (At(program_.instructions, ahead_).op != Op::kFetch) {
    ahead_ = After(ahead_);
  }
  const int32_t slab = At(program_.instructions, ahead_).slab;
  std::deque<Copy*>& free =
      At(free_, CopyClassOf(program_.shape, PlaneSet::kWeight, slab));
  if (free.empty()) return false;
  ahead_ = After(ahead_);
  auto chosen = std::find_if(free.begin(), free.end(), [&](const Copy* copy) {
    return copy->slab == slab;
  });
  const bool there = chosen != free.end();
  if (!there) chosen = free.begin();
  Copy* const copy = *chosen;
  free.erase(chosen);
  begun_.push_back(copy);
  if (there) return true;
  copy->slab = slab;
  Fill(*copy);
  return true;
}

void StreamedWeights::Fill(Copy& copy) {
  const int slab = SlabHere(store_, copy.slab);
  if (IsSharded(program_.shape, copy.slab)) {
    DELINK_CHECK(gathers_ != nullptr) << "weights are sharded";
    copy.gather = gathers_->Begin({.slab = slab,
                                   .copy = copy.memory,
                                   .left = copy.left.get(),
                                   .came = copy.came.get()});
    return;
  }
  in_->Wait(*copy.left);
  store_.device().CopyFromHost(*in_, copy.memory,
                               store_.home(slab, Plane::kWeight),
                               store_.bytes(slab, Plane::kWeight));
  in_->Record(*copy.came);
}

void StreamedWeights::Arrive(int32_t slab, Stream& compute) {
  if (begun_.empty()) DELINK_CHECK(Fetch()) << "no copy is free";
  Copy* const copy = begun_.front();
  begun_.pop_front();
  DELINK_CHECK_EQ(copy->slab, slab);
  if (copy->gather > 0) gathers_->Finish(copy->gather);
  compute.Wait(*copy->came);
  Redirect(slab, copy->memory);
  At(now_, slab) = copy;
}

void StreamedWeights::Leave(int32_t slab, Stream& compute) {
  Copy*& copy = At(now_, slab);
  compute.Record(*copy->left);
  At(free_, CopyClassOf(program_.shape, PlaneSet::kWeight, slab))
      .push_back(copy);
  Redirect(slab, nullptr);
  copy = nullptr;
}

void StreamedWeights::Redirect(int32_t slab, void* copy) {
  const int here = SlabHere(store_, slab);
  if (copy != nullptr && IsSharded(program_.shape, slab)) {
    store_.RedirectWhole(here, Plane::kWeight, copy);
  } else {
    store_.Redirect(here, Plane::kWeight, copy);
  }
}

}  // namespace delink
