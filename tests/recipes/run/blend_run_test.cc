// Runs on a blend of corpora: which samples they read, on any number of ranks
// and however they are stopped, held against a count that is made of the
// batches themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "data/corpus/build.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/rng.h"
#include "framework/comm/self_communicator.h"
#include "framework/hdf5/hdf5.h"
#include "recipes/run/position/position.h"
#include "recipes/run/position/saved_run.h"
#include "recipes/run/setup/sources.h"
#include "recipes/run/stage/batches.h"
#include "recipes/saved/evaluate.h"
#include "recipes/schema/recipe_io.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/source_path.h"

namespace delink::testing::blend_run_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kLossTolerance = 2e-5;

// `bytes` letters from `first` on, of which no two stretches are alike.
std::string Letters(char first, int64_t bytes) {
  std::string text;
  for (int64_t i = 0; i < bytes; ++i) {
    const uint32_t word = Philox(KeyFromSeed(5), static_cast<uint64_t>(i),
                                 static_cast<uint64_t>(first))[0];
    text += i % 50 == 49 ? '\n' : static_cast<char>(first + word % 8);
  }
  return text;
}

// Samples of each source, by its name.
using Counts = std::map<std::string, int64_t>;

class BlendRunTest : public ::testing::Test {
 protected:
  BlendRunTest()
      : runs_("tiny_blend"),
        prose_(runs_.AddCorpus("prose", Letters('a', 9000))),
        code_(runs_.AddCorpus("code", Letters('A', 2000))) {
    SetLogLevel(LogLevel::kInfo);  // what it says is looked at
    runs_.data = Both();
  }

  std::vector<std::string> Both() const {
    return {absl::StrCat("data.source.0.train=", prose_, "/train"),
            absl::StrCat("data.source.1.train=", code_, "/train")};
  }
  std::vector<std::string> ProseAlone() const {
    return {absl::StrCat("data.source=[{name=\"prose\", train=\"", prose_,
                         "/train\"}]"),
            "stage.1.blend={prose=1}"};
  }
  std::vector<SourceCount> Saved(const std::string& out, int64_t step) const {
    return SavedRun::Read(runs_.Checkpoint(out, step))->sources;
  }
  Counts SavedCounts(const std::string& out, int64_t step) const {
    Counts counts;
    for (const SourceCount& source : Saved(out, step)) {
      counts[source.name] = source.samples;
    }
    return counts;
  }
  Recipe MakeRecipe(std::vector<std::string> sets = {}) const {
    const std::vector<std::string> data = Both();
    sets.insert(sets.begin(), data.begin(), data.end());
    return *CheckWorld(*ReadRecipe(SourcePath("recipes/tiny_blend.toml"), sets,
                                   KindsOf(BuiltInModels())),
                       1);
  }

  TinyRuns runs_;
  std::string prose_, code_;
};

// Reads a run's batches as its ranks would, and counts where they come from by
// what is in them.
class Reader {
 public:
  Reader(const Recipe& recipe, const SavedRun* from)
      : recipe_(recipe),
        sources_(*Sources::Open(recipe)),
        at_(from == nullptr
                ? RunPosition(recipe_,
                              *sources_.Place(recipe_.Weights(0), from))
                : RunPosition(
                      recipe_, *from,
                      *sources_.Place(recipe_.Weights(static_cast<size_t>(
                                          from->stage_index)),
                                      from))) {}

  void ReadUntil(int64_t step, int64_t ranks) {
    while (at_.step() < step) {
      if (at_.stage() == 0 && at_.step() == 10) at_.EnterNextStage();
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const auto batch =
            ReadBatch(sources_.train(),
                      {.rank = rank,
                       .ranks = ranks,
                       .micro_batches = recipe_.data.batch / ranks,
                       .micro_batch = 1,
                       .seq = recipe_.data.seq},
                      at_.samples(), at_.blend());
        ASSERT_TRUE(batch.ok()) << batch.status();
        Count(*batch);
      }
      at_.Advance(0);
    }
  }

  SavedRun Saved() const {
    SavedRun saved = at_.Saved();
    saved.sources = sources_.Counts(at_.blend(), {});
    return saved;
  }
  const Counts& counts() const { return counts_; }
  // Sequences one after the other, over all ranks.
  const std::vector<std::vector<int32_t>>& rows() const { return rows_; }

 private:
  void Count(const HostBatch& batch) {
    const auto seq = static_cast<int64_t>(recipe_.data.seq);
    for (auto row = batch.inputs.begin(); row != batch.inputs.end();
         row += seq) {
      rows_.emplace_back(row, row + seq);
      const std::string name = *row >= 'a' || row[1] >= 'a' ? "prose" : "code";
      ++counts_[name];
    }
  }

  Recipe recipe_;
  Sources sources_;
  RunPosition at_;
  Counts counts_;
  std::vector<std::vector<int32_t>> rows_;
};

