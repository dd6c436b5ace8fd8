// Runs whose weights, gradients and optimizer state are at home on the host or
// on the device, slab by slab, updated here or there, and whose blocks'
// activations go to the host between forward and backward, with the switch of
// Pseudo-to-Real in the middle, clipping active and one step that is not
// finite: the bits of the same run, of the same order, layout and
// micro-batches, of which all is on the device; and stopped, and gone on with
// with other homes. Configurations are drawn; of a failure the whole one is
// told, as a command line (of a model that marked_models.h has).
//
//   DELINK_OFFLOADS=1000 DELINK_OFFLOADS_SEED=2 offload_run_test
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/hdf5/hdf5.h"
#include "tests/recipes/run/marked_models.h"
#include "tests/recipes/run/run_table.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::offload_run_test {
namespace {

const int64_t kSteps = RunSteps();
constexpr int64_t kLength = 16, kBatch = 8;
constexpr uint64_t kRows = 0, kFullRows = 80;
constexpr uint64_t kOfReference = 2;  // rows with the same resident run
constexpr double kClip = 0.5;

constexpr Change kRun = Change::kRun, kNothing = Change::kNothing;

// "tensor context pipeline data"
const char* const kParallel[] = {"tensor", "context", "pipeline", "data"};

// Of a key of `offload`, where it is said.
Axis Home(const std::string& key) {
  Axis axis{.name = key, .change = kNothing, .values = {{"unsaid"}}};
  for (const char* const where : {"device", "host"}) {
    axis.values.push_back({where, absl::StrCat(key, "=\"", where, "\"")});
  }
  return axis;
}

const std::vector<Axis> kAxes = {
    {"model",
     kRun,
     {{"gpt"},
      {"llama"},
      {"llama one", "model.kv_heads=1"},
      {"moe"},
      {"m6", "model.capacity=0"}}},
    {"tied",
     kRun,
     {{"false", "model.tied=false"}, {"true", "model.tied=true"}}},
    {"share",
     kRun,
     {{"none", "stage.0.share=none"},
      {"groups", "stage.0.share=groups:2"},
      {"all"}}},
    {"optimizer", kRun, Optimizers()},
    {"precision", kRun, Precisions(), {}, true},
    {"order", kRun, {{"micro_batch"}, {"layer", "run.order=layer"}}},
    {"micro_batch",
     kRun,
     {{"1", "run.micro_batch=1"}, {"2", "run.micro_batch=2"}}},
    {"ranks",
     kRun,
     {{"1 1 1 1"},
      {"1 1 1 2"},
      {"2 1 1 1"},
      {"1 2 1 1"},
      {"1 1 2 1"},
      {"1 1 1 4"},
      {"2 1 1 2"},
      {"1 2 1 2"},
      {"1 1 2 2"},
      {"2 1 2 1"},
      {"2 2 1 1"}},
     {},
     true},
    {"zero", kNothing, {{"0"}, {"1"}, {"2"}, {"after"}}},
    {"reduce",
     kRun,
     {{"step"},
      {"micro_batch",
       "stage.0.parallel.reduce=micro_batch "
       "stage.1.parallel.reduce=micro_batch"}}},
    {"recompute",
     kNothing,
     {{"norm+activation"},
      {"none", "run.recompute=none"},
      {"block", "run.recompute=block"}}},
    {"threads", kNothing, {{"none"}, {"of lanes"}}},
    {"stages", kNothing, {{"1"}, {"0"}, {"01"}}},  // that have `offload`
    {"resident",
     kNothing,
     {{"unsaid"},
      {"0", "resident=0.0"},
      {"0.25", "resident=0.25"},
      {"0.5", "resident=0.5"},
      {"1", "resident=1.0"}}},
    Home("weights"),
    Home("gradients"),
    Home("state"),
    Home("update"),
    Home("activations"),
    {"rows",
     kNothing,
     {{"none"},
      {"a block", "rows=[{match=\"blocks/1/*\",update=\"host\"}]"},
      {"parts",
       "rows=[{match=\"*/mlp/*\",update=\"host\"},"
       "{match=\"*/attn/*\",state=\"host\",update=\"device\"}]"},
      {"embedding", "rows=[{match=\"embed/*\",weights=\"host\"}]"},
      {"all but one",
       "rows=[{match=\"blocks/0/*\",weights=\"device\",gradients=\"device\"},"
       "{match=\"*\",weights=\"host\",gradients=\"host\"}]"}}},
    // Steps after the switch.
    {"stop", kNothing, {{"-4"}, {"-2"}, {"0"}, {"1"}, {"4"}}},
};

// Keys of `offload`.
const std::vector<std::string> kOfOffload = {
    "resident", "weights",     "gradients", "state",
    "update",   "activations", "rows"};

const std::vector<Rule> kRules = {
    {"reduce", {"micro_batch"}, "zero", {"2"}},
    {"ranks", {"1 1 2 1", "1 1 2 2", "2 1 2 1"}, "order", {"micro_batch"}},
    // One key or value head cannot be cut.
    {"model",
     {"llama one"},
     "ranks",
     {"1 1 1 1", "1 1 1 2", "1 2 1 1", "1 1 2 1", "1 1 1 4", "1 2 1 2",
      "1 1 2 2"}},
    {"model", {"m6"}, "rows", {"none", "a block", "embedding", "all but one"}},
};

uint64_t Seed() { return FromEnvironment("DELINK_OFFLOADS_SEED", 1); }

std::string Recipe(const Configuration& c) {
  const std::string& model = c.at("model");
  if (model == "moe" || model == "m6") return "tiny_" + model;
  return model == "gpt" ? "tiny" : "tiny_llama";
}

int RanksOf(const Configuration& c) {
  int ranks = 1;
  for (size_t i = 0; i < 4; ++i) ranks *= c.at("ranks")[2 * i] - '0';
  return ranks;
}

// Whether tensor ranks exchange parts of matrices for an update, which the host
// then cannot do.
bool UpdatesTogether(const Configuration& c) {
  const std::string& optimizer = c.at("optimizer");
  return c.at("ranks").front() != '1' &&
         (optimizer == "muon" || optimizer == "adafactor");
}

// One is cut by what its layers cost, recompute included, and where it is cut
// sums are made of other parts.
bool HasPipeline(const Configuration& c) { return c.at("ranks")[4] != '1'; }

std::vector<std::string> Sets(const Configuration& c) {
  std::vector<std::string> sets = StepWords(), offload;
  for (const Axis& axis : kAxes) {
    const bool of_host = axis.name == "update" ||
                         (axis.name == "rows" && (c.at("rows") == "a block" ||
                                                  c.at("rows") == "parts"));
    if (of_host && UpdatesTogether(c)) continue;
    const bool here = std::find(kOfOffload.begin(), kOfOffload.end(),
                                axis.name) != kOfOffload.end();
    const std::vector<Axis> one = {axis};
    const std::vector<std::string> words = RunTable(one, {}, 0).Sets(c);
    (here ? offload : sets)
        .insert((here ? offload : sets).end(), words.begin(), words.end());
  }
  for (size_t i = 0; i < 4; ++i) {
    sets.push_back(absl::StrCat("stage.0.parallel.", kParallel[i], "=",
                                c.at("ranks").substr(2 * i, 1)));
  }
  const std::string& zero = c.at("zero");
  const bool after = zero == "after";
  if (!after) sets.push_back("stage.0.parallel.zero=" + zero);
  sets.push_back("stage.1.parallel.zero=" + (after ? "3" : zero));
  for (const char stage : c.at("stages")) {
    if (offload.empty()) break;
    sets.push_back(absl::StrCat("stage.", std::string(1, stage), ".offload={",
                                absl::StrJoin(offload, ","), "}"));
  }
  return sets;
}

std::string Command(const Configuration& c) {
  return TrainCommand(RanksOf(c), Recipe(c), Sets(c));
}

// The same with all on the device.
Configuration Resident(Configuration c) {
  for (const std::string& key : kOfOffload) c[key] = "unsaid";
  c["rows"] = "none";
  c["stages"] = "1";
  if (c.at("reduce") == "step") c["zero"] = "0";
  if (!HasPipeline(c)) c["recompute"] = "norm+activation";
  c["threads"] = "none";
  return c;
}

struct Row {
  Configuration configuration;
  uint64_t index;
  friend std::ostream& operator<<(std::ostream& out, const Row& row) {
    return out << Command(row.configuration);
  }
};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  for (const Configuration& c :
       RunTable(kAxes, kRules, Seed())
           .Cover({}, RowCount("DELINK_OFFLOADS", kRows, kFullRows),
                  kOfReference - 1)) {
    rows.push_back({c, rows.size()});
  }
  return rows;
}
// Those of a reference together, so that one process makes it.
std::vector<std::vector<Row>> RowsByReference() {
  std::vector<std::vector<Row>> groups;
  for (const Row& row : Rows()) {
    if (row.index % kOfReference == 0) groups.emplace_back();
    groups.back().push_back(row);
  }
  return groups;
}

