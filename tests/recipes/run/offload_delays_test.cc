// Exchanges, copies in and out and the host's updates that come late, each at
// random moments, over a switch: the bits of the run with all on the device,
// which nobody holds up. Others have had a reduction that waited for one of
// several streams, and NaN where one came late.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "recipes/run/stage/stage_run.h"
#include "tests/recipes/run/recipe_env.h"
#include "tests/testing/source_path.h"

namespace delink::testing::offload_delays_test {
namespace {

constexpr int64_t kSteps = 3;  // of each stage
constexpr int64_t kVocab = 61;
const std::string kRecipe = SourcePath("recipes/tiny_llama.toml");

// Sleeps for up to a millisecond, one time in two.
class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(KeyFromSeed(seed)) {}
  void Sleep() {
    const uint32_t dice = Philox(key_, count_++, 0)[0];
    if (dice % 2 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(dice / 2 % 1000));
  }

 private:
  const RngKey key_;
  std::atomic<uint64_t> count_ = 0;
};

// Holds up what the compute lane begins, so that all others run ahead, or what
// they begin.
class LateLanes final : public StepWatch {
 public:
  LateLanes(bool compute, uint64_t seed) : compute_(compute), dice_(seed) {}
  void Begin(Lane lane, int64_t, std::string_view) override {
    ++At(begun_, lane);
    if ((lane == Lane::kCompute) == compute_) dice_.Sleep();
  }
  double Vote() override { return 0; }
  int64_t begun(Lane lane) const { return At(begun_, lane); }

 private:
  const bool compute_;
  Dice dice_;
  std::array<std::atomic<int64_t>, kLanes> begun_ = {};
};

// Holds up an update before it begins and before it is said to be done.
class LateUpdates final : public SlabOptimizer {
 public:
  LateUpdates(SlabOptimizer& of, uint64_t seed) : of_(of), dice_(seed) {}
  std::vector<StateSpec> states() const override { return of_.states(); }
  WholeTensors whole_tensors() const override { return of_.whole_tensors(); }
  int64_t ScratchBytes(const ParamStore& store) const override {
    return of_.ScratchBytes(store);
  }
  void Update(Stream& stream, ParamStore& store, int slab,
              const UpdateControl* control, int64_t update) override {
    of_.set_scratch(scratch());
    dice_.Sleep();
    of_.Update(stream, store, slab, control, update);
    dice_.Sleep();
  }

