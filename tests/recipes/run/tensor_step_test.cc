// Steps of ranks that work on the same visits, with their weights or their
// tokens cut, against those of one rank: threads, in f64, where another order
// of the same sums is all that may differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/step/proof/visit_meetings.h"
#include "tests/framework/module/random_layouts.h"
#include "tests/recipes/run/bad_token.h"
#include "tests/recipes/run/tensor_steps.h"

namespace delink::testing::tensor_step_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// As VisitInputs::expert_room, less than there are choices.
constexpr double kLittleRoom = 0.3;

std::vector<TensorCase> Table() {
  return {
      {.tensor = 2},
      {.tensor = 2, .sequence = false},
      {.tensor = 4},
      {.tensor = 4, .sequence = false, .options = {.tied = false}},
      {.tensor = 2, .kind = "llama"},
      {.tensor = 2, .sequence = false, .kind = "llama"},
      {.tensor = 4, .kind = "llama"},
      {.tensor = 4, .sequence = false, .kind = "llama"},
      {.tensor = 2, .data = 2, .options = {.dropout = 0.1, .zero = 2}},
      {.tensor = 2,
       .data = 2,
       .sequence = false,
       .kind = "llama",
       .share = "groups:2",
       .options = {.recompute = true, .zero = 1}},
      {.tensor = 2, .pipeline = 2, .options = {.masked = true, .dropout = 0.1}},
      {.tensor = 2,
       .pipeline = 2,
       .sequence = false,
       .options = {.tied = false, .recompute = true, .lane_threads = true}},
      {.tensor = 4,
       .data = 2,
       .kind = "llama",
       .options = {.remake = false, .masked = true}},
      {.tensor = 2,
       .data = 2,
       .pipeline = 2,
       .kind = "llama",
       .share = "all",
       .options = {.lane_threads = true, .zero = 1, .halves = true}},
      {.context = 2},
      {.context = 2, .kind = "llama", .options = {.recompute = true}},
      {.context = 3,
       .kind = "llama",
       .options = {.remake = false, .masked = true, .dropout = 0.1}},
      {.tensor = 2,
       .context = 2,
       .data = 2,
       .kind = "llama",
       .options = {.masked = true, .dropout = 0.1, .zero = 1}},
      {.tensor = 2,
       .context = 2,
       .pipeline = 2,
       .sequence = false,
       .options = {.tied = false, .lane_threads = true, .halves = true}},
      {.tensor = 2, .data = 2, .options = {.zero = 1, .muon = true}},
      {.tensor = 4, .kind = "llama", .options = {.muon = true}},
      {.tensor = 4,
       .data = 2,
       .kind = "llama",
       .share = "groups:2",
       .options = {.lane_threads = true, .zero = 1, .muon = true}},
      {.tensor = 2, .options = {.adafactor = true}},
      {.tensor = 4,
       .data = 2,
       .kind = "llama",
       .options = {.zero = 2, .adafactor = true}},
  };
}

// On up to eight ranks.
TensorCase DrawCase(Dice& dice) {
  TensorCase of;
  do {
    of.tensor = 1 << dice.Below(3);
    of.context = dice.Between(1, 3);
    of.data = 1 << dice.Below(3);
    of.pipeline = 1 << dice.Below(3);
  } while (of.tensor * of.context == 1 || of.ranks() > 8);
  const char* const shares[] = {"none", "none", "groups:2", "all"};
  of.sequence = dice.Maybe();
  of.kind = kModelKinds[dice.Below(2)];
  of.share = shares[dice.Below(4)];
  RigOptions& options = of.options;
  options.layers = dice.Maybe() ? 4 : 6;
  options.tied = dice.Maybe();
  options.recompute = dice.Maybe();
  options.remake = dice.Maybe();
  options.lane_threads = dice.Maybe();
  options.masked = dice.Maybe();
  options.clip = dice.Maybe() ? 0.5 : 0;
  options.dropout = dice.Maybe() ? 0.1 : 0;
  options.order = dice.Maybe() ? MicroBatchOrder::kLayerMajor
                               : MicroBatchOrder::kMicroBatchMajor;
  options.zero = dice.Below(4);
  options.shard = of.data / (of.data > 1 ? dice.Between(1, 2) : 1);
  options.reduces_micro_batches = options.zero >= 2 && dice.Maybe();
  options.turns = of.pipeline == 2 ? dice.Between(1, 2) : 1;
  options.halves = of.pipeline > 1 && options.turns == 1 && dice.Maybe();
  const int optimizer = dice.Below(4);
  options.muon = optimizer == 0;
  options.adafactor = optimizer == 1;
  return of;
}

