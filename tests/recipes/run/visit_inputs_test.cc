// What visits are told of themselves: whether their forward runs again, and how
// many targets of their micro-batch count.
#include <gtest/gtest.h>

#include <cstdint>

#include "framework/step/plan/measure.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/norm.h"
#include "layers/ops/accumulate.h"
#include "layers/ops/add.h"
#include "tests/recipes/run/visit_notes.h"

namespace delink::testing::visit_inputs_test {
namespace {

constexpr MicroBatchOrder kLayerMajor = MicroBatchOrder::kLayerMajor;

const NotedCase kCases[] = {
    {},
    {.options = {.recompute = true}},
    {.options = {.recompute = true, .order = kLayerMajor}},
    {.again = {0, 2}},
    {.options = {.recompute = true, .order = kLayerMajor}, .stores = true},
    {.options = {.order = kLayerMajor}, .again = {1, 3}, .stores = true},
    {.data = 2, .options = {.recompute = true, .zero = 1}},
    {.options = {.context = 2}},
    {.options = {.recompute = true, .masked = true, .context = 2}},
    {.options = {.tensor = 2}},
    {.options = {.recompute = true, .tensor = 2, .sequence = true}},
    {.data = 2, .options = {.tensor = 2, .context = 2}},
    {.options = {.pipeline = 2}},
    {.options = {.recompute = true, .lane_threads = true, .pipeline = 2}},
    {.options = {.recompute = true, .pipeline = 2, .turns = 2}},
    {.options = {.recompute = true, .pipeline = 2, .halves = true}},
    {.options = {.pipeline = 3, .halves = true}},
    {.data = 2, .options = {.recompute = true, .context = 2, .pipeline = 2}},
};

class VisitInputsTest : public ::testing::TestWithParam<NotedCase> {};
INSTANTIATE_TEST_SUITE_P(Rows, VisitInputsTest, ::testing::ValuesIn(kCases));

TEST_P(VisitInputsTest, AreTrue) { ExpectVisitsToldTruly(GetParam()); }

// Takes memory, or exchanges, in its first forward only.
class FickleBlock final : public Module {
 public:
  struct Config {
    int64_t dim = 0;
    bool exchanges = false;
  };
  FickleBlock(const Scope& s, const Config& c)
      : exchanges_(c.exchanges), norm_(s / "norm", {.dim = c.dim}) {}
  Var operator()(Var x) override {
    Tape& tape = x.tape();
    const Var y = x + norm_(x);
    if (tape.inputs().again) return y;
    if (exchanges_) {
      tape.groups().tensor->AllReduce(y.data(), 1, y.dtype(),
                                      VisitGroup::Reduction::kSum);
    } else {
      tape.Scratch({1}, y.dtype());
    }
    return y;
  }

 private:
  const bool exchanges_;
  Norm norm_;
};

TEST(VisitInputsDeathTest, AForwardThatRunsAgainAsksForTheSame) {
  for (const bool exchanges : {false, true}) {
    ParamRegistry registry;
    Sequential model{Scope(registry)};
    constexpr int64_t kDim = 8, kVocab = 6;
    model.Prologue<Embedding>("embed", {.vocab = kVocab, .dim = kDim});
    model.Block<FickleBlock>({.dim = kDim, .exchanges = exchanges});
    model.Epilogue<LmHead>({.dim = kDim, .vocab = kVocab});
    EXPECT_DEATH(MeasureLayers(model, registry,
                               {.batch = {.micro_batch = 2, .seq = 4},
                                .accumulate = Accumulate,
                                .mesh = {.tensor = 2}}),
                 "blocks/0 asks for other memory or exchanges when its forward "
                 "runs again");
  }
}

}  // namespace
}  // namespace delink::testing::visit_inputs_test
