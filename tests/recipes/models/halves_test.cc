// Blocks of gpt and llama whose backward runs in two halves, between which all
// other blocks have theirs: the same bits as those of whole backwards, in the
// types of runs.
#include "tests/testing/halves.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/step/plan/assemble.h"
#include "framework/step/plan/basic.h"
#include "framework/step/plan/layout_shape.h"
#include "framework/step/plan/measure.h"
#include "framework/step/plan/memory.h"
#include "framework/step/program/dependencies.h"
#include "framework/step/program/pass.h"
#include "layers/ops/accumulate.h"
#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"
#include "tests/recipes/models/model_checks.h"
#include "tests/testing/gradcheck.h"

namespace delink::halves_test {
namespace {

using testing::MemoryMode;
using testing::ModelRunner;

constexpr int64_t kTokens = 12, kVocab = 50, kDim = 32, kFfn = 72;

GptConfig Gpt() {
  auto c = testing::Sized<GptConfig>({.layers = 3,
                                      .vocab = kVocab,
                                      .max_seq = kTokens,
                                      .dim = kDim,
                                      .ffn = kFfn});
  c.dropout = 0.1;
  return c;
}

LlamaConfig Llama() {
  auto c = testing::Sized<LlamaConfig>({.layers = 3,
                                        .vocab = kVocab,
                                        .max_seq = kTokens,
                                        .dim = kDim,
                                        .kv_heads = 2,
                                        .ffn = kFfn});
  c.head_dim = 8;
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

constexpr BatchShape kBatch{.micro_batch = 2, .seq = kTokens};

// What a model's visits need, and its steps.
struct Measured {
  explicit Measured(const Family& family)
      : device(NewMetaDevice()),
        model(family.build(Scope(registry, DType::kF32))),
        store(*ParamStore::Create(
            *device, Layout::Create(registry, model->blocks(), {}, {}), 0,
            {.dtype = DType::kF32, .states = {}, .master = MasterForm::kNone})),
        plans(MeasureLayers(*model, *store, kBatch, Accumulate)) {}

  // Of steps of two micro-batches, of layers that need what `of` says.
  StepMemory MemoryOf(const Planner& planner,
                      const std::vector<LayerPlan>& of) const {
    ProgramShape shape = ShapeOf(store->layout(), 2);
    shape.slot_class = SlotClasses(plans);
    Pass pass{.program = planner(PassKind::kStep, shape, 0)};
    pass.analysis = AnalyzeProgram(pass.program);
    Passes passes;
    passes.emplace(PassKind::kStep, std::move(pass));
    return SizeStep(*store, of, kBatch, passes);
  }
  std::string AccountTextOf(const Planner& planner,
                            const std::vector<LayerPlan>& of) const {
    return ToString(AccountOf(*store, MemoryOf(planner, of)));
  }

  std::unique_ptr<Device> device;
  ParamRegistry registry;
  std::unique_ptr<Sequential> model;
  std::unique_ptr<ParamStore> store;
  std::vector<LayerPlan> plans;
};

// Of a block: more of what some phases take than there is memory.
std::vector<LayerPlan> WithHuge(std::vector<LayerPlan> plans,
                                std::initializer_list<Phase> phases) {
  for (const Phase phase : phases) {
    At(plans[1].visits, phase) = {.slot_bytes = int64_t{1} << 40,
                                  .workspace_bytes = int64_t{1} << 40};
  }
  return plans;
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
    const Measured measured(family);
    const std::vector<LayerPlan>& plans = measured.plans;
    const LayerPlan& block = plans[1];
    EXPECT_EQ(At(block.visits, Phase::kBackwardInput).slot_bytes,
              kept[i] * SizeOf(DType::kF32));
    EXPECT_GT(At(block.visits, Phase::kBackwardWeight).placements.size(), 0U);
    // Forward and each half have the same products, but for attention's.
    EXPECT_GT(block.weight_flops, 0);
    EXPECT_LT(block.weight_flops, block.flops);
    EXPECT_EQ(block.backward_flops, 2 * block.flops);
    for (const LayerPlan& end : {plans.front(), plans.back()}) {
      EXPECT_TRUE(At(end.visits, Phase::kBackwardInput).placements.empty());
    }
    // Programs of whole backwards take nothing for it.
    const Planner whole = BasicPlanner({});
    EXPECT_GT(measured.MemoryOf(whole, plans).slot_bytes(), 0);
    EXPECT_EQ(measured.MemoryOf(whole, plans).held[1].slots, 0);
    EXPECT_EQ(measured.AccountTextOf(whole,
                                     WithHuge(plans, {Phase::kBackwardInput,
                                                      Phase::kBackwardWeight})),
              measured.AccountTextOf(whole, plans));
  }
}

// Programs of halves have room for what is held, and none for whole backwards.
TEST(Halves, TakeRoomForWhatTheyHold) {
  for (const Family& family : Families()) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(family.name + (recompute ? ", recompute" : ""));
      const Measured measured(family);
      const Planner halves = PlannerOf(testing::HalvesBehind(1), recompute);
      const LayerPlan& block = measured.plans[1];
      const int64_t saved = At(block.visits, Phase::kRecord).slot_bytes;
      const int64_t gradients =
          At(block.visits, Phase::kBackwardInput).slot_bytes;
      const StepMemory memory = measured.MemoryOf(halves, measured.plans);
      EXPECT_EQ(memory.pools[1].slots, 6);
      EXPECT_EQ(memory.pools[1].bytes,
                memory.boundary_bytes + (recompute ? 0 : saved));
      EXPECT_EQ(memory.held[1].slots, 6);
      EXPECT_EQ(memory.held[1].bytes, gradients + (recompute ? saved : 0));
      EXPECT_EQ(memory.slot_bytes(),
                memory.SlotOffset(3) + 6 * memory.held[1].bytes);
      EXPECT_EQ(measured.AccountTextOf(
                    halves, WithHuge(measured.plans, {Phase::kBackward})),
                measured.AccountTextOf(halves, measured.plans));
      for (const Phase half : {Phase::kBackwardInput, Phase::kBackwardWeight}) {
        EXPECT_GE(measured.MemoryOf(halves, WithHuge(measured.plans, {half}))
                      .workspace,
                  int64_t{1} << 40);
      }
    }
  }
}

// Both halves are the whole, whatever is made again with the first.
TEST(Halves, HaveTheWorkOfTheWhole) {
  const Measured measured(Families()[0]);
  const LayerPlan& block = measured.plans[1];
  for (const uint8_t flags : {uint8_t{0}, uint8_t{kRecompute}}) {
    const VisitFlops whole =
        FlopsOf(block, {.op = Op::kBackward, .flags = flags});
    const VisitFlops first =
        FlopsOf(block, {.op = Op::kBackwardInput, .flags = flags});
    const VisitFlops second = FlopsOf(block, {.op = Op::kBackwardWeight});
    EXPECT_EQ(first.forward + second.forward, 0);
    EXPECT_EQ(second.backward, block.weight_flops);
    EXPECT_EQ(first.backward + second.backward, whole.backward);
    EXPECT_EQ(first.recompute, whole.recompute);
    EXPECT_EQ(second.recompute, 0);
  }
}

}  // namespace
}  // namespace delink::halves_test