// Experts over ranks, which other ranks along every axis may be among.
TensorCase DrawExperts(Dice& dice) {
  TensorCase of = DrawCase(dice);
  do {
    of.tensor = 1 << dice.Below(3);
    of.context = dice.Between(1, 2);
    of.data = 1 << dice.Below(3);
    of.pipeline = dice.Below(3) == 0 ? 2 : 1;
    of.expert = 1 << dice.Below(4);
  } while (of.expert == 1 || of.ranks() > 8 ||
           of.tensor * of.context * of.data % of.expert != 0);
  const char* const kinds[] = {"moe", "moe capacity", "moe prototypes"};
  of.kind = kinds[dice.Below(3)];
  of.sequence = of.tensor > 1;
  of.options.shard = of.data / (of.data > 1 ? dice.Between(1, 2) : 1);
  of.options.turns = 1;
  of.options.halves = of.pipeline > 1 && dice.Maybe();
  const double rooms[] = {0, 0, 4, kLittleRoom};
  of.expert_room = rooms[dice.Below(4)];
  of.expert_overlap = dice.Maybe();
  if (of.expert_room > 0 && dice.Maybe()) {
    of.expert_nodes = dice.Maybe() ? of.expert : 2;
  }
  std::array<Axis, kMeshAxes>& order = of.options.rank_order;
  if (dice.Maybe()) std::swap(order[0], order[dice.Below(4)]);
  return of;
}

class TensorStepTest : public ::testing::TestWithParam<TensorCase> {};
INSTANTIATE_TEST_SUITE_P(Rows, TensorStepTest, ::testing::ValuesIn(Table()));

TEST_P(TensorStepTest, IsThatOfOneRank) {
  const OneRank expected = RunAlone(GetParam());
  OnRanks(GetParam(), [&](Communicator& world) {
    ExpectStepsOfOneRank(world, GetParam(), expected);
  });
}

// With all else drawn. DELINK_TENSOR_STEPS=600 for more.
TEST(TensorStep, DrawnOnesAreThoseOfOneRank) {
  const char* const text = std::getenv("DELINK_TENSOR_STEPS");
  const int rows = text != nullptr ? std::atoi(text) : 12;
  Dice dice(23);
  for (int n = 0; n < rows && !::testing::Test::HasFailure(); ++n) {
    const TensorCase of = DrawCase(dice);
    const OneRank expected = RunAlone(of);
    OnRanks(of, [&](Communicator& world) {
      ExpectStepsOfOneRank(world, of, expected);
    });
  }
}

// DELINK_EXPERT_STEPS=600 for more.
TEST(TensorStep, DrawnExpertsAreThoseOfOneRank) {
  const char* const text = std::getenv("DELINK_EXPERT_STEPS");
  const int rows = text != nullptr ? std::atoi(text) : 40;
  Dice dice(29);
  std::set<int> seen;
  for (int n = 0; n < rows && !::testing::Test::HasFailure(); ++n) {
    const TensorCase of = DrawExperts(dice);
    seen.insert(of.expert);
    const OneRank expected = RunAlone(of);
    OnRanks(of, [&](Communicator& world) {
      ExpectStepsOfOneRank(world, of, expected);
    });
  }
  EXPECT_EQ(seen, (std::set<int>{2, 4, 8}));
}

// All that passes find.
struct Found {
  std::vector<double> numbers;
  std::vector<std::vector<double>> values;
  double room = 0;
};