TEST_F(BlendRunTest, AnyNumberOfRanksReadsTheSameSamplesHoweverItIsStopped) {
  const Recipe recipe = MakeRecipe();
  Reader straight(recipe, nullptr);
  straight.ReadUntil(20, 1);
  // 3 to 1 for 10 steps of 8, then 1 to 2: within one sample of 60 + 26.7 and
  // 20 + 53.3.
  EXPECT_NEAR(straight.counts().at("prose"), 60 + 80 / 3.0, 1);
  EXPECT_NEAR(straight.counts().at("code"), 20 + 160 / 3.0, 1);

  std::vector<std::vector<int32_t>> rows;
  Counts counts;
  std::optional<SavedRun> saved;
  for (const auto& [step, ranks] :
       {std::pair{7, 2}, {10, 8}, {13, 4}, {14, 1}, {20, 2}}) {
    Reader part(recipe, saved ? &*saved : nullptr);
    part.ReadUntil(step, ranks);
    rows.insert(rows.end(), part.rows().begin(), part.rows().end());
    for (const auto& [name, count] : part.counts()) counts[name] += count;
    saved = part.Saved();
    for (const SourceCount& source : saved->sources) {
      EXPECT_EQ(source.samples, counts[source.name]) << step;
    }
  }
  EXPECT_EQ(rows, straight.rows());
}

TEST_F(BlendRunTest, NoSampleComesTwiceInAnEpoch) {
  Reader reader(MakeRecipe(), nullptr);
  reader.ReadUntil(20, 1);
  const int64_t epoch =
      Loader::Create(*Corpus::Open(code_ + "/train"), {.seq = 32})
          ->samples_per_epoch();
  ASSERT_LT(epoch, reader.counts().at("code"));  // there is more than one
  std::vector<std::vector<int32_t>> code;
  for (const std::vector<int32_t>& row : reader.rows()) {
    if (row[0] < 'a' && row[1] < 'a') code.push_back(row);
  }
  const auto end = code.begin() + epoch;
  EXPECT_EQ(std::set(code.begin(), end).size(), static_cast<size_t>(epoch));
  EXPECT_EQ(std::set(end, code.end()).size(),
            static_cast<size_t>(code.end() - end));
}

TEST_F(BlendRunTest, ARunThatIsStoppedAndMovedIsTheStraightOne) {
  runs_.Go({.ranks = 1, .out = "straight"});
  runs_.Go({.ranks = 2, .out = "moved", .until_step = 7});
  runs_.Go({.ranks = 4, .out = "moved", .until_step = 13, .resume = true});
  runs_.Go({.ranks = 1, .out = "moved", .resume = true});
  EXPECT_LT(LossDifference(runs_.Steps("straight"), runs_.Steps("moved")),
            kLossTolerance);
  Reader reader(MakeRecipe(), nullptr);
  for (const int64_t step : {5, 7, 10, 13, 15, 20}) {
    reader.ReadUntil(step, 1);
    EXPECT_EQ(SavedCounts("moved", step), reader.counts()) << step;
    for (const SourceCount& source : Saved("moved", step)) {
      EXPECT_EQ(source.tokens, 32 * source.samples);
    }
  }
  for (const nlohmann::json& row : runs_.Rows("moved")) {
    if (!row.contains("loss")) continue;
    int64_t tokens = 0;
    for (const auto& [name, source] : row["sources"].items()) {
      tokens += source["tokens"].get<int64_t>();
    }
    EXPECT_EQ(tokens, row["tokens"].get<int64_t>());
  }
}

TEST_F(BlendRunTest, OtherWeightsTakeEffectWhereARunResumes) {
  const std::vector<std::string> sets = {"data.source.0.weight=1",
                                         "data.source.1.weight=7"};
  runs_.Go({.ranks = 2, .out = "run", .until_step = 5});
  runs_.Go({.ranks = 1,
            .sets = sets,
            .out = "run",
            .until_step = 10,
            .resume = true});
  Counts counts = SavedCounts("run", 5);
  EXPECT_EQ(counts, (Counts{{"code", 10}, {"prose", 30}}));
  counts["code"] += 35;
  counts["prose"] += 5;
  EXPECT_EQ(SavedCounts("run", 10), counts);
  EXPECT_THAT(*ReadFile(runs_.Folder("run") + "/log.txt"),
              HasSubstr("from here on prose 12.5%, code 87.5%"));
}

