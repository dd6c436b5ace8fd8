// Blocks of gpt and llama whose backward runs in two halves, between which all
// other blocks have theirs: the same bits as those of whole backwards, in the
// types of runs.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/step/dependencies.h"
#include "framework/step/layout_shape.h"
#include "framework/step/measure.h"
#include "framework/step/memory.h"
#include "framework/step/pass.h"
#include "framework/step/plan/basic.h"
#include "layers/ops/accumulate.h"
#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"
#include "tests/testing/gradcheck.h"

namespace delink {
namespace {

using testing::MemoryMode;
using testing::ModelRunner;

constexpr int64_t kTokens = 12, kVocab = 50, kDim = 32, kFfn = 72;

GptConfig Gpt() {
  GptConfig c;
  c.layers = 3;
  c.vocab = kVocab;
  c.max_seq = kTokens;
  c.dim = kDim;
  c.heads = 4;
  c.kv_heads = 4;
  c.ffn = kFfn;
  c.dropout = 0.1;
  return c;
}

LlamaConfig Llama() {
  LlamaConfig c;
  c.layers = 3;
  c.vocab = kVocab;
  c.max_seq = kTokens;
  c.dim = kDim;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.ffn = kFfn;
  c.qk_norm = true;
  return c;
}

struct Family {
  std::string name;
  ModelRunner::Build build;
};

std::vector<Family> Families() {
  return {
      {"gpt", [](const Scope& s) { return BuildGpt(s, Gpt()); }},
      {"llama", [](const Scope& s) { return BuildLlama(s, Llama()); }},
  };
}

struct Types {
  DType dtype;
  bool bf16_gradients;
};

// All gradients after two micro-batches.
std::vector<std::string> GradientBytes(ModelRunner& model) {
  model.Gradients(2);
  std::vector<std::string> bytes;
  const int slabs = static_cast<int>(model.store().slabs().size());
  for (int s = 0; s < slabs; ++s) {
    bytes.emplace_back(
        static_cast<const char*>(model.store().at(s, Plane::kGradient, 0)),
        static_cast<size_t>(model.store().bytes(s, Plane::kGradient)));
  }
  return bytes;
}

TEST(Halves, GiveTheBitsOfTheWhole) {
  const ModelRunner::Batch batch = testing::RandomBatch(2, kTokens, kVocab, 5);
  for (const Family& family : Families()) {
    for (const Types types :
         {Types{DType::kF32, false}, Types{DType::kBF16, false},
          Types{DType::kBF16, true}}) {
      for (const bool recompute : {false, true}) {
        for (const bool remake : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << family.name << " " << ToString(types.dtype)
                       << (types.bf16_gradients ? ", bf16 gradients" : "")
                       << (recompute ? ", recompute" : "")
                       << (remake ? ", remake" : ""));
          ModelRunner::Options options{.dtype = types.dtype,
                                       .memory = MemoryMode::kPlanned,
                                       .recompute = recompute,
                                       .remake = remake,
                                       .bf16_gradients = types.bf16_gradients};
          ModelRunner whole(family.build, batch, options);
          options.halves = true;
          ModelRunner halves(family.build, batch, options);
          EXPECT_EQ(GradientBytes(halves), GradientBytes(whole));
        }
      }
    }
  }
}

// What a visit keeps between its halves is what products and norms have as
// gradients of their outputs.
TEST(Halves, KeepTheGradientsThatWeightsRead) {
  const int64_t rows = 2 * kTokens;
  // Norms and what is added to the stream; queries, keys and values; MLP.
  const std::vector<int64_t> kept = {
      rows * (4 * kDim + 3 * kDim + kFfn),
      // Norms of queries and keys are over queries, keys and values.
      rows * (4 * kDim + 2 * (2 * kDim) + 2 * kFfn)};
  for (size_t i = 0; i < kept.size(); ++i) {
    const Family family = Families()[i];
    SCOPED_TRACE(family.name);
    const std::unique_ptr<Device> device = NewMetaDevice();
    ParamRegistry registry;
    const auto model = family.build(Scope(registry, DType::kF32));
    const auto store = ParamStore::Create(
        *device, Layout::Create(registry, model->blocks(), {}, {}), 0,
        {.dtype = DType::kF32, .states = {}, .master = MasterForm::kNone});
    ASSERT_TRUE(store.ok());
    const BatchShape batch{.micro_batch = 2, .seq = kTokens};
    const std::vector<LayerPlan> plans =
        MeasureLayers(*model, **store, batch, Accumulate);
    const LayerPlan& block = plans[1];
    EXPECT_EQ(At(block.visits, Phase::kBackwardInput).slot_bytes,
              kept[i] * SizeOf(DType::kF32));
    EXPECT_GT(At(block.visits, Phase::kBackwardWeight).placements.size(), 0U);
    // Forward and each half have the same products, but for attention's.
    EXPECT_GT(block.weight_flops, 0);
    EXPECT_LT(block.weight_flops, block.flops);
    EXPECT_EQ(block.backward_flops, 2 * block.flops);
    // Programs of whole backwards take nothing for it.
    std::vector<LayerPlan> more = plans;
    for (const Phase half : {Phase::kBackwardInput, Phase::kBackwardWeight}) {
      At(more[1].visits, half) = {.slot_bytes = int64_t{1} << 40,
                                  .workspace_bytes = int64_t{1} << 40};
    }
    ProgramShape shape = ShapeOf(store->get()->layout(), 1);
    shape.slot_class = SlotClasses(plans);
    Pass pass{.program = PlanStep(shape, {})};
    pass.analysis = AnalyzeProgram(pass.program);
    Passes passes;
    passes.emplace(PassKind::kStep, std::move(pass));
    const auto account = [&](const std::vector<LayerPlan>& of) {
      return AccountOf(**store, SizeStep(**store, of, batch, passes));
    };
    EXPECT_GT(account(plans).slots, 0);
    EXPECT_EQ(ToString(account(more)), ToString(account(plans)));
    for (const LayerPlan& end : {plans.front(), plans.back()}) {
      EXPECT_TRUE(At(end.visits, Phase::kBackwardInput).placements.empty());
    }
  }
}

}  // namespace
}  // namespace delink
