// Steps at the rates of a machine, reckoned by hand.
#include "offload/plan/foreseen_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/optim/adamw.h"
#include "framework/sharing/resolve.h"
#include "framework/sharing/share_spec.h"
#include "framework/step/plan/basic.h"
#include "framework/step/plan/layout_shape.h"
#include "framework/step/plan/recompute.h"
#include "layers/ops/accumulate.h"
#include "offload/plan/residency.h"
#include "offload/plan/stored_slots.h"
#include "recipes/models/gpt.h"

namespace delink::foreseen_step_test {
namespace {

// All different, so that none is taken for another.
constexpr offload::StepRates kRates{.flops = 1e9,
                                    .to_device = 2e6,
                                    .to_host = 3e6,
                                    .host_memory = 5e6,
                                    .device_memory = 7e6};
constexpr int32_t kMicroBatches = 2;
constexpr BatchShape kBatch{.micro_batch = 2, .seq = 4};

// A step of a gpt of four blocks of which all is at home on the host.
class ForeseenStepTest : public ::testing::Test {
 protected:
  ForeseenStepTest() {
    GptConfig c;
    c.layers = 4;
    c.dim = 8;
    c.heads = c.kv_heads = 2;
    c.ffn = 32;
    c.vocab = 11;
    c.max_seq = 4;
    model_ = BuildGpt(Scope(registry_, DType::kF32), c);
    adamw_ = NewAdamW({});
  }

  void Make(const SlabTiers& tiers, const std::vector<bool>& recompute = {},
            bool late = false) {
    const Layout bare =
        Layout::Create(registry_, model_->blocks(),
                       *ResolveSharing(*ParseShareSpec("none"), registry_,
                                       model_->blocks(), {}),
                       {});
    const Layout layout =
        bare.WithTiers(std::vector<SlabTiers>(bare.slabs().size(), tiers));
    store_ =
        *ParamStore::Create(*device_, layout, 0, {.states = adamw_->states()});
    layers_ = MeasureLayers(*model_, *store_, kBatch, Accumulate);
    ProgramShape shape = ShapeOf(layout, kMicroBatches, 1, late);
    shape.slot_class = SlotClasses(layers_, recompute);
    if (late) shape.late_updates = LateUpdatesOf(shape, *adamw_);
    const Planner planner = WithResidency(
        WithStores(WithRecompute(BasicPlanner({}), recompute),
                   {.layers = {false, true, true, true, true, false}}));
    Pass pass{.program = planner(PassKind::kStep, shape, 0)};
    pass.analysis = AnalyzeProgram(pass.program);
    program_ = pass.program;
    Passes passes;
    passes.emplace(PassKind::kStep, std::move(pass));
    memory_ = SizeStep(*store_, layers_, kBatch, passes);
    seconds_ = SecondsOf({.program = program_,
                          .store = *store_,
                          .memory = memory_,
                          .layers = layers_,
                          .rates = rates_});
  }

  void ExpectLateUpdatesHide(const SlabTiers& tiers);
  double Bytes(const Instruction& at) const {
    double bytes = 0;
    for (const Plane plane : PlanesOf(*store_, PlaneSetOf(at))) {
      bytes += static_cast<double>(store_->bytes(at.slab, plane));
    }
    return bytes;
  }
  // An f32 gradient and weight of an element are 4 bytes, its moments 8.
  double UpdateBytes(int32_t slab, bool host) const {
    const auto elements = static_cast<double>(store_->owned(slab).size());
    const auto moments =
        static_cast<double>(store_->bytes(slab, Plane::kState0) +
                            store_->bytes(slab, Plane::kState1));
    return (host ? 20 : 12) * elements + 2 * moments;
  }
  ForeseenStep Foreseen() const {
    const auto step =
        Foresee({{.rank = 0, .program = &program_, .seconds = seconds_}}, 32);
    EXPECT_TRUE(step.ok()) << step.status();
    return *step;
  }