Found FoundBy(Communicator& world, const TensorCase& of) {
  Found found;
  const std::unique_ptr<StepRig> rig = TogetherOf(world, of);
  Executor& executor = rig->executor();
  const auto take = [&found](const StepResult& result) {
    found.numbers.insert(found.numbers.end(), {result.loss, result.grad_norm});
  };
  take(*executor.Gradients(rig->Batch(0), 1));
  const std::vector<SlabAgreement> probed = *executor.Probe(rig->Batch(7), 1);
  for (const SlabAgreement& slab : probed) {
    found.numbers.insert(found.numbers.end(),
                         {slab.of.together, slab.of.apart});
  }
  for (int64_t step = 1; step <= kTensorSteps; ++step) {
    const HostBatch batch = rig->Batch(step);
    take(*executor.TrainStep(batch, step, kTensorRate));
    found.numbers.push_back(executor.Evaluate(batch)->loss_sum);
  }
  // Of equal tokens, all of which want the same ranks, behind a step.
  HostBatch equal = rig->Batch(kTensorSteps);
  std::ranges::fill(equal.inputs, 1);
  found.numbers.push_back(executor.Evaluate(equal)->loss_sum);
  std::ranges::copy(executor.GradientNorms(),
                    std::back_inserter(found.numbers));
  for (const std::string& tensor : rig->TensorsHere()) {
    for (const StepRig::Run& run : rig->Runs(tensor, Plane::kWeight)) {
      found.values.push_back(run.values);
    }
  }
  found.room = executor.expert_room();
  return found;
}

// Where choices find no room on some rank, all ranks take more and run the pass
// again: it finds the bits of one that had room, and no step is skipped.
// Overlap changes no bit either.
TEST(TensorStep, APassThatLacksRoomIsRunAgain) {
  for (const int pipeline : {1, 2}) {
    for (const bool threads : {false, true}) {
      TensorCase of{.data = 4,
                    .pipeline = pipeline,
                    .expert = 4,
                    .kind = "moe",
                    .share = "all",
                    .expert_room = 4};
      of.options.probes = true;
      of.options.zero = 1;
      of.options.lane_threads = threads;
      TensorCase little = of;
      little.expert_room = kLittleRoom;
      TensorCase overlaps = little;
      overlaps.expert_overlap = true;
      OnRanks(of, [&](Communicator& world) {
        const Found expected = FoundBy(world, of);
        const Found found = FoundBy(world, little);
        EXPECT_EQ(found.numbers, expected.numbers);
        EXPECT_EQ(found.values, expected.values);
        EXPECT_EQ(expected.room, 4);
        EXPECT_GT(found.room, kLittleRoom);
        const Found overlapped = FoundBy(world, overlaps);
        EXPECT_EQ(overlapped.numbers, expected.numbers);
        EXPECT_EQ(overlapped.values, expected.values);
      });
    }
  }
}

// Of an expert that is on a rank of its own all is the same bits but its
// gradient, which is then one sum and not one of each rank.
TEST(TensorStep, ExpertRanksChangeNoOtherBits) {
  TensorCase whole{.tensor = 2, .data = 2, .kind = "moe"};
  for (const double room : {0.0, 4.0}) {
    TensorCase cut = whole;
    cut.expert = 4;
    cut.expert_room = room;
    OnRanks(cut, [&](Communicator& world) {
      const auto rig = TogetherOf(world, cut), all = TogetherOf(world, whole);
      const auto of = rig->executor().Gradients(rig->Batch(0), 1),
                 other = all->executor().Gradients(all->Batch(0), 1);
      EXPECT_EQ(of->loss, other->loss);
      for (const std::string& tensor : rig->TensorsHere()) {
        if (tensor.find("/experts/") != std::string::npos) continue;
        const auto found = rig->Runs(tensor, Plane::kGradient),
                   expected = all->Runs(tensor, Plane::kGradient);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_EQ(found[i].values, expected[i].values) << tensor;
        }
      }
    });
  }
}