 private:
  SlabOptimizer& of_;
  Dice dice_;
};

HostBatch Batch(const BatchCut& cut, int64_t step) {
  const int64_t tokens = cut.local() * cut.seq;
  HostBatch batch;
  for (int64_t i = 0; i <= tokens; ++i) {
    const auto random = Philox(KeyFromSeed(static_cast<uint64_t>(step)),
                               static_cast<uint64_t>(i), 0);
    const auto token = static_cast<int32_t>(random[0] % kVocab);
    if (i < tokens) batch.inputs.push_back(token);
    if (i > 0) batch.targets.push_back(token);
  }
  batch.samples.assign(static_cast<size_t>(cut.local()), 0);
  return batch;
}

// Losses and norms, and behind the last step all weights and state.
struct Outcome {
  std::vector<double> numbers;
  std::vector<std::string> planes;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

void AddPlanes(const ParamStore& store, Outcome* outcome) {
  for (int p = 0; p < kPlanes; ++p) {
    const auto plane = static_cast<Plane>(p);
    if (!store.has(plane) || plane == Plane::kGradient) continue;
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const auto slab = static_cast<int>(s);
      outcome->planes.emplace_back(
          static_cast<const char*>(store.home(slab, plane)),
          static_cast<size_t>(store.bytes(slab, plane)));
    }
  }
}

absl::Status Steps(StageRun& stage, int64_t from, Outcome* outcome) {
  for (int64_t step = from; step < from + kSteps; ++step) {
    DELINK_ASSIGN_OR_RETURN(
        const StepResult result,
        stage.executor().TrainStep(Batch(stage.cut(), step), step, 1e-2));
    outcome->numbers.push_back(result.loss);
    outcome->numbers.push_back(result.grad_norm);
  }
  return stage.executor().Drain();
}

struct Case {
  std::vector<std::string> sets;
  int ranks = 1;
  bool lane_threads = false;
  uint64_t seed = 0;  // 0: nobody is late
  bool late_compute = false;
  Trace* trace = nullptr;
};

absl::Status RunRank(const Case& of, Communicator& comm, Outcome* outcome) {
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RecipeEnv> recipe,
                          NewRecipeEnv(kRecipe, of.sets, comm));
  RunEnv& env = recipe->env;
  const uint64_t seed = 10 * of.seed + static_cast<uint64_t>(comm.rank());
  LateLanes lanes(of.late_compute, seed);
  LateUpdates updates(*env.host_optimizer, seed);
  if (of.seed != 0) {
    env.watch = &lanes;
    env.host_optimizer = &updates;
  }
  env.lane_threads = of.lane_threads;
  env.trace = of.trace;
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage,
                          StageRun::Create(env, 0));
  stage->store().InitWeights(1);
  DELINK_RETURN_IF_ERROR(Steps(*stage, 1, outcome));
  DELINK_ASSIGN_OR_RETURN(stage, StageRun::Switch(env, std::move(stage), 1));
  DELINK_RETURN_IF_ERROR(Steps(*stage, 1 + kSteps, outcome));
  AddPlanes(stage->store(), outcome);
  if (of.seed != 0) {
    const ProgramShape& shape = stage->executor().program().shape;
    const bool host = stage->store().host() != nullptr;
    EXPECT_EQ(lanes.begun(Lane::kIn) + lanes.begun(Lane::kUpdatesIn) > 0, host);
    EXPECT_EQ(lanes.begun(Lane::kOut) + lanes.begun(Lane::kUpdatesOut) > 0,
              host);
    EXPECT_EQ(lanes.begun(Lane::kGather) > 0, !shape.shards.empty());
    EXPECT_EQ(lanes.begun(Lane::kUpdates) > 0, !shape.late_updates.empty());
    EXPECT_EQ(lanes.begun(Lane::kHost) > 0, !shape.host_updates.empty());
  }
  return absl::OkStatus();
}

// By rank.
std::vector<Outcome> OutcomesOf(const Case& of) {
  std::vector<Outcome> outcomes(static_cast<size_t>(of.ranks));
  const absl::Status status = RunRanks(of.ranks, [&](Communicator& comm) {
    return RunRank(of, comm, &At(outcomes, comm.rank()));
  });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
  return outcomes;
}

const std::vector<std::string> kHomes = {
    "weights=\"host\",gradients=\"host\",state=\"host\","
    "activations=\"host\"",
    "weights=\"host\",gradients=\"host\",update=\"host\"",
    "resident=0.5,update=\"host\"",
    "rows=[{match=\"*/mlp/*\",update=\"host\"},"
    "{match=\"*/attn/*\",gradients=\"host\"}],state=\"host\""};

// All on the device, or with these homes in both stages.
std::vector<std::string> Small(int zero, const std::string& order,
                               const std::string& homes = "") {
  std::vector<std::string> sets = {"model.layers=2",
                                   "model.dim=16",
                                   "model.head_dim=4",
                                   "model.ffn=24",
                                   absl::StrCat("model.vocab=", kVocab),
                                   "data.seq=8",
                                   "data.batch=6",
                                   "run.micro_batch=1",
                                   "optimizer.clip=0.5",
                                   absl::StrCat("run.order=", order)};
  for (const int stage : {0, 1}) {
    sets.push_back(absl::StrCat("stage.", stage, ".parallel.zero=", zero));
    sets.push_back(absl::StrCat("stage.", stage, ".offload={", homes, "}"));
  }
  return sets;
}