TEST_F(BlendRunTest, ASourceComesGoesAndComesBack) {
  RunRequest request{.data = ProseAlone(), .out = "run", .until_step = 3};
  runs_.Go(request);
  EXPECT_EQ(SavedCounts("run", 3), (Counts{{"prose", 24}}));
  runs_.Go({.out = "run", .until_step = 5, .resume = true});
  EXPECT_EQ(SavedCounts("run", 5), (Counts{{"prose", 24 + 12}, {"code", 4}}));
  request.until_step = 7;
  request.resume = true;
  runs_.Go(request);
  EXPECT_EQ(SavedCounts("run", 7), (Counts{{"prose", 36 + 16}, {"code", 4}}));
  EXPECT_EQ(Saved("run", 7)[1].share, 0);
  // Under another name: its corpus is what counts.
  runs_.Go({.sets = {"data.source.1.name=letters", "stage.1.blend={letters=1}"},
            .out = "run",
            .until_step = 9,
            .resume = true});
  EXPECT_EQ(SavedCounts("run", 9),
            (Counts{{"prose", 52 + 12}, {"letters", 4 + 4}}));
  const std::string log = *ReadFile(runs_.Folder("run") + "/log.txt");
  EXPECT_THAT(log, HasSubstr("source code is new to the run"));
  EXPECT_THAT(log, HasSubstr("source code is not in the recipe: its 4 samples "
                             "stay counted"));
}

TEST_F(BlendRunTest, ACheckpointWithoutCountsIsOfItsOneCorpus) {
  runs_.Go({.data = ProseAlone(), .out = "run", .until_step = 2});
  const std::string path = runs_.Checkpoint("run", 2);
  {
    hdf5::File index = *hdf5::File::OpenReadWrite(path + "/index.h5");
    ASSERT_TRUE(index.Remove("/sources").ok());
    ASSERT_TRUE(index.Close().ok());
  }
  const SavedRun early = *SavedRun::Read(path);
  ASSERT_TRUE(early.sources.empty());
  const Sources sources = *Sources::Open(MakeRecipe());
  const Blend blend = *sources.Place({3, 1}, &early);
  EXPECT_EQ(blend.sources()[0].consumed, 16);
  EXPECT_EQ(blend.sources()[1].consumed, 0);
}

TEST_F(BlendRunTest, AnotherCorpusUnderANameIsRefused) {
  runs_.Go({.out = "run", .until_step = 2});
  const std::string other = runs_.AddCorpus("other", Letters('p', 3000));
  const absl::Status status = runs_.Run(
      {.sets = {absl::StrCat("data.source.1.train=", other, "/train")},
       .out = "run",
       .resume = true});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("was trained on another corpus than " + other),
                    HasSubstr("give the new one another name")));
}

