// What visits are told of themselves: whether their forward runs again, and how
// many targets of their micro-batch count.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "framework/comm/self_communicator.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/norm.h"
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

// Takes memory in its first forward only.
class FickleBlock final : public Module {
 public:
  using Config = Norm::Config;
  FickleBlock(const Scope& s, const Config& c) : norm_(s / "norm", c) {}
  Var operator()(Var x) override {
    Tape& tape = x.tape();
    if (!tape.inputs().again) tape.Scratch({1}, x.dtype());
    return x + norm_(x);
  }

 private:
  Norm norm_;
};

TEST(VisitInputsDeathTest, AForwardThatRunsAgainAsksForTheSameMemory) {
  const auto build = [](const Scope& s, const GptConfig& c) {
    auto model = std::make_unique<Sequential>(s);
    model->Prologue<Embedding>("embed", {.vocab = c.vocab, .dim = c.dim});
    model->Block<FickleBlock>({.dim = c.dim});
    model->Epilogue<LmHead>({.dim = c.dim, .vocab = c.vocab});
    return model;
  };
  EXPECT_DEATH(
      {
        SelfCommunicator comm;
        StepRig(comm, "none", {.layers = 1, .tied = false, .build = build});
      },
      "blocks/0 asks for other memory or exchanges when its forward runs "
      "again");
}

}  // namespace
}  // namespace delink::testing::visit_inputs_test
