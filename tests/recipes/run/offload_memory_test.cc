// What stages take of each tier whose planes are at home on the host or on the
// device, or sharded over data ranks: to the byte and by name what `delink
// plan` says, and nothing more in their steps; and of gradients that no slab's
// is on the device twice. Configurations are drawn; one that fails is told as a
// command line.
//
//   DELINK_OFFLOAD_ROWS=200 DELINK_OFFLOAD_SEED=2 offload_memory_test
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "framework/step/plan/memory.h"
#include "recipes/models/model_list.h"
#include "recipes/plan/plan.h"
#include "recipes/run/stage/stage_run.h"
#include "tests/recipes/run/constant_batch.h"
#include "tests/recipes/run/recipe_env.h"
#include "tests/recipes/run/run_table.h"
#include "tests/testing/source_path.h"

namespace delink::testing::offload_memory_test {
namespace {

constexpr uint64_t kRows = 0, kFullRows = 16;
constexpr Change kRun = Change::kRun;

Axis Home(const std::string& key) {
  Axis axis{.name = key, .change = kRun, .values = {{"unsaid"}}};
  for (const char* const where : {"device", "host"}) {
    axis.values.push_back({where, absl::StrCat(key, "=\"", where, "\"")});
  }
  return axis;
}

// "tensor pipeline data"
const char* const kParallel[] = {"tensor", "pipeline", "data"};

const std::vector<Axis> kAxes = {
    {"tied",
     kRun,
     {{"false", "model.tied=false"}, {"true", "model.tied=true"}}},
    {"optimizer",
     kRun,
     {{"adamw"},
      {"adamw bf16", "optimizer.moments=bf16"},
      {"adamw 8bit", "optimizer.moments=8bit"},
      {"sgd", "optimizer.kind=sgd"},
      {"lion", "optimizer.kind=lion"},
      {"adafactor",
       "optimizer.kind=adafactor optimizer.relative_step=false "
       "optimizer.lr=1e-3"},
      {"muon",
       "optimizer.kind=muon optimizer.lr=1e-2 optimizer.adamw_lr=1e-3"}},
     {},
     true},
    {"precision",
     kRun,
     {{"fp32"},
      {"bf16 gradients", "run.precision=bf16 run.gradients=bf16"},
      {"split", "run.precision=bf16 run.master=split"}}},
    {"order", kRun, {{"micro_batch"}, {"layer", "run.order=layer"}}},
    {"ranks", kRun, {{"1 1 1"}, {"1 1 2"}, {"2 1 1"}, {"1 2 1"}, {"1 2 2"}}},
    {"zero",
     kRun,
     {{"0"}, {"1"}, {"2"}, {"2 in parts"}, {"3"}, {"3 in parts"}}},
    {"recompute", kRun, {{"none"}, {"block"}}},
    {"resident", kRun, {{"unsaid"}, {"0.5", "resident=0.5"}}},
    Home("weights"),
    Home("gradients"),
    Home("state"),
    Home("update"),
    Home("activations"),
    {"rows",
     kRun,
     {{"none"},
      {"parts",
       "rows=[{match=\"*/mlp/*\",update=\"host\"},"
       "{match=\"*/attn/*\",state=\"host\",update=\"device\"}]"},
      {"embedding",
       "rows=[{match=\"embed/*\",weights=\"host\",gradients=\"host\"}]"}}}};

const std::vector<std::string> kOfOffload = {
    "resident", "weights",     "gradients", "state",
    "update",   "activations", "rows"};

const std::vector<Rule> kRules = {
    {"precision",
     {"split"},
     "optimizer",
     {"adamw", "adamw bf16", "adamw 8bit"}},
    {"ranks", {"1 2 1", "1 2 2"}, "order", {"micro_batch"}},
    // The host does not do what tensor ranks update together.
    {"ranks",
     {"2 1 1"},
     "optimizer",
     {"adamw", "adamw bf16", "adamw 8bit", "sgd", "lion"}}};

struct Row {
  std::vector<std::string> sets;
  int ranks = 1;
  friend std::ostream& operator<<(std::ostream& out, const Row& row) {
    return out << TrainCommand(row.ranks, "tiny_llama", row.sets);
  }
};

Row RowOf(const Configuration& c) {
  Row row{.sets = {"model.layers=4", "model.dim=16", "model.head_dim=4",
                   "model.ffn=40", "model.vocab=257", "data.seq=16",
                   "run.micro_batch=1", "run.probe_every=0"}};
  std::vector<std::string> offload;
  for (const Axis& axis : kAxes) {
    const bool here = std::find(kOfOffload.begin(), kOfOffload.end(),
                                axis.name) != kOfOffload.end();
    const std::vector<Axis> one = {axis};
    std::vector<std::string>& to = here ? offload : row.sets;
    const std::vector<std::string> words = RunTable(one, {}, 0).Sets(c);
    to.insert(to.end(), words.begin(), words.end());
  }
  row.sets.push_back(absl::StrCat("run.recompute=", c.at("recompute")));
  for (const char* const stage : {"stage.0.", "stage.1."}) {
    for (size_t i = 0; i < 3; ++i) {
      const char ranks = c.at("ranks")[2 * i];
      row.sets.push_back(absl::StrCat(stage, "parallel.", kParallel[i], "=",
                                      std::string(1, ranks)));
    }
    row.sets.push_back(
        absl::StrCat(stage, "parallel.zero=", c.at("zero").substr(0, 1)));
    if (absl::EndsWith(c.at("zero"), "in parts")) {
      row.sets.push_back(absl::StrCat(stage, "parallel.reduce=micro_batch"));
    }
    if (offload.empty()) continue;
    row.sets.push_back(
        absl::StrCat(stage, "offload={", absl::StrJoin(offload, ","), "}"));
  }
  for (size_t i = 0; i < 3; ++i) row.ranks *= c.at("ranks")[2 * i] - '0';
  return row;
}

std::vector<Row> Rows() {
  const uint64_t count = RowCount("DELINK_OFFLOAD_ROWS", kRows, kFullRows);
  RunTable table(kAxes, kRules, FromEnvironment("DELINK_OFFLOAD_SEED", 4));
  std::vector<Row> rows;
  for (const Configuration& c : table.Cover({}, count)) {
    rows.push_back(RowOf(c));
  }
  return rows;
}

const std::string kRecipe = SourcePath("recipes/tiny_llama.toml");

using Bytes = std::map<std::string, int64_t>;

// By what it is for.
Bytes Taken(const std::vector<MemoryLedger::Entry>& entries) {
  Bytes bytes;
  for (const MemoryLedger::Entry& entry : entries) {
    if (entry.bytes > 0) bytes[entry.kind] = entry.bytes;
  }
  return bytes;
}

int64_t StateOf(const Bytes& bytes) {
  int64_t state = 0;
  for (const auto& [kind, size] : bytes) {
    const bool is_state = absl::StartsWith(kind, "state ") ||
                          kind == "masters" || kind == "low halves";
    if (is_state) state += size;
  }
  return state;
}

// What a stage has taken, of each tier.
struct Tiers {
  Bytes device, host, stored;
  int64_t allocations = 0;
  friend bool operator==(const Tiers&, const Tiers&) = default;
};

Tiers TiersOf(StageRun& stage, const Device& device) {
  const auto of = [](const HostArena* arena) {
    return arena == nullptr ? Bytes() : Taken(arena->ledger().entries());
  };
  return {.device = Taken(device.ledgers().allocated.entries()),
          .host = of(stage.store().host()),
          .stored = of(stage.executor().stored()),
          .allocations = device.allocations()};
}

void ExpectLedgersAreTheAccount(StageRun& stage, const Device& device) {
  const MemoryAccount account = stage.account();
  Tiers taken = TiersOf(stage, device);
  EXPECT_EQ(taken.device["weights"], account.weights);
  EXPECT_EQ(taken.device["gradients"], account.gradients);
  EXPECT_EQ(StateOf(taken.device), account.state);
  EXPECT_EQ(taken.device["slots"], account.slots);
  EXPECT_EQ(taken.device["boundaries"], account.boundaries);
  EXPECT_EQ(taken.device["workspace"], account.workspace);
  EXPECT_EQ(taken.device["copies"], account.copies);
  EXPECT_EQ(taken.device["fetched planes"], account.fetched);
  EXPECT_EQ(taken.device["records"], account.records);
  EXPECT_EQ(device.bytes_in_use(), account.allocated());
  // Slots that are stored have an arena of their own, and what the host's
  // updates work in is beside both.
  const HostArena* const host = stage.store().host();
  const StepMemory& memory = stage.executor().memory();
  const int64_t planes =
      account.host - memory.host_scratch - memory.stored_bytes();
  EXPECT_EQ(host == nullptr ? 0 : host->ledger().bytes(), planes);
  EXPECT_EQ(
      taken.host["weights"] + taken.host["gradients"] + StateOf(taken.host),
      planes);
  const HostArena* const stored = stage.executor().stored();
  EXPECT_EQ(taken.stored["slots"], memory.stored_bytes());
  EXPECT_EQ(stored == nullptr ? 0 : stored->ledger().bytes(),
            memory.stored_bytes());
  EXPECT_EQ(stored == nullptr ? 0 : stored->bytes(), memory.stored_bytes());
  if (host == nullptr) return;
  int64_t pieces = 0;
  for (const auto& entry : host->ledger().entries()) pieces += entry.blocks;
  EXPECT_LT(host->bytes() - planes, kAlignment * pieces) << "nothing rounded";
}

// By slab, how often its gradient is on the device at any time of the step: at
// home, and the copies that the program has taken and not given back.
void ExpectGradientsAreThereOnce(StageRun& stage) {
  const Program& program = stage.executor().program();
  const ProgramShape& shape = program.shape;
  std::map<int32_t, int> live;  // by slab
  for (const Instruction& at : program.instructions) {
    if (!IsOfPlanes(at) || PlaneSetOf(at) != PlaneSet::kGradient) continue;
    EXPECT_GE(CopyClassOf(shape, PlaneSet::kGradient, at.slab), 0)
        << ToString(at) << ": the gradient is at home on the device";
    if (at.op == Op::kFetch || at.op == Op::kTake) ++live[at.slab];
    if (at.op == Op::kRelease) --live[at.slab];
    EXPECT_LE(live[at.slab], 1) << ToString(at);
  }
  // And of no more is there room than for all that a stage has of a class.
  const ParamStore& store = stage.store();
  const Layout& layout = store.layout();
  std::map<int32_t, int64_t> most;  // slabs of a class on one rank
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    std::map<int32_t, int64_t> here;
    for (const int local : layout.LocalSlabsOf(rank)) {
      const int32_t slab = At(layout.local_slabs(), local).program_slab;
      ++here[CopyClassOf(shape, PlaneSet::kGradient, slab)];
    }
    for (const auto& [of, slabs] : here) most[of] = std::max(most[of], slabs);
  }
  most.erase(-1);  // at home
  for (const auto& [of, slabs] : most) {
    EXPECT_LE(At(stage.executor().memory().fetched, of).slots, slabs)
        << "class " << of;
  }
}

// What the plan says of the rank that holds most of a stage of the pipeline.
void ExpectIsThePlan(const PipelineStagePlan& plan, const StageRun& stage,
                     const Device& device) {
  EXPECT_EQ(ToString(plan.account), ToString(stage.account()));
  EXPECT_EQ(plan.account.host, stage.account().host);
  EXPECT_EQ(plan.account.allocated(), device.bytes_in_use());
  EXPECT_EQ(Taken(plan.taken), Taken(device.ledgers().allocated.entries()));
}

absl::Status RunStage(const Row& row, size_t index, const StagePlan& plan,
                      Communicator& comm) {
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RecipeEnv> of,
                          NewRecipeEnv(kRecipe, row.sets, comm));
  Device& device = *of->device;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                          StageRun::Create(of->env, index));
  stage->store().InitWeights(1);
  ExpectLedgersAreTheAccount(*stage, device);
  ExpectGradientsAreThereOnce(*stage);
  for (const PipelineStagePlan& planned : plan.pipeline.stages) {
    if (planned.rank == comm.rank()) ExpectIsThePlan(planned, *stage, device);
  }
  const Tiers before = TiersOf(*stage, device);
  for (const int64_t step : {1, 2, 3}) {
    const HostBatch batch = ConstantBatch(stage->cut());
    DELINK_RETURN_IF_ERROR(
        stage->executor().TrainStep(batch, step, 1e-3).status());
  }
  DELINK_RETURN_IF_ERROR(stage->executor().Drain());
  EXPECT_TRUE(before == TiersOf(*stage, device)) << "steps took more";
  return absl::OkStatus();
}