// What metrics say of steps and of the switch that does not hang on time and
// memory.
std::vector<nlohmann::json> Facts(const TinyRuns& runs, const std::string& of,
                                  bool steps_only) {
  std::vector<nlohmann::json> facts = runs.RowsOf(
      of, {"step", "tokens", "stage", "loss", "lr", "grad_norm", "norms",
           "skipped", "validation_loss", "loss_before", "loss_after"});
  if (steps_only) {
    std::erase_if(facts, [](const auto& row) { return !row.contains("loss"); });
  }
  return facts;
}

class OffloadRunTest : public ::testing::TestWithParam<std::vector<Row>> {
 protected:
  OffloadRunTest() : runs_(RunsOf(Recipe(GetParam()[0].configuration))) {}

  // Runs of a model, and those that are resident.
  struct Runs {
    explicit Runs(const std::string& recipe)
        : runs(recipe, MarkedText(kSteps * kBatch * 10 / 9 + 10, kLength)) {
      runs.sets = {"run.checkpoint_every=0",
                   "run.norms_every=5",
                   "model.layers=4",
                   "model.dim=16",
                   "data.validation_batches=1",
                   absl::StrCat("run.validate_every=", kSteps / 2),
                   "optimizer.skip.nonfinite=true",
                   absl::StrCat("optimizer.clip=", kClip),
                   absl::StrCat("data.seq=", kLength)};
      if (recipe == "tiny_llama" || recipe == "tiny_moe") {
        runs.sets.insert(runs.sets.end(), {"model.head_dim=4", "model.ffn=40"});
      }
    }
    TinyRuns runs;
    std::map<std::string, std::string> references;  // folders
  };
  static Runs& RunsOf(const std::string& recipe) {
    static std::map<std::string, Runs> all;
    return all.try_emplace(recipe, recipe).first->second;
  }