TEST_F(BlendRunTest, ASourceThatEndsIsLeftOutOrRepeatedAndTheLogSaysSo) {
  runs_.Go({.sets = {"data.source.1.repeat=false"}, .out = "left"});
  const SourceCount code = Saved("left", 20)[1];
  EXPECT_EQ(code.epochs, 1);
  EXPECT_EQ(code.share, 0);
  EXPECT_EQ(Saved("left", 20)[0].samples + code.samples, 160);
  runs_.Go({.out = "repeated"});
  EXPECT_GT(Saved("repeated", 20)[1].epochs, 1);
  const auto count = [&](const std::string& out, const std::string& text) {
    const std::string log = *ReadFile(runs_.Folder(out) + "/log.txt");
    int found = 0;
    for (size_t at = log.find(text); at != std::string::npos;
         at = log.find(text, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("left", "source code has ended"), 1);
  EXPECT_EQ(count("left", "and repeat = false"), 1);
  EXPECT_EQ(count("repeated", "source code has ended"), 1);
  EXPECT_EQ(count("repeated", "from here on they are repeated"), 1);
}

TEST_F(BlendRunTest, TheRunEndsWithItsLastSource) {
  const std::vector<std::string> sets = {
      "data.repeat=false", "schedule.steps=100", "stage.0.until.steps=50"};
  runs_.Go({.ranks = 2, .sets = sets, .out = "run"});
  const absl::StatusOr<Sources> sources = Sources::Open(MakeRecipe());
  int64_t samples = 0;
  for (const Loader& loader : sources->train()) {
    samples += loader.samples_per_epoch();
  }
  const int64_t steps = samples / 8;
  ASSERT_LT(steps, 50);  // in the first stage
  EXPECT_EQ(runs_.Steps("run").size(), steps);
  EXPECT_EQ(SavedRun::Read(runs_.Checkpoint("run", steps))->samples, 8 * steps);
  nlohmann::json validated, early;
  for (const nlohmann::json& row : runs_.Rows("run")) {
    if (row.contains("validation_loss")) validated = row;
    if (row.value("event", "") == "early_end") early = row;
  }
  EXPECT_EQ(validated["step"], steps);
  EXPECT_EQ(early["step"], steps);
  EXPECT_THAT(early["why"], HasSubstr("all sources have ended"));
  // Nothing is left to go on with.
  runs_.Go({.sets = sets, .out = "run", .resume = true});
  EXPECT_EQ(runs_.Steps("run").size(), steps);
}

TEST_F(BlendRunTest, AStageWhoseSourcesHaveEndedGivesWayToTheNext) {
  runs_.Go({.sets = {"data.source.1.repeat=false", "stage.0.blend={code=1}",
                     "stage.1.blend={prose=1}", "stage.1.state=\"calibrated\""},
            .out = "run"});
  const auto steps = static_cast<int64_t>(
      Sources::Open(MakeRecipe())->train()[1].samples_per_epoch() / 8);
  ASSERT_LT(steps, 10);
  ASSERT_EQ(runs_.Switches("run").size(), 1);
  EXPECT_EQ(runs_.Switches("run")[0].step, steps);
  EXPECT_EQ(SavedCounts("run", 20),
            (Counts{{"code", 8 * steps}, {"prose", 8 * (20 - steps)}}));
}

TEST_F(BlendRunTest, LossesOfEachSource) {
  runs_.Go({.ranks = 2, .out = "run"});
  std::vector<nlohmann::json> validations;
  for (const nlohmann::json& row : runs_.Rows("run")) {
    if (row.contains("validation_loss")) validations.push_back(row);
  }
  ASSERT_EQ(validations.size(), 2);
  const nlohmann::json& row = validations.back();
  const double prose = row["validation_loss_of"]["prose"];
  const double code = row["validation_loss_of"]["code"];
  EXPECT_GT(std::abs(prose - code), 0.01);
  std::map<std::string, Evaluation> alone;
  for (const std::string& folder : {prose_, code_}) {
    SelfCommunicator comm;
    const auto evaluated = Evaluate({.checkpoint = runs_.Checkpoint("run", 20),
                                     .data = folder + "/validation",
                                     .batches = 2},
                                    BuiltInModels(), comm);
    ASSERT_TRUE(evaluated.ok()) << evaluated.status();
    alone[folder] = *evaluated;
  }
  EXPECT_NEAR(prose, alone[prose_].loss, 1e-6);
  EXPECT_NEAR(code, alone[code_].loss, 1e-6);
  const auto p = static_cast<double>(alone[prose_].tokens);
  const auto c = static_cast<double>(alone[code_].tokens);
  EXPECT_NEAR(row["validation_loss"], (p * prose + c * code) / (p + c), 1e-6);
}

TEST_F(BlendRunTest, SourcesMustBeOfOneTokenizerAndDiffer) {
  const std::string text = runs_.Folder("code.txt");
  const auto built = BuildCorpus({.inputs = {text},
                                  .out = runs_.Folder("pieces"),
                                  .train_vocab = 300,
                                  .validation = 0.1});
  ASSERT_TRUE(built.ok()) << built.status();
  const std::string pieces = runs_.Folder("pieces/train");
  absl::Status status =
      runs_.Run({.sets = {"data.source.1.train=" + pieces}, .out = "run"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("sources prose (" + prose_ + "/train, 257 tokens)"),
            HasSubstr("and code (" + pieces),
            HasSubstr("different tokenizers")));

  const std::string copy = runs_.AddCorpus("copy", Letters('a', 9000));
  status =
      runs_.Run({.sets = {absl::StrCat("data.source.1.train=", copy, "/train")},
                 .out = "run"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("are the same corpus"));
}

TEST_F(BlendRunTest, ASourceNeedsNoValidationButOneMustHaveIt) {
  ASSERT_TRUE(RemoveAll(code_ + "/validation").ok());
  runs_.Go({.out = "run", .until_step = 10});
  nlohmann::json validated;
  for (const nlohmann::json& row : runs_.Rows("run")) {
    if (row.contains("validation_loss")) validated = row;
  }
  EXPECT_EQ(validated["validation_loss_of"].size(), 1);
  EXPECT_EQ(validated["validation_loss_of"]["prose"],
            validated["validation_loss"]);
  ASSERT_TRUE(RemoveAll(prose_ + "/validation").ok());
  const absl::Status status = runs_.Run({.out = "none"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no source has a validation corpus"));
}

}  // namespace
}  // namespace delink::testing::blend_run_test
