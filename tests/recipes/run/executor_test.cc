// The executor over a real model: what it allocates, and that lanes, order and
// recompute do not show.
#include "framework/step/engine/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "tests/framework/module/plain_values.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/testing/on_ranks.h"

namespace delink::testing::executor_test {
namespace {

constexpr double kLr = 1e-3;

class ExecutorTest
    : public ::testing::TestWithParam<std::tuple<const char*, StepNumbers>> {
 protected:
  // The options with the test's kind of model and numbers.
  static RigOptions Of(RigOptions options) {
    options.dtype = std::get<1>(GetParam()).dtype;
    options.bf16_gradients = std::get<1>(GetParam()).bf16_gradients;
    return OfKind(std::get<0>(GetParam()), options);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, ExecutorTest,
                         ::testing::Combine(::testing::ValuesIn(kModelKinds),
                                            ::testing::ValuesIn(kNumbers)));

// Of numbers whose gradients are bf16.
class Bf16GradientsExecutorTest : public ExecutorTest {};
INSTANTIATE_TEST_SUITE_P(Kinds, Bf16GradientsExecutorTest,
                         ::testing::Combine(::testing::ValuesIn(kModelKinds),
                                            ::testing::Values(StepNumbers{
                                                DType::kBF16, true})));

TEST_P(ExecutorTest, AllocatesTheAccountToTheByteAndNothingLater) {
  for (const bool recompute : {false, true}) {
    for (const MicroBatchOrder order :
         {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
      for (const std::string share : {"all", "none"}) {
        SelfCommunicator comm;
        StepRig rig(
            comm, share,
            Of({.recompute = recompute, .dropout = 0.1, .order = order}));
        EXPECT_EQ(rig.device().bytes_in_use(),
                  rig.executor().account().total());
        const int64_t allocations = rig.device().allocations();
        for (int64_t step = 1; step <= 3; ++step) {
          ASSERT_TRUE(
              rig.executor().TrainStep(rig.Batch(step), step, kLr).ok());
          ASSERT_TRUE(rig.executor().Evaluate(rig.Batch(step)).ok());
        }
        EXPECT_EQ(rig.device().allocations(), allocations);
      }
    }
  }
}

// Two bytes of every parameter, padding included, and of what ranks exchange
// and probes hold; nothing else takes more, but what the gradients of vectors
// are summed in.
TEST_P(Bf16GradientsExecutorTest, TakeHalfTheBytes) {
  OnRanks(2, [](Communicator& comm) {
    RigOptions options = Of({.probes = true});
    StepRig narrow(comm, "groups:2", options);
    options.bf16_gradients = false;
    StepRig wide(comm, "groups:2", options);
    const MemoryAccount a = narrow.executor().account();
    const MemoryAccount b = wide.executor().account();
    EXPECT_EQ(narrow.device().bytes_in_use(), a.total());
    EXPECT_GE(b.gradients, 4 * wide.store().unique_parameters());
    EXPECT_EQ(2 * a.gradients, b.gradients);
    EXPECT_EQ(2 * a.copies, b.copies);
    EXPECT_EQ(a.weights, b.weights);
    EXPECT_EQ(a.state, b.state);
    EXPECT_EQ(a.slots, b.slots);
    EXPECT_GE(a.workspace, b.workspace);
    EXPECT_LT(a.workspace - b.workspace, 8 * 4 * 3 * StepRig::kDim);
  });
}

// Where nothing is added up a gradient is what it is in f32, rounded once, and
// the forward pass has the same bits.
TEST_P(Bf16GradientsExecutorTest, AreThoseOfF32Rounded) {
  SelfCommunicator comm;
  RigOptions options = Of({.micro_batch = 2, .global_batch = 2, .tied = false});
  StepRig narrow(comm, "none", options);
  options.bf16_gradients = false;
  StepRig wide(comm, "none", options);
  const HostBatch batch = wide.Batch(1);
  const StepResult a = *narrow.executor().TrainStep(batch, 1, 0);
  const StepResult b = *wide.executor().TrainStep(batch, 1, 0);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_NE(a.grad_norm, b.grad_norm);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 0x1p-8 * b.grad_norm);
  for (const std::string& name : wide.Tensors()) {
    const std::vector<float> g = narrow.Gradient(name);
    const std::vector<float> exact = wide.Gradient(name);
    const float largest = std::abs(*std::max_element(
        exact.begin(), exact.end(),
        [](float x, float y) { return std::abs(x) < std::abs(y); }));
    for (size_t i = 0; i < g.size(); ++i) {
      // Half a unit of bf16, and f32's rounding of sums in another order.
      ASSERT_NEAR(g[i], exact[i],
                  0x1p-8 * std::abs(exact[i]) + 1e-5 * largest + 1e-7)
          << name << " " << i;
    }
  }
}

// Which document a token is of takes four bytes a token.
TEST_P(ExecutorTest, MaskedDocumentsAreInTheAccount) {
  SelfCommunicator comm;
  StepRig packed(comm, "none", Of({}));
  StepRig kept(comm, "none", Of({.masked = true}));
  EXPECT_EQ(kept.executor().account().records,
            packed.executor().account().records +
                AlignUp(8 * StepRig::kSeq * SizeOf(DType::kI32)));
  const HostBatch batch = kept.Batch(1);
  const LossRecord loss = *kept.executor().Evaluate(batch);
  const StepResult result = *kept.executor().TrainStep(batch, 1, kLr);
  EXPECT_EQ(result.tokens, loss.tokens);
  EXPECT_EQ(result.loss, loss.loss_sum / static_cast<double>(loss.tokens));
  EXPECT_NE(packed.executor().TrainStep(packed.Batch(1), 1, kLr)->loss,
            result.loss);
}

// The basic plan, but of the blocks only odd layers recompute.
Program PlanOddRecompute(PassKind kind, const ProgramShape& shape,
                         int32_t stage) {
  Program program = BasicPlanner({.recompute = true})(kind, shape, stage);
  for (Instruction& at : program.instructions) {
    if (at.layer % 2 == 0) at.flags &= ~kRecompute;
  }
  return program;
}

// What recomputes the program says, visit by visit. Of blocks that the
// executor is told of, inputs alone take room.
TEST_P(ExecutorTest, SomeBlocksMayRecompute) {
  SelfCommunicator comm;
  const RigOptions options = Of({.probes = true, .dropout = 0.1});
  StepRig kept(comm, "all", options), rig(comm, "all", options);
  RigOptions all = options;
  all.recompute = true;
  StepRig recomputed(comm, "all", all);
  const std::unique_ptr<Executor> some = *rig.NewExecutor(PlanOddRecompute);
  StepRig other(comm, "all", options);
  std::vector<bool> odd(static_cast<size_t>(some->program().shape.layers));
  for (size_t layer = 1; layer + 1 < odd.size(); layer += 2) odd[layer] = true;
  const std::unique_ptr<Executor> told =
      *other.NewExecutor(BasicPlanner({}), odd);
  const auto saved = [](const Executor& executor) {
    return executor.account().slots;
  };
  EXPECT_EQ(saved(*some), saved(kept.executor()));
  EXPECT_LT(saved(recomputed.executor()), saved(*some));
  EXPECT_LT(saved(*told), saved(*some));
  EXPECT_LT(saved(recomputed.executor()), saved(*told));
  EXPECT_EQ(told->flops_per_micro_batch(), some->flops_per_micro_batch());
  EXPECT_EQ(other.device().bytes_in_use() - rig.device().bytes_in_use(),
            saved(*told) - saved(*some));
  const double blocks = recomputed.executor().flops_per_micro_batch() -
                        kept.executor().flops_per_micro_batch();
  EXPECT_EQ(some->flops_per_micro_batch(),
            kept.executor().flops_per_micro_batch() + blocks / 2);
  for (int64_t step = 1; step <= 3; ++step) {
    const HostBatch batch = kept.Batch(step);
    const double loss = kept.executor().TrainStep(batch, step, kLr)->loss;
    EXPECT_EQ(some->TrainStep(batch, step, kLr)->loss, loss);
    EXPECT_EQ(told->TrainStep(batch, step, kLr)->loss, loss);
    const auto probed = *some->Probe(batch, step);
    const auto expected = *kept.executor().Probe(batch, step);
    EXPECT_GT(Sum(expected).apart, 0);
    EXPECT_EQ(Sum(probed).apart, Sum(expected).apart);
    EXPECT_EQ(Sum(probed).together, Sum(expected).together);
  }
  ASSERT_TRUE(some->Drain().ok() && told->Drain().ok());
  for (const std::string& name : kept.Tensors()) {
    EXPECT_EQ(rig.Master(name), kept.Master(name)) << name;
    EXPECT_EQ(other.Master(name), kept.Master(name)) << name;
  }
}

// Matrix products and attention, the pairs that a window leaves out not
// counted; backward is twice the work of forward.
TEST(Executor, FlopsOfALlama) {
  constexpr double kTokens = 2 * StepRig::kSeq;
  constexpr int64_t kHeadDim = 10, kWindow = 5;
  // Of two sequences: 1 + 2 + ... + 5, then 5 for each of 7.
  constexpr double kPairs = 2 * (15 + 7 * 5);
  for (const bool recompute : {false, true}) {
    SelfCommunicator comm;
    RigOptions options = OfKind("llama", {.recompute = recompute});
    options.llama->head_dim = kHeadDim;
    options.llama->window = kWindow;
    StepRig rig(comm, "none", options);
    double weights = 0, head = 0;
    for (const LogicalTensor& t : rig.store().layout().tensors()) {
      if (t.shape.rank() != 2) continue;
      const auto n = static_cast<double>(t.shape.elements());
      if (t.name.starts_with("blocks/")) weights += n;
      if (t.name == "head/weight") head += n;
    }
    const double blocks =
        2 * weights * kTokens + static_cast<double>(options.layers) * 4 *
                                    kPairs * StepRig::kHeads * kHeadDim;
    const double expected =
        (recompute ? 4 : 3) * blocks + 3 * 2 * head * kTokens;
    EXPECT_EQ(rig.executor().flops_per_micro_batch(), expected);
  }
}

TEST_P(ExecutorTest, TrainingLossIsTheLossOfTheBatch) {
  SelfCommunicator comm;
  StepRig rig(comm, "all", Of({}));
  const HostBatch batch = rig.Batch(1);
  const LossRecord before = *rig.executor().Evaluate(batch);
  const StepResult result = *rig.executor().TrainStep(batch, 1, kLr);
  EXPECT_EQ(result.tokens, before.tokens);
  EXPECT_EQ(result.loss, before.loss_sum / static_cast<double>(before.tokens));
  const LossRecord after = *rig.executor().Evaluate(batch);
  EXPECT_LT(after.loss_sum, before.loss_sum);
}

// Each rank's program is valid by itself.
TEST(Executor, RanksWhoseProgramsDifferAreToldSo) {
  OnRanks(3, [](Communicator& comm) {
    StepRig rig(comm, "all", {.micro_batch = 1, .global_batch = 6});
    const auto executor =
        rig.NewExecutor(BasicPlanner({.recompute = comm.rank() == 1}));
    EXPECT_FALSE(executor.ok());
    const std::string told(executor.status().message());
    EXPECT_NE(told.find("rank 1: "), std::string::npos) << told;
    EXPECT_NE(told.find("'F(1,a)r"), std::string::npos) << told;
  });
}

// What two ranks under ZeRO-1 are told of programs whose step is damaged.
std::string TellsOfStep(const std::function<void(Program*)>& damage) {
  std::string told[2];
  const absl::Status status = RunRanks(2, [&](Communicator& comm) {
    StepRig rig(comm, "all", {.micro_batch = 1, .zero = 1});
    const auto executor = rig.NewExecutor(
        [&](PassKind kind, const ProgramShape& shape, int32_t stage) {
          Program program = BasicPlanner({})(kind, shape, stage);
          if (kind == PassKind::kStep) damage(&program);
          return program;
        });
    told[comm.rank()] = std::string(executor.status().message());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
  EXPECT_EQ(told[0], told[1]);
  return told[0];
}

Instruction& First(Program* program, Op op) {
  return *std::find_if(program->instructions.begin(),
                       program->instructions.end(),
                       [op](const Instruction& at) { return at.op == op; });
}

// Each program is valid.
TEST(Executor, WhatTheEngineCannotRunIsRefused) {
  using ::testing::HasSubstr;
  EXPECT_EQ(TellsOfStep([](Program*) {}), "");
  EXPECT_THAT(TellsOfStep([](Program* step) {
                First(step, Op::kGather).lane = Lane::kIn;
              }),
              HasSubstr("Gather(0): it does that in the network lane, not in "
                        "the in lane"));
  EXPECT_THAT(TellsOfStep([](Program* step) {
                for (Instruction& at : step->instructions) {
                  if (at.op == Op::kReduce) at.lane = Lane::kCompute;
                }
              }),
              HasSubstr("it does that in the network lane, not in the compute "
                        "lane"));
  EXPECT_THAT(TellsOfStep([](Program* step) {
                First(step, Op::kNorm).lane = Lane::kNetwork;
              }),
              HasSubstr("Norm: it does that in the compute lane, not in the "
                        "network lane"));
  EXPECT_THAT(TellsOfStep([](Program* step) {
                step->instructions.push_back({.op = Op::kSave, .slab = 0});
              }),
              HasSubstr("the engine cannot run a step: instruction "));
}

// A step that gathers late is right in itself, but what comes between two steps
// would read the weights from before the update.
TEST(Executor, LateGathersAreRefused) {
  EXPECT_THAT(
      TellsOfStep([](Program* step) {
        std::vector<Instruction>& list = step->instructions;
        std::stable_partition(
            list.begin(), list.end(),
            [](const Instruction& at) { return at.op == Op::kGather; });
      }),
      ::testing::HasSubstr("instruction 0, Gather(0): the passes before "
                           "it leave the weights whole"));
}

TEST(Executor, AProgramOfAnotherShapeIsRefused) {
  SelfCommunicator comm;
  StepRig rig(comm, "all", {});
  const auto of = [&](PassKind which, int32_t more, bool gathers) {
    const auto executor =
        rig.NewExecutor([&](PassKind kind, ProgramShape shape, int32_t stage) {
          if (kind == which) shape.micro_batches += more;
          if (kind == which && gathers) shape.gathers.flip();
          return BasicPlanner({})(kind, shape, stage);
        });
    return std::string(executor.status().message());
  };
  EXPECT_EQ(of(PassKind::kStep, 0, false), "");
  for (const PassKind kind : {PassKind::kStep, PassKind::kEvaluation}) {
    const std::string told =
        absl::StrCat("the program of ", ToString(kind),
                     " is of another shape than was asked for");
    EXPECT_THAT(of(kind, 1, false), ::testing::HasSubstr(told));
    EXPECT_THAT(of(kind, -1, false), ::testing::HasSubstr(told));
    EXPECT_THAT(of(kind, 0, true), ::testing::HasSubstr(told));
  }
}

// Sets the first element of a tensor; returns what it was.
float Exchange(StepRig& rig, const std::string& tensor, float value) {
  const float before = rig.Master(tensor)[0];
  for (const LogicalTensor& t : rig.store().layout().tensors()) {
    if (t.name != tensor) continue;
    testing::SetParameters(rig.store(), *rig.device().NewStream(), t.slab,
                           t.offset, 1, &value);
  }
  return before;
}

TEST_P(ExecutorTest, ANonFiniteStepChangesNothingAndIsNamed) {
  SelfCommunicator comm;
  StepRig rig(comm, "none", Of({})), other(comm, "none", Of({}));
  for (StepRig* one : {&rig, &other}) {
    EXPECT_FALSE(one->executor().TrainStep(one->Batch(0), 1, kLr)->skipped);
  }
  // A weight beyond any float: infinity in the output of blocks/2.
  const std::string bad = "blocks/2/mlp/down/weight";
  const float value =
      Exchange(rig, bad, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(rig.executor().TrainStep(rig.Batch(1), 2, kLr)->skipped);
  const std::string where = *rig.executor().Diagnose(rig.Batch(1), 2);
  EXPECT_NE(where.find("blocks/2"), std::string::npos) << where;
  EXPECT_NE(where.find("rank 0"), std::string::npos) << where;
  // As if there had been no such step, there and from there on.
  Exchange(rig, bad, value);
  for (const int64_t step : {2, 3}) {
    EXPECT_EQ(rig.store().updates(), other.store().updates());
    for (const std::string& name : rig.Tensors()) {
      EXPECT_EQ(rig.Weight(name), other.Weight(name)) << name;
      EXPECT_EQ(rig.Master(name), other.Master(name)) << name;
      EXPECT_EQ(rig.Moment(name, 0), other.Moment(name, 0)) << name;
      EXPECT_EQ(rig.Moment(name, 1), other.Moment(name, 1)) << name;
    }
    for (StepRig* one : {&rig, &other}) {
      EXPECT_FALSE(
          one->executor().TrainStep(one->Batch(2), step + 1, kLr)->skipped);
    }
  }
}

// Whatever a stage asks in between, steps are those of a run without it, and
// the lane's thread takes all passes in turn.
TEST_P(ExecutorTest, PassesInTurnAreBitEqual) {
  OnRanks(2, [](Communicator& comm) {
    RigOptions options = Of({.micro_batch = 1, .zero = 1});
    options.lane_threads = options.probes = true;
    options.dropout = 0.1;
    StepRig alone(comm, "groups:2", options), rig(comm, "groups:2", options);
    Executor& executor = rig.executor();
    for (int64_t step = 1; step <= 6; ++step) {
      const HostBatch batch = rig.Batch(step);
      EXPECT_EQ(executor.TrainStep(batch, step, kLr)->loss,
                alone.executor().TrainStep(batch, step, kLr)->loss);
      if (step % 2 == 0) {
        EXPECT_TRUE(executor.Gradients(batch, step).ok());
      }
      if (step % 3 == 0) {
        EXPECT_TRUE(executor.Probe(batch, step).ok());
      }
      if (step != 4) {
        EXPECT_TRUE(executor.Evaluate(batch).ok());
      }
      if (step == 5) {
        EXPECT_TRUE(executor.Diagnose(batch, step).ok());
      }
    }
    for (const std::string& name : rig.Tensors()) {
      EXPECT_EQ(rig.Weight(name), alone.Weight(name)) << name;
    }
  });
}

}  // namespace
}  // namespace delink::testing::executor_test