void ExpectDelaysChangeNothing(int ranks, int zero, const std::string& order,
                               const std::vector<std::string>& all_homes) {
  const std::vector<Outcome> resident =
      OutcomesOf({.sets = Small(zero, order), .ranks = ranks});
  EXPECT_EQ(resident[0].numbers,
            OutcomesOf({.sets = Small(0, order), .ranks = ranks})[0].numbers);
  uint64_t seed = 1;
  for (const std::string& homes : all_homes) {
    for (const char* const late : {"lanes", "threads", "compute"}) {
      SCOPED_TRACE(absl::StrCat(homes, ", late: ", late));
      EXPECT_TRUE(
          resident ==
          OutcomesOf({.sets = Small(zero, order, homes),
                      .ranks = ranks,
                      .lane_threads = late != std::string_view("lanes"),
                      .seed = seed++,
                      .late_compute = late == std::string_view("compute")}));
    }
  }
}

TEST(OffloadDelays, ChangeNothing) {
  ExpectDelaysChangeNothing(1, 0, "micro_batch", kHomes);
}

TEST(OffloadDelays, ChangeNothingLayerByLayer) {
  ExpectDelaysChangeNothing(1, 0, "layer", kHomes);
}

TEST(OffloadDelays, ChangeNothingOfRanksThatShareState) {
  ExpectDelaysChangeNothing(2, 1, "layer", kHomes);
}

TEST(OffloadDelays, ChangeNothingOfRanksThatShareGradients) {
  ExpectDelaysChangeNothing(3, 2, "layer", {""});
}

TEST(OffloadDelays, ChangeNothingOfRanksThatShareAll) {
  for (const char* const order : {"micro_batch", "layer"}) {
    ExpectDelaysChangeNothing(3, 3, order,
                              {"", kHomes[0], kHomes[1], "state=\"host\""});
  }
}

// By lane, how often a visit and what the lane did were under way together.
void AddBeside(const Trace& trace, std::array<int, kLanes>* beside) {
  const auto at = [&](const Trace::Span& span) {
    return At(At(trace.programs(), span.program), span.index).at;
  };
  for (const Trace::Span& visit : trace.spans()) {
    if (!IsVisit(at(visit))) continue;
    for (const Trace::Span& other : trace.spans()) {
      const bool both = other.begin < visit.end && visit.begin < other.end;
      if (both) ++At(*beside, at(other).lane);
    }
  }
}

// Others had copies for which all waited, and state that was streamed behind
// all that is computed. On a busy machine the threads of a run may have their
// turns one after the other.
void ExpectBeside(const std::string& homes, Lane updates) {
  constexpr uint64_t kTries = 30;
  std::vector<std::string> sets = Small(0, "layer", homes);
  sets.emplace_back("model.layers=6");
  std::array<int, kLanes> beside = {};
  const auto seen = [&](Lane lane) { return At(beside, lane) > 0; };
  const auto comes = [&] { return seen(Lane::kIn) || seen(Lane::kUpdatesIn); };
  const auto goes = [&] { return seen(Lane::kOut) || seen(Lane::kUpdatesOut); };
  for (uint64_t seed = 1; seed <= kTries; ++seed) {
    Trace trace(kSteps + 1, 2 * kSteps);
    OutcomesOf(
        {.sets = sets, .lane_threads = true, .seed = seed, .trace = &trace});
    AddBeside(trace, &beside);
    if (comes() && goes() && seen(updates)) break;
  }
  EXPECT_TRUE(comes());
  EXPECT_TRUE(goes());
  EXPECT_TRUE(seen(updates));
}

TEST(OffloadDelays, ATraceShowsLanesBesideTheComputing) {
  ExpectBeside(kHomes[1], Lane::kHost);
  ExpectBeside("state=\"host\"", Lane::kUpdates);
  ExpectBeside("gradients=\"host\", state=\"host\"", Lane::kUpdates);
  ExpectBeside("weights=\"host\"", Lane::kUpdates);
}

}  // namespace
}  // namespace delink::testing::offload_delays_test