class OffloadMemoryTest : public ::testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(Table, OffloadMemoryTest, ::testing::ValuesIn(Rows()));

TEST_P(OffloadMemoryTest, LedgersAreThePlanToTheByte) {
  const Row& row = GetParam();
  const auto plan = PlanRun(
      {.recipe = kRecipe, .sets = row.sets, .ranks = row.ranks, .threads = 1},
      BuiltInModels());
  ASSERT_TRUE(plan.ok()) << std::string(plan.status().message());
  const auto printed = nlohmann::json::parse(ToJson(*plan, false));
  ASSERT_EQ(plan->stages.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    SCOPED_TRACE(absl::StrCat("stage ", i));
    const StagePlan& stage = plan->stages[i];
    const nlohmann::json& bytes = printed["stages"][i]["bytes"];
    EXPECT_EQ(bytes["total"], stage.account.total());
    EXPECT_EQ(bytes.value("host", int64_t{0}), stage.account.host);
    EXPECT_EQ(bytes.value("fetched", int64_t{0}), stage.account.fetched);
    const absl::Status status = RunRanks(row.ranks, [&](Communicator& comm) {
      return RunStage(row, i, stage, comm);
    });
    ASSERT_TRUE(status.ok()) << std::string(status.message());
  }
}

// Where there is more than one micro-batch each adds to it; the largest is of
// the embedding, which is the head's too.
TEST(OffloadMemory, TheLargestGradientComesWhole) {
  const Row row{.sets = {"model.tied=true", "model.vocab=5000",
                         "model.layers=2", "data.seq=16", "run.micro_batch=2",
                         "stage.0.offload={gradients=\"host\"}"}};
  const auto plan =
      PlanRun({.recipe = kRecipe, .sets = row.sets}, BuiltInModels());
  ASSERT_TRUE(plan.ok()) << std::string(plan.status().message());
  const StagePlan& stage = plan->stages[0];
  const int64_t largest = 5000 * 32 * SizeOf(DType::kF32);
  EXPECT_GT(stage.account.host, largest);
  EXPECT_GE(stage.account.fetched, largest);
  EXPECT_LT(stage.account.fetched, 2 * largest);
  const absl::Status status = RunRanks(
      1, [&](Communicator& comm) { return RunStage(row, 0, stage, comm); });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
}

}  // namespace
}  // namespace delink::testing::offload_memory_test