// What rank 0 is told when the other one fails before its first step.
void ExpectTold(const TensorCase& of, const char* what) {
  std::string told;
  const absl::Status status = RunRanks(2, [&](Communicator& world) {
    const std::unique_ptr<StepRig> rig = TogetherOf(world, of);
    if (world.rank() == 1) return absl::DataLossError("no more batches");
    const auto step = rig->executor().TrainStep(rig->Batch(1), 1, kTensorRate);
    told = std::string(step.status().message());
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(told, ::testing::ContainsRegex(what));
  EXPECT_THAT(told, AnyOf(HasSubstr("rank 1: no more batches"),
                          HasSubstr("rank 1 left")));
}

// Whoever waits in the middle of a visit is told in which, and for what.
TEST(TensorStep, ARankThatFailsIsNamedWhereItIsWaitedFor) {
  const TensorCase experts{.data = 2, .expert = 2, .kind = "moe"};
  for (const bool threads : {false, true}) {
    TensorCase of{.tensor = 2};
    of.options.lane_threads = threads;
    ExpectTold(of, "^F\\(0,a\\): (reduce-scatter|sum) over tensor: ");
    of = experts;
    of.options.lane_threads = threads;
    ExpectTold(of, "^F\\(1,a\\): gather over expert: ");
    of.expert_room = 4;
    for (const bool overlap : {false, true}) {
      of.expert_overlap = overlap;
      ExpectTold(of, "^F\\(1,a\\): all-to-all over expert: ");
    }
  }
}

// {together, apart} of all that blocks share, by logical slab.
std::map<int, Agreement> Probed(StepRig& rig) {
  const auto probed = rig.executor().Probe(rig.Batch(3), 1);
  EXPECT_TRUE(probed.ok()) << probed.status();
  std::map<int, Agreement> by_slab;
  for (const SlabAgreement& slab : *probed) {
    const Layout& layout = rig.store().layout();
    Agreement& of = by_slab[At(layout.program_slabs(), slab.slab).logical];
    of.together += slab.of.together;
    of.apart += slab.of.apart;
  }
  return by_slab;
}

TEST(TensorStep, ProbesAreThoseOfOneRank) {
  const TensorCase cases[] = {
      {.tensor = 2, .share = "all"},
      {.tensor = 2, .sequence = false, .share = "groups:2"},
      {.tensor = 4, .kind = "llama", .share = "all"},
      {.tensor = 4, .sequence = false, .kind = "llama", .share = "cycle:2"},
      {.tensor = 2, .pipeline = 2, .kind = "llama", .share = "all"},
      {.tensor = 2,
       .pipeline = 2,
       .sequence = false,
       .share = "attention=all",
       .options = {.recompute = true, .lane_threads = true}},
  };
  for (TensorCase of : cases) {
    of.options.probes = true;
    OnRanks(of, [&](Communicator& world) {
      SelfCommunicator self;
      const std::unique_ptr<StepRig> alone = AloneOf(self, of);
      const std::unique_ptr<StepRig> rig = TogetherOf(world, of);
      EXPECT_EQ(rig->device().bytes_in_use(),
                rig->executor().account().allocated());
      const std::map<int, Agreement> expected = Probed(*alone);
      const std::map<int, Agreement> found = Probed(*rig);
      ASSERT_EQ(found.size(), expected.size());
      ASSERT_FALSE(found.empty());
      for (const auto& [slab, agreement] : expected) {
        const Agreement& of_ranks = found.at(slab);
        EXPECT_GT(agreement.apart, 0);
        EXPECT_NEAR(of_ranks.apart, agreement.apart, kNear * agreement.apart);
        EXPECT_NEAR(of_ranks.together, agreement.together,
                    kNear * agreement.together);
      }
      // A step is none the worse for it.
      ExpectGradients(*rig, GradientsOf(*alone));
    });
  }
}

// What is exchanged in visits, by rank 0 of them, is what the program lists.
TEST(TensorStep, TracesSayWhatVisitsExchange) {
  const TensorCase of{.tensor = 2, .options = {.recompute = true}};
  OnRanks(of, [&](Communicator& world) {
    Trace trace(2, 2);
    TensorCase traced = of;
    traced.options.trace = &trace;
    const std::unique_ptr<StepRig> rig = TogetherOf(world, traced);
    for (int64_t step = 1; step <= 3; ++step) {
      EXPECT_TRUE(
          rig->executor().TrainStep(rig->Batch(step), step, kTensorRate).ok());
    }
    EXPECT_TRUE(rig->executor().Drain().ok());
    const Program& program = rig->executor().program();
    std::vector<VisitExchange> listed;
    std::vector<int32_t> of_instruction;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& at = program.instructions[i];
      if (!IsVisit(at)) continue;
      for (const Phase phase : PhasesOf(program.kind, at)) {
        for (const VisitExchange& exchange :
             At(At(program.shape.exchanges, at.layer), phase)) {
          listed.push_back(exchange);
          of_instruction.push_back(static_cast<int32_t>(i));
        }
      }
    }
    ASSERT_EQ(trace.exchanges().size(), listed.size());
    EXPECT_GT(listed.size(), 100u);
    for (size_t k = 0; k < listed.size(); ++k) {
      const Trace::Exchange& exchange = trace.exchanges()[k];
      EXPECT_EQ(exchange.what, listed[k]) << k;
      EXPECT_EQ(exchange.index, of_instruction[k]);
      EXPECT_EQ(exchange.step, 2);
      EXPECT_LE(exchange.begin, exchange.end);
    }
  });
}

// Keeps what the compute lane was said to wait for.
class WaitsWatch final : public StepWatch {
 public:
  void Begin(Lane, int64_t, std::string_view) override {}
  void Wait(int64_t, std::string_view what) override {
    if (!what.empty()) waits_.insert(std::string(what));
  }
  double Vote() override { return 0; }
  const std::set<std::string>& waits() const { return waits_; }

 private:
  std::set<std::string> waits_;
};

TEST(TensorStep, WhoLooksOnIsToldInWhichExchangeARankWaits) {
  for (const bool threads : {false, true}) {
    const TensorCase of{.tensor = 2, .options = {.lane_threads = threads}};
    OnRanks(of, [&](Communicator& world) {
      WaitsWatch watch;
      TensorCase watched = of;
      watched.options.watch = &watch;
      const std::unique_ptr<StepRig> rig = TogetherOf(world, watched);
      for (int64_t step = 1; step <= 3; ++step) {
        EXPECT_TRUE(rig->executor()
                        .TrainStep(rig->Batch(step), step, kTensorRate)
                        .ok());
      }
      EXPECT_TRUE(rig->executor().Drain().ok());
      // Which of the two comes late is chance, but not every time.
      std::string all;
      for (const std::string& wait : watch.waits()) all += wait + "\n";
      EXPECT_THAT(all, ::testing::ContainsRegex(
                           "(F|B)\\(1,[a-d]\\) of blocks/0: "
                           "(gather|reduce-scatter) over tensor\n"));
    });
  }
}

// Of the ranks of a stage the first that has a number which is not finite, by
// data place; of those that work on the same visit all have.
TEST(TensorStep, DiagnosisNamesTheRankWhereItBegan) {
  const TensorCase of{.tensor = 2, .data = 2, .pipeline = 2};
  OnRanks(of, [&](Communicator& world) {
    const std::unique_ptr<StepRig> rig = TogetherOf(world, of);
    const ParamStore& store = rig->store();
    const MeshPlace place = store.layout().mesh().PlaceOf(world.rank());
    // One piece of a matrix, in the weights of data place 1 alone.
    if (place[Axis::kData] == 1 && place[Axis::kTensor] == 1) {
      for (const LogicalTensor& t : store.layout().tensors()) {
        if (t.name != "blocks/2/mlp/down/weight") continue;
        for (const int slab : store.LocalSlabsOf(t.slab)) {
          for (size_t p = 0; p < store.local(slab).params.size(); ++p) {
            if (store.local(slab).params[p] != t.param) continue;
            *static_cast<double*>(store.at(slab, Plane::kWeight,
                                           store.slab(slab).params[p].offset)) =
                std::numeric_limits<double>::infinity();
          }
        }
      }
    }
    const HostBatch batch = rig->Batch(1);
    EXPECT_TRUE(rig->executor().TrainStep(batch, 1, kTensorRate)->skipped);
    const int rank = store.layout().mesh().RankAt({{0, 0, 1, 1}});
    EXPECT_EQ(*rig->executor().Diagnose(batch, 1),
              absl::StrCat("rank ", rank,
                           ": the output of blocks/2 is not finite "
                           "(micro-batch 0, sequence 0, token 0)"));
  });
}

// A token in the middle of a row is place 1's, and its end, which attends to
// it, place 0's, where numbers are not finite a layer later.
TEST(TensorStep, DiagnosisNamesTheContextWhereItBegan) {
  OnRanks({.context = 2}, [&](Communicator& world) {
    const std::unique_ptr<StepRig> rig = TogetherOf(world, {.context = 2});
    const ParamStore& store = rig->store();
    for (const LogicalTensor& t : store.layout().tensors()) {
      if (t.name != "embed/token/weight") continue;
      const int slab = store.LocalSlabsOf(t.slab)[0];
      *static_cast<double*>(store.at(slab, Plane::kWeight, t.offset)) =
          std::numeric_limits<double>::infinity();
    }
    HostBatch batch = rig->Batch(1);
    for (int32_t& token : batch.inputs) token = std::max(token, 1);
    batch.inputs[StepRig::kSeq / 3] = 0;
    EXPECT_TRUE(rig->executor().TrainStep(batch, 1, kTensorRate)->skipped);
    EXPECT_EQ(*rig->executor().Diagnose(batch, 1),
              "rank 1: the output of embed is not finite (micro-batch 0, "
              "sequence 0, token 4)");
  });
}

// Of all the numbers of a step only one token's in one router are not finite:
// whatever layout, the rank and the token are named, as the router is.
TEST(TensorStep, DiagnosisNamesTheTokenOfARouter) {
  const BadToken at = {.data = 1, .micro_batch = 1, .sequence = 1, .token = 7};
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (TensorCase of : {TensorCase{.data = 2, .pipeline = 2},
                          TensorCase{.tensor = 2, .data = 2},
                          TensorCase{.context = 2, .data = 2}}) {
      OnRanks(of, [&](Communicator& world) {
        RigOptions options = OptionsOf(of);
        options.dtype = dtype;
        options.tensor = of.tensor;
        options.context = of.context;
        options.pipeline = of.pipeline;
        options.sequence = true;
        const Mesh mesh = {.tensor = of.tensor,
                           .context = of.context,
                           .data = of.data,
                           .pipeline = of.pipeline};
        MeshPlace place;
        place[Axis::kData] = 1;
        // Rows of the second sequence; the middle of a row; later layers.
        place[Axis::kTensor] = of.tensor - 1;
        place[Axis::kContext] = of.context - 1;
        place[Axis::kPipeline] = of.pipeline - 1;
        EXPECT_EQ(*DiagnoseBadToken(world, options, at),
                  absl::StrCat("rank ", mesh.RankAt(place),
                               ": the output of the router of blocks/2 is not "
                               "finite (micro-batch 1, sequence 1, token 7)"))
            << of << " " << ToString(dtype);
      });
    }
  }
}