  void Go(const Configuration& c, RunRequest request) {
    SCOPED_TRACE(Command(c));
    request.sets = Sets(c);
    request.ranks = RanksOf(c);
    request.lane_threads = c.at("threads") == "of lanes";
    request.models = MarkedModels;
    ASSERT_NO_FATAL_FAILURE(runs_.runs.Go(request));
  }
  // The row's resident run, which is made once.
  void MakeReference(const Configuration& row) {
    const Configuration c = Resident(row);
    std::string& folder = runs_.references[Command(c)];
    if (folder.empty()) {
      const std::string name =
          absl::StrCat("reference", runs_.references.size());
      ASSERT_NO_FATAL_FAILURE(Go(c, {.out = name}));
      ASSERT_NO_FATAL_FAILURE(ExpectClippedAndSkipped(name));
      folder = name;
    }
    if (reference_ == folder) return;
    reference_ = folder;
    resident_ = runs_.runs.Load(folder, kSteps);
  }
  void ExpectClippedAndSkipped(const std::string& folder) {
    int skipped = 0, clipped = 0;
    for (const nlohmann::json& row : runs_.runs.Rows(folder)) {
      if (!row.contains("loss")) continue;
      if (row.contains("skipped")) {
        ++skipped;
      } else if (row["grad_norm"] > kClip) {
        ++clipped;
      }
    }
    EXPECT_EQ(skipped, 1);
    EXPECT_GT(clipped, 0);
  }
  void ExpectAsResident(const std::string& folder, bool steps_only) {
    const TinyRuns& runs = runs_.runs;
    EXPECT_EQ(Facts(runs, reference_, steps_only),
              Facts(runs, folder, steps_only));
    EXPECT_EQ(FirstDifference(resident_, runs.Load(folder, kSteps)), "");
    EXPECT_EQ(UpdatesOf(reference_), UpdatesOf(folder));
  }
  // By parameter.
  std::map<std::string, int64_t> UpdatesOf(const std::string& folder) {
    const auto file = hdf5::File::OpenReadOnly(
        runs_.runs.Checkpoint(folder, kSteps) + "/index.h5", "rank");
    EXPECT_TRUE(file.ok()) << file.status();
    std::map<std::string, int64_t> updates;
    if (file.ok()) AddUpdates(*file, "/optimizer", &updates);
    EXPECT_FALSE(updates.empty());
    return updates;
  }
  static void AddUpdates(const hdf5::File& file, const std::string& group,
                         std::map<std::string, int64_t>* updates) {
    const auto count = file.GetInt(group, "updates");
    if (count.ok()) {
      (*updates)[group] = *count;
      return;
    }
    const std::vector<hdf5::Child> children = *file.List(group);
    for (const hdf5::Child& child : children) {
      AddUpdates(file, absl::StrCat(group, "/", child.name), updates);
    }
  }

  void GoesOnWithOtherHomes(const Row& row);

  Runs& runs_;
  std::string reference_;  // the folder of a resident run
  Tensors resident_;       // what it came to
};
INSTANTIATE_TEST_SUITE_P(Table, OffloadRunTest,
                         ::testing::ValuesIn(RowsByReference()));