  offload::StepRates rates_ = kRates;
  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
  std::unique_ptr<SlabOptimizer> adamw_;
  const std::unique_ptr<Device> device_ = NewMetaDevice();
  std::unique_ptr<ParamStore> store_;
  std::vector<LayerPlan> layers_;
  StepMemory memory_;
  Program program_;
  std::vector<offload::WorkSeconds> seconds_;
};

constexpr Tier kHost = Tier::kHost;

TEST_F(ForeseenStepTest, EachInstructionTakesItsBytesOrFlops) {
  for (const Tier update : {Tier::kDevice, kHost}) {
    Make(
        {.weight = kHost, .gradient = kHost, .state = kHost, .update = update});
    int copies = 0, updates = 0, slots = 0, visits = 0;
    for (size_t i = 0; i < seconds_.size(); ++i) {
      const Instruction& at = program_.instructions[i];
      double expected = 0;
      if (IsVisit(at)) {
        const LayerPlan& layer = layers_[static_cast<size_t>(at.layer)];
        const bool forward = at.op == Op::kForward || at.op == Op::kLoss;
        const bool backward = at.op != Op::kForward;
        expected = ((forward ? layer.flops : 0) +
                    (backward ? layer.backward_flops : 0)) /
                   1e9;
        ++visits;
      } else if (at.op == Op::kFetch || at.op == Op::kEvict) {
        expected = Bytes(at) / (at.op == Op::kFetch ? 2e6 : 3e6);
        ++copies;
      } else if (at.op == Op::kStoreSlot || at.op == Op::kLoadSlot) {
        const auto slot = static_cast<double>(memory_.stored[1].bytes);
        expected = slot / (at.op == Op::kLoadSlot ? 2e6 : 3e6);
        ++slots;
      } else if (at.op == Op::kUpdate) {
        const bool host = update == kHost;
        EXPECT_EQ(at.lane, host ? Lane::kHost : Lane::kCompute);
        expected = UpdateBytes(at.slab, host) / (host ? 5e6 : 7e6);
        ++updates;
      } else if (at.op == Op::kSquares) {
        expected = 4 * static_cast<double>(store_->owned(at.slab).size()) / 7e6;
      }
      EXPECT_DOUBLE_EQ(seconds_[i].all(), expected) << ToString(at);
      EXPECT_EQ(seconds_[i].all() > 0, expected > 0);
    }
    EXPECT_EQ(visits, 2 * 11);
    EXPECT_GT(copies, 20);
    EXPECT_GT(slots, 0);
    EXPECT_EQ(updates, static_cast<int>(store_->slabs().size()));
  }
}

// With the prices of kernels: products by their FLOPs, at the same rate, unless
// a launch takes longer.
TEST_F(ForeseenStepTest, VisitsTakeTheirCalls) {
  Make({}, {false, false, true, false, true, false});
  const std::vector<offload::WorkSeconds> by_flops = seconds_;
  offload::MachineRates machine{.device = {.kind = "cuda"},
                                .tier = {.bytes_per_s = 1e30},
                                .matmul = {{DType::kF32, 1e9}}};
  for (const double latency : {0.0, 1.0}) {
    machine.kernel_latency = latency;
    const offload::KernelPrices prices(machine, 1, 1);
    const Analysis analysis = AnalyzeProgram(program_);
    const std::vector<offload::WorkSeconds> by_calls =
        SecondsOf({.program = program_,
                   .store = *store_,
                   .memory = memory_,
                   .layers = layers_,
                   .rates = rates_,
                   .prices = &prices,
                   .analysis = &analysis});
    ASSERT_EQ(by_calls.size(), by_flops.size());
    for (size_t i = 0; i < by_calls.size(); ++i) {
      const Instruction& at = program_.instructions[i];
      SCOPED_TRACE(ToString(at));
      if (!IsVisit(at)) {
        EXPECT_EQ(by_calls[i].all(), by_flops[i].all());
        continue;
      }
      double calls = 0, products = 0;
      ForEachCalls(layers_[static_cast<size_t>(at.layer)], at,
                   analysis.written[i],
                   [&](const std::vector<KernelCall>& list, int times) {
                     for (const KernelCall& call : list) {
                       const double count =
                           static_cast<double>(times * call.count) * latency;
                       (call.work.product() ? products : calls) += count;
                     }
                   });
      // The backward of attention repeats one product of its forward.
      const double repeated = 0.02 * by_flops[i].products;
      if (latency == 0) {
        EXPECT_NEAR(by_calls[i].products - repeated / 2, by_flops[i].products,
                    repeated / 2 + 1e-9);
      } else {
        EXPECT_NEAR(by_calls[i].products, products, 1e-9);
      }
      EXPECT_NEAR(by_calls[i].others, calls, 1e-9);
      EXPECT_EQ(calls > 0, latency > 0);
    }
  }
}

TEST_F(ForeseenStepTest, WhatIsMadeAgainTakesItsForwardTwice) {
  Make({});
  const std::vector<offload::WorkSeconds> kept = seconds_;
  Make({}, {false, false, true, false, true, false});
  double more = 0, again = 0;
  for (const offload::WorkSeconds& of : seconds_) more += of.all();
  for (const offload::WorkSeconds& of : kept) more -= of.all();
  for (const size_t layer : {2U, 4U}) again += 2 * layers_[layer].flops / 1e9;
  // What is stored of them is their inputs alone.
  EXPECT_LT(more, again);
  const auto backward = [&](int32_t layer) {
    for (size_t i = 0; i < seconds_.size(); ++i) {
      const Instruction& at = program_.instructions[i];
      if (at.op == Op::kBackward && at.layer == layer) return seconds_[i].all();
    }
    return 0.0;
  };
  EXPECT_DOUBLE_EQ(backward(2) - backward(1), layers_[2].flops / 1e9);
}

// No step is shorter than its longest lane, nor longer than all of them.
TEST_F(ForeseenStepTest, AStepIsAtLeastItsLongestLane) {
  Make({.weight = kHost, .gradient = kHost, .state = kHost, .update = kHost});
  const ForeseenStep step = Foreseen();
  double sum = 0, most = 0, all = 0;
  for (const Lane lane : {Lane::kCompute, Lane::kIn, Lane::kOut, Lane::kHost}) {
    EXPECT_GT(step.Busy(lane), 0);
    sum += step.Busy(lane);
    most = std::max(most, step.Busy(lane));
  }
  for (const offload::WorkSeconds& of : seconds_) all += of.all();
  EXPECT_NEAR(sum, all, 1e-9 * all);
  EXPECT_GE(step.seconds, most * (1 - 1e-9));
  EXPECT_LT(step.seconds, all);
  EXPECT_EQ(step.Busy(Lane::kNetwork), 0);
  ASSERT_EQ(step.ranks.size(), 1U);
  for (const LaneUse& use : step.ranks[0].uses) {
    EXPECT_EQ(use.picture.size(), 32U);
  }
  const std::string bound = step.BoundBy();
  EXPECT_TRUE(most == step.Busy(Lane::kIn)    ? bound == "the bus to the device"
              : most == step.Busy(Lane::kOut) ? bound == "the bus to the host"
              : most == step.Busy(Lane::kHost) ? bound == "the host's updates"
                                               : bound == "compute")
      << bound;
}

// State that comes to the device, and gradients, its update, and its way back
// are then under the next step's first visits.
void ForeseenStepTest::ExpectLateUpdatesHide(const SlabTiers& tiers) {
  // Of a bus that bounds no step, and updates for which a forward has time.
  rates_.to_device = rates_.to_host = 1e12;
  rates_.device_memory = 2e10;
  Make(tiers);
  const ForeseenStep after = Foreseen();
  EXPECT_EQ(after.Busy(Lane::kUpdates), 0);
  Make(tiers, {}, true);
  const ForeseenStep late = Foreseen();
  EXPECT_GT(late.Busy(Lane::kUpdates), 0);
  EXPECT_LT(late.seconds, after.seconds);
  EXPECT_NEAR(late.Busy(Lane::kUpdates) + late.Busy(Lane::kCompute),
              after.Busy(Lane::kCompute), 1e-9 * after.seconds);
  double hidden = 0;
  for (const LaneUse& use : late.ranks[0].uses) {
    if (use.lane == Lane::kUpdates) hidden = use.hidden;
  }
  // All but that of the first layer, for which the forward waits.
  const double all = late.Busy(Lane::kUpdates);
  EXPECT_GT(hidden, all / 2);
  EXPECT_LT(hidden, all);
}

TEST_F(ForeseenStepTest, LateUpdatesHide) {
  ExpectLateUpdatesHide({.state = kHost});
}
TEST_F(ForeseenStepTest, LateUpdatesOfGradientsThatComeHide) {
  ExpectLateUpdatesHide({.gradient = kHost, .state = kHost});
}

TEST_F(ForeseenStepTest, LateUpdatesOfWeightsThatComeHide) {
  ExpectLateUpdatesHide({.weight = kHost});
  ExpectLateUpdatesHide({.weight = kHost, .gradient = kHost, .state = kHost});
}

// What a forward works on does not wait for all that comes for late updates.
TEST_F(ForeseenStepTest, WeightsOfVisitsOvertakeWhatUpdatesFetch) {
  const SlabTiers all{.weight = kHost, .gradient = kHost, .state = kHost};
  rates_.device_memory *= 1e6;
  Make(all, {}, true);
  const ForeseenStep slow = Foreseen();
  // All that comes takes three quarters of the first micro-batch's forward, a
  // sixth of what is computed.
  rates_.to_device *= 8 * slow.Busy(Lane::kIn) / slow.Busy(Lane::kCompute);
  rates_.to_host = rates_.to_device;
  Make(all, {}, true);
  const ForeseenStep step = Foreseen();
  for (const LaneUse& use : step.ranks[0].uses) {
    if (use.lane != Lane::kUpdatesIn) continue;
    EXPECT_GT(use.hidden, use.busy / 2) << use.picture;
  }
}

// With all at home on the device a step is what is computed.
TEST_F(ForeseenStepTest, IsWhatIsComputedWhereNothingMoves) {
  Make({});
  for (size_t i = 0; i < seconds_.size(); ++i) {
    const Op op = program_.instructions[i].op;
    if (op == Op::kStoreSlot || op == Op::kLoadSlot) seconds_[i] = {};
  }
  const ForeseenStep step = Foreseen();
  EXPECT_NEAR(step.seconds, step.Busy(Lane::kCompute), 1e-9 * step.seconds);
  EXPECT_EQ(step.BoundBy(), "compute");
}

}  // namespace
}  // namespace delink::foreseen_step_test