// The two round in different places: a loss, and norms, are off by a few units
// of bf16, 2^-8 each.
TEST(TensorStep, IsNearThatOfOneRankInBf16) {
  for (const StepNumbers& numbers : kNumbers) {
    if (numbers.dtype != DType::kBF16) continue;
    for (const bool sequence : {false, true}) {
      const TensorCase of{
          .tensor = 2,
          .sequence = sequence,
          .kind = "llama",
          .options = {.bf16_gradients = numbers.bf16_gradients}};
      OnRanks(of, [&](Communicator& world) {
        RigOptions options = OptionsOf(of);
        options.dtype = DType::kBF16;
        SelfCommunicator self;
        StepRig alone(self, "none", options);
        options.tensor = 2;
        options.sequence = sequence;
        StepRig rig(world, "none", options);
        for (int64_t step = 1; step <= kTensorSteps; ++step) {
          const auto a =
              rig.executor().TrainStep(rig.Batch(step), step, kTensorRate);
          const auto b =
              alone.executor().TrainStep(alone.Batch(step), step, kTensorRate);
          ASSERT_TRUE(a.ok()) << a.status();
          EXPECT_NEAR(a->loss, b->loss, b->loss / 256);
          EXPECT_NEAR(a->grad_norm, b->grad_norm, b->grad_norm / 64);
          EXPECT_EQ(a->tokens, b->tokens);
        }
      });
    }
  }
}

}  // namespace
}  // namespace delink::testing::tensor_step_test