TEST_P(OffloadRunTest, IsTheResidentRun) {
  for (const Row& row : GetParam()) {
    ASSERT_NO_FATAL_FAILURE(MakeReference(row.configuration));
    const std::string out = absl::StrCat("run", row.index);
    SCOPED_TRACE(Command(row.configuration));
    ASSERT_NO_FATAL_FAILURE(Go(row.configuration, {.out = out}));
    ExpectAsResident(out, false);
    if (row.index % 2 == 0) {
      ASSERT_NO_FATAL_FAILURE(GoesOnWithOtherHomes(row));
    }
  }
}

void OffloadRunTest::GoesOnWithOtherHomes(const Row& row) {
  const Configuration& c = row.configuration;
  Configuration then =
      RunTable(kAxes, kRules, Seed() + row.index).Another(c, {kNothing});
  if (HasPipeline(then)) then["recompute"] = c.at("recompute");
  const std::string out = absl::StrCat("stopped", row.index);
  const int64_t stop = kSteps / 2 + std::atoll(c.at("stop").c_str());
  ASSERT_NO_FATAL_FAILURE(Go(c, {.out = out, .until_step = stop}));
  SCOPED_TRACE("stopped, then: " + Command(then));
  ASSERT_NO_FATAL_FAILURE(Go(then, {.out = out, .resume = true}));
  ExpectAsResident(out, true);
}

// In every order and with every recompute, in rows of which nothing stays.
TEST(OffloadTable, HasActivationsOnTheHost) {
  std::map<std::string, int> rows;
  for (const Row& row : Rows()) {
    const Configuration& c = row.configuration;
    const bool stays = c.at("resident") == "0.5" || c.at("resident") == "1";
    if (c.at("activations") != "host" || stays) continue;
    ++rows[c.at("order")];
    ++rows[c.at("recompute")];
    ++rows[HasPipeline(c) ? "pipeline" : "no pipeline"];
  }
  for (const char* const of : {"micro_batch", "layer", "norm+activation",
                               "none", "block", "pipeline", "no pipeline"}) {
    EXPECT_GT(rows[of], 0) << of;
  }
}

// Of each micro-batch, of the four blocks what is not wanted first again.
TEST(OffloadTrace, SaysWhichSlotsGo) {
  TinyRuns runs;
  const std::string file = runs.Folder("trace.json");
  ASSERT_NO_FATAL_FAILURE(runs.Go(
      {.sets = {"model.layers=4", "stage.0.offload={activations=\"host\"}"},
       .out = "run",
       .until_step = 2,
       .trace = file,
       .trace_steps = {2, 2}}));
  const nlohmann::json trace = nlohmann::json::parse(std::ifstream(file));
  int64_t stored = 0, loaded = 0, events = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (!event.contains("args") || !event["args"].contains("bytes")) continue;
    const std::string name = event["name"];
    const int64_t bytes = event["args"]["bytes"];
    if (name.starts_with("Store(")) stored += bytes;
    if (name.starts_with("Load(")) loaded += bytes;
    events += name.starts_with("Store(1,") ? 1 : 0;
  }
  EXPECT_GT(events, 0);
  EXPECT_GT(stored, 0);
  EXPECT_EQ(stored, loaded);
}

// Bytes of what comes and of what goes, in f32 the same of a slab's weights and
// gradient.
TEST(OffloadTrace, SaysWhatCopiesBring) {
  TinyRuns runs;
  const std::string file = runs.Folder("trace.json");
  ASSERT_NO_FATAL_FAILURE(
      runs.Go({.sets = {"stage.0.offload={update=\"host\"}"},
               .out = "run",
               .until_step = 2,
               .trace = file,
               .trace_steps = {2, 2}}));
  const nlohmann::json trace = nlohmann::json::parse(std::ifstream(file));
  std::map<std::string, int64_t> bytes;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (!event.contains("args") || !event["args"].contains("bytes")) continue;
    bytes[event["name"]] = event["args"]["bytes"];
  }
  int fetched = 0;
  for (const auto& [name, count] : bytes) {
    if (!name.starts_with("Fetch(")) continue;
    const size_t end = name.find(')') + 1;
    std::string gradient = name;
    gradient.replace(0, 5, "Evict").insert(end, "g");
    EXPECT_GT(count, 0) << name;
    ASSERT_TRUE(bytes.contains(gradient)) << gradient;
    EXPECT_EQ(count, bytes.at(gradient)) << name;
    ++fetched;
  }
  EXPECT_GT(fetched, 0);
}

}  // namespace
}  // namespace delink::testing::offload_run_test
