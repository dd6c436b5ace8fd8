#include "tests/recipes/run/bad_token.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/moe.h"
#include "layers/ops/add.h"
#include "tests/framework/module/plain_values.h"

namespace delink::testing {
namespace {

class UnnormedBlock final : public Module {
 public:
  using Config = Moe::Config;
  UnnormedBlock(const Scope& s, const Config& c) : moe_(s / "moe", c) {}
  Var operator()(Var x) override { return x + moe_(x); }

 private:
  Moe moe_;
};

// Sets the first element of a tensor in the weights that this rank has.
void SetFirst(StepRig& rig, const std::string& name, double value) {
  ParamStore& store = rig.store();
  const auto stream = store.device().NewStream();
  for (const LogicalTensor& t : store.layout().tensors()) {
    if (t.name != name) continue;
    for (const int slab : store.LocalSlabsOf(t.slab)) {
      for (size_t p = 0; p < store.local(slab).params.size(); ++p) {
        if (store.local(slab).params[p] != t.param) continue;
        const auto narrow = static_cast<float>(value);
        const bool wide = store.dtype(slab, Plane::kWeight) == DType::kF64;
        SetParameters(store, *stream, slab, store.slab(slab).params[p].offset,
                      1, wide ? static_cast<const void*>(&value) : &narrow);
      }
    }
  }
}

}  // namespace

std::unique_ptr<Sequential> BuildUnnormed(const Scope& s, const GptConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<Embedding>("embed", {.vocab = c.vocab, .dim = c.dim});
  for (int64_t i = 0; i < c.layers; ++i) {
    // With a sigmoid an infinite logit alone would make a finite gate.
    model->Block<UnnormedBlock>(
        {.dim = c.dim,
         .experts = 4,
         .hidden = 8,
         .route = {.top_k = 2, .form = {.sigmoid = true}}});
  }
  model->Epilogue<LmHead>({.dim = c.dim, .vocab = c.vocab});
  return model;
}

absl::StatusOr<std::string> DiagnoseBadToken(Communicator& world,
                                             RigOptions options,
                                             const BadToken& at) {
  options.build = BuildUnnormed;
  StepRig rig(world, "none", options);
  const MeshPlace place = rig.store().layout().mesh().PlaceOf(world.rank());
  HostBatch batch = rig.Batch(1);
  // Token 0 is nowhere else; other tokens have small elements there.
  for (int32_t& token : batch.inputs) token = std::max(token, 1);
  if (place[Axis::kData] == at.data) {
    const int64_t row = at.micro_batch * options.micro_batch + at.sequence;
    batch.inputs[static_cast<size_t>(row * StepRig::kSeq + at.token)] = 0;
  }
  // Of a table whose rows are cut, the first ranks have the first.
  if (place[Axis::kTensor] == 0) SetFirst(rig, "embed/token/weight", 1000);
  SetFirst(rig, "blocks/2/moe/router/weight",
           (options.dtype == DType::kF64
                ? std::numeric_limits<double>::max()
                : double{std::numeric_limits<float>::max()}) /
               8);
  EXPECT_TRUE(rig.executor().TrainStep(batch, 1, 1e-3)->skipped);
  return rig.executor().Diagnose(batch, 1);
}

}  // namespace delink::testing
