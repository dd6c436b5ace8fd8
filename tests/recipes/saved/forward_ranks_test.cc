// A checkpoint that several ranks have together: what it is worth and what it
// says, against one process that has all of it.
#include "parallel/inference/forward_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/evaluate.h"
#include "recipes/saved/evaluate_choices.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/loglikelihood.h"
#include "recipes/saved/saved_model.h"
#include "tests/framework/module/counting_device.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::forward_ranks_test {
namespace {

using ::testing::HasSubstr;
using Sets = std::vector<std::string>;

constexpr int64_t kStep = 12;  // after the switch

constexpr char kQuestions[] =
    "{\"question\": \"the slab of a\", \"options\": [\"layer\", \"weights\"], "
    "\"answer\": 1}\n"
    "{\"question\": \"\", \"options\": [\"the slab\", \"x\"], \"answer\": 1}\n";
// Three batches of one length and one of another: over two places, one place
// changes its passes where the other does not.
constexpr char kPairs[] =
    "{\"context\": \"the slab of a\", \"continuation\": \" layer\"}\n"
    "{\"context\": \"a\", \"continuation\": \" slab\"}\n"
    "{\"text\": \"the slab of a layer holds its weights and moves. the slab of "
    "a layer holds its weights and moves. and the next layer its own, which "
    "moves too.\"}\n";

// Notes what is taken of it for weights.
class WeightsDevice final : public CountingDevice {
 public:
  explicit WeightsDevice(int64_t* bytes) : bytes_(bytes) {}
  absl::StatusOr<void*> Allocate(int64_t bytes,
                                 std::string_view what) override {
    if (what.starts_with("weights of ")) *bytes_ += bytes;
    return CountingDevice::Allocate(bytes, what);
  }

 private:
  int64_t* const bytes_;
};

// Has no room for weights.
class SmallDevice final : public CountingDevice {
 public:
  absl::StatusOr<void*> Allocate(int64_t bytes,
                                 std::string_view what) override {
    if (what.starts_with("weights of ")) {
      return absl::ResourceExhaustedError("out of memory");
    }
    return CountingDevice::Allocate(bytes, what);
  }
};

class ForwardRanksTest : public ::testing::TestWithParam<const char*> {
 protected:
  ForwardRanksTest() : runs_(GetParam()) {
    runs_.Go({.out = "run", .until_step = kStep});
    EXPECT_TRUE(WriteFile(runs_.Folder("questions.jsonl"), kQuestions).ok());
    EXPECT_TRUE(WriteFile(runs_.Folder("pairs.jsonl"), kPairs).ok());
  }
  EvaluateOptions Options(const Sets& sets) const {
    return {.checkpoint = runs_.Folder("run"),
            .sets = sets,
            .data = runs_.Folder("corpus"),
            .batches = 2};
  }
  // The same on all ranks.
  double LossOn(int ranks, const Sets& sets) const {
    std::vector<double> losses(static_cast<size_t>(ranks));
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      DELINK_ASSIGN_OR_RETURN(const Evaluation result,
                              Evaluate(Options(sets), BuiltInModels(), comm));
      losses[static_cast<size_t>(comm.rank())] = result.loss;
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    for (const double loss : losses) EXPECT_EQ(loss, losses[0]);
    return losses[0];
  }
  // Of questions and texts, in order, and the bytes of the weights of the rank
  // that has most; the same scores on all ranks.
  struct Scored {
    std::vector<double> scores;
    int64_t most_bytes = 0;
  };
  Scored ScoresOn(int ranks, const Sets& sets) const {
    std::vector<std::vector<double>> scores(static_cast<size_t>(ranks));
    std::vector<int64_t> bytes(scores.size());
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      std::vector<double>& to = scores[static_cast<size_t>(comm.rank())];
      const auto device =
          [&](const Recipe&) -> absl::StatusOr<std::unique_ptr<Device>> {
        return std::make_unique<WeightsDevice>(
            &bytes[static_cast<size_t>(comm.rank())]);
      };
      DELINK_ASSIGN_OR_RETURN(
          const ChoiceEvaluation choices,
          EvaluateChoices({.checkpoint = runs_.Folder("run"),
                           .sets = sets,
                           .choices = runs_.Folder("questions.jsonl"),
                           .device = device},
                          BuiltInModels(), comm));
      for (const ScoredQuestion& question : choices.questions) {
        for (const ScoredOption& option : question.options) {
          to.push_back(option.log_likelihood);
        }
      }
      DELINK_ASSIGN_OR_RETURN(
          const LoglikelihoodEvaluation texts,
          EvaluateLoglikelihood({.checkpoint = runs_.Folder("run"),
                                 .sets = sets,
                                 .pairs = runs_.Folder("pairs.jsonl"),
                                 .device = device},
                                BuiltInModels(), comm));
      for (const ScoredPair& pair : texts.pairs) {
        for (const ScoredToken& token : pair.tokens) {
          to.push_back(token.log_likelihood);
          to.push_back(token.greedy ? 1 : 0);
        }
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    for (const auto& of : scores) EXPECT_EQ(of, scores[0]);
    return {scores[0], *std::max_element(bytes.begin(), bytes.end())};
  }
  // As many as make the context begin anew once.
  std::vector<int32_t> TokensOn(int ranks, const Sets& sets) const {
    std::vector<std::vector<int32_t>> tokens(static_cast<size_t>(ranks));
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      const ModelList models = BuiltInModels();
      DELINK_ASSIGN_OR_RETURN(
          const auto saved, SavedModel::Open(comm, runs_.Folder("run"), models,
                                             DType::kF32, sets));
      DELINK_ASSIGN_OR_RETURN(const Layout::Options layout,
                              saved->LayoutFor(ranks));
      const std::unique_ptr<Device> device = NewCpuDevice();
      DELINK_ASSIGN_OR_RETURN(const auto store,
                              saved->Load(comm, *device, {}, layout));
      DELINK_ASSIGN_OR_RETURN(const auto together,
                              ForwardRanks::Create(*store, comm));
      Generator generator(saved->model(), *store,
                          {.positions = saved->recipe().model->max_seq,
                           .ranks = ranks > 1 ? together.get() : nullptr});
      generator.Prompt(std::vector<int32_t>{100, 101, 102});
      for (int i = 0; i < 40; ++i) {
        tokens[static_cast<size_t>(comm.rank())].push_back(generator.Next());
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    for (const auto& of : tokens) EXPECT_EQ(of, tokens[0]);
    return tokens[0];
  }

  const TinyRuns runs_;
};
INSTANTIATE_TEST_SUITE_P(Models, ForwardRanksTest,
                         ::testing::ValuesIn(kDenseRecipes));

// With mixtures of experts. Sums of two outputs are the same bits in any order.
class ForwardExpertsTest : public ForwardRanksTest {
 protected:
  static bool SumsOfTwo() { return std::string(GetParam()) == "tiny_moe"; }
  static Sets Layout(const std::string& keys) {
    return {absl::StrCat("stage.1.parallel={", keys, "}")};
  }
  absl::Status ErrorOn(int ranks, const Sets& sets) const {
    return RunRanks(ranks, [&](Communicator& comm) {
      return Evaluate(Options(sets), BuiltInModels(), comm).status();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Models, ForwardExpertsTest,
                         ::testing::Values("tiny_moe", "tiny_m6"));

struct ExpertLayout {
  int ranks;
  std::string keys;
};
const ExpertLayout kExpertLayouts[] = {{2, "expert=2"},
                                       {4, "expert=4"},
                                       {4, "pipeline=2,expert=2"},
                                       {2, "tensor=2,expert=2"},
                                       {4, "tensor=2,expert=4"},
                                       {4, "tensor=4,expert=2"},
                                       {8, "tensor=2,pipeline=2,expert=4"},
                                       {3, "zero=3"},
                                       {4, "expert=2,zero=3"},
                                       {4, "tensor=2,expert=2,zero=3,shard=1"}};

TEST_P(ForwardExpertsTest, HaveTheLossTheScoresAndTheWordsOfOneProcess) {
  const double loss = LossOn(1, {});
  const Scored one = ScoresOn(1, {});
  const std::vector<int32_t> tokens = TokensOn(1, {});
  for (const auto& [ranks, keys] : kExpertLayouts) {
    if (keys.starts_with("tensor=4") && SumsOfTwo()) continue;  // 2 kv_heads
    SCOPED_TRACE(keys);
    const bool same = SumsOfTwo() && keys.find("tensor") == keys.npos;
    const Sets sets = Layout(keys);
    EXPECT_NEAR(LossOn(ranks, sets), loss, same ? 0 : 1e-6);
    EXPECT_EQ(TokensOn(ranks, sets), tokens);
    const Scored found = ScoresOn(ranks, sets);
    ASSERT_EQ(found.scores.size(), one.scores.size());
    for (size_t i = 0; i < one.scores.size(); ++i) {
      EXPECT_NEAR(found.scores[i], one.scores[i], same ? 0 : 1e-4) << i;
    }
    EXPECT_LT(found.most_bytes, 0.8 * static_cast<double>(one.most_bytes));
    // Each half of the ranks has some of the sequences.
    if (ranks <= 4) {
      EXPECT_NEAR(LossOn(2 * ranks, sets), loss, same ? 0 : 1e-6);
    }
  }
  // All weights on each rank.
  EXPECT_EQ(LossOn(4, Layout("")), loss);
}

TEST_P(ForwardExpertsTest, StreamWhatIsAtHomeOnTheHost) {
  for (const auto& [ranks, keys] : kExpertLayouts) {
    if (ranks != 4 || keys.starts_with("tensor=4")) continue;
    SCOPED_TRACE(keys);
    Sets sets = Layout(keys);
    const Scored scored = ScoresOn(ranks, sets);
    const std::vector<int32_t> tokens = TokensOn(ranks, sets);
    sets.emplace_back("stage.1.offload.weights=host");
    const Scored streamed = ScoresOn(ranks, sets);
    EXPECT_EQ(streamed.scores, scored.scores);
    EXPECT_LT(streamed.most_bytes, scored.most_bytes);
    EXPECT_EQ(TokensOn(ranks, sets), tokens);
  }
}

// As the checkpoint's stage has them, if so many ranks or a multiple were
// started; else each has all weights, as with ZeRO-2.
TEST_P(ForwardExpertsTest, AreArrangedAsInTraining) {
  const double loss = LossOn(1, {});
  const int64_t all = ScoresOn(1, {}).most_bytes / 2;  // loaded twice
  // Nearly the same weights, in checkpoints of these layouts.
  const std::string four[] = {"data=4,expert=4", "data=4,zero=3,shard=4",
                              "data=4,zero=2"};
  for (int i = 0; i < 6; ++i) {
    const std::string& keys = four[i / 2];
    const int ranks = i % 2 == 0 ? 2 : 4;
    SCOPED_TRACE(absl::StrCat(ranks, " ranks of ", keys));
    if (ranks == 2) {
      runs_.Go(
          {.ranks = 4, .sets = Layout(keys), .out = keys, .until_step = kStep});
    }
    const bool shards = ranks == 4 && keys != "data=4,zero=2";
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      EvaluateOptions options = Options({});
      options.checkpoint = runs_.Folder(keys);
      int64_t bytes = 0;
      options.device =
          [&](const Recipe&) -> absl::StatusOr<std::unique_ptr<Device>> {
        return std::make_unique<WeightsDevice>(&bytes);
      };
      DELINK_ASSIGN_OR_RETURN(const Evaluation result,
                              Evaluate(options, BuiltInModels(), comm));
      EXPECT_NEAR(result.loss, loss, 1e-3);
      EXPECT_EQ(bytes < all, shards) << bytes << " of " << all;
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

// A rank that fails ends those that wait for it, at whatever data place.
TEST_P(ForwardExpertsTest, EndTogether) {
  class NoRoom final : public CountingDevice {
   public:
    absl::StatusOr<void*> Allocate(int64_t bytes,
                                   std::string_view what) override {
      if (!what.starts_with("weights of ")) {
        return absl::ResourceExhaustedError("no room for activations");
      }
      return CountingDevice::Allocate(bytes, what);
    }
  };
  for (const std::string keys : {"expert=4", "zero=3"}) {
    SCOPED_TRACE(keys);
    const absl::Status status = RunRanks(4, [&](Communicator& comm) {
      const auto device =
          [&](const Recipe&) -> absl::StatusOr<std::unique_ptr<Device>> {
        if (comm.rank() == 3) return std::make_unique<NoRoom>();
        return NewCpuDevice();
      };
      const absl::Status mine =
          EvaluateChoices({.checkpoint = runs_.Folder("run"),
                           .sets = Layout(keys),
                           .choices = runs_.Folder("questions.jsonl"),
                           .device = device},
                          BuiltInModels(), comm)
              .status();
      EXPECT_THAT(std::string(mine.message()), HasSubstr("no room for"));
      return mine;
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  }
}

TEST_P(ForwardExpertsTest, SayWhatWouldFit) {
  for (const auto& [ranks, keys, why] :
       std::vector<std::tuple<int, std::string, std::string>>{
           {3, "expert=3",
            "stage[1].parallel.expert: 3 does not divide the 8 experts of "
            "blocks/"},
           {3, "expert=3", "; use expert 2 or 4"},
           {2, "expert=4",
            "stage[1].parallel: tensor 1 x pipeline 1 with expert 4 is 4 ranks "
            "or a multiple, but 2 were started; start it with mpirun -np 4"},
           {2, "tensor=2,pipeline=2,expert=4", "start it with mpirun -np 8"},
           {2, "zero=3,shard=4",
            "tensor 1 x pipeline 1 with shard 4 is 4 ranks or a multiple, but "
            "2 were started; start it with mpirun -np 4"},
           {12, "tensor=2,expert=4,zero=3,shard=3",
            "stage[1].parallel.shard: 3 x tensor 2 neither divides expert 4 "
            "nor is a multiple of it; use shard 2"},
           {1, "expert=0",
            "parallel.expert is a whole number of at least 1 and at most "
            "1048576, not the integer 0"},
           {1, "expert=1048577", "not the integer 1048577"}}) {
    const absl::Status status = ErrorOn(ranks, Layout(keys));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << keys;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }
}

TEST_P(ForwardRanksTest, HaveTheLossAndTheWordsOfOneProcess) {
  const double loss = LossOn(1, {});
  const std::vector<int32_t> tokens = TokensOn(1, {});
  const std::string stage = "stage.1.parallel.";
  EXPECT_EQ(LossOn(2, {}), loss);
  for (const auto& [ranks, layout] :
       std::vector<std::pair<int, Sets>>{{3, {"pipeline=3"}},
                                         {2, {"tensor=2"}},
                                         {4, {"tensor=4"}},
                                         {4, {"tensor=2", "pipeline=2"}},
                                         {3, {"zero=3"}},
                                         {4, {"shard=2", "zero=3"}},
                                         {4, {"zero=3", "pipeline=2"}},
                                         {4, {"tensor=2", "zero=3"}}}) {
    Sets sets;
    for (const std::string& set : layout) sets.push_back(stage + set);
    SCOPED_TRACE(absl::StrCat(sets.front(), " and ", sets.back()));
    const bool same = !layout.front().starts_with("tensor");
    EXPECT_NEAR(LossOn(ranks, sets), loss, same ? 0 : 1e-6);
    EXPECT_EQ(TokensOn(ranks, sets), tokens);
    // Each half of the ranks has some of the sequences.
    if (ranks <= 3) {
      EXPECT_NEAR(LossOn(2 * ranks, sets), loss, 1e-6);
    }
  }
}

TEST_P(ForwardRanksTest, ScoreWhatOneProcessScoresWithAPartOfTheWeightsEach) {
  const Scored one = ScoresOn(1, {});
  ASSERT_GT(one.scores.size(), 50u);
  EXPECT_EQ(ScoresOn(2, {}).scores, one.scores);
  const std::string layout = "stage.1.parallel=";
  for (const auto& [ranks, sets, part] :
       std::vector<std::tuple<int, Sets, double>>{
           {3, {layout + "{pipeline=3}"}, 0.8},
           {2, {layout + "{tensor=2}"}, 0.8},
           {4, {layout + "{tensor=2,pipeline=2}"}, 0.8},
           {4, {"stage.1.parallel.tensor=2"}, 0.8},
           {2, {layout + "{zero=3}"}, 0.6},
           {4, {layout + "{zero=3,shard=2}"}, 0.6},
           {6, {layout + "{zero=3}"}, 0.3},
           {4, {layout + "{zero=3,pipeline=2}"}, 0.4},
           {4, {layout + "{zero=3,tensor=2}"}, 0.4}}) {
    SCOPED_TRACE(sets.front());
    const bool same = sets.front().find("tensor") == std::string::npos;
    const Scored found = ScoresOn(ranks, sets);
    ASSERT_EQ(found.scores.size(), one.scores.size());
    for (size_t i = 0; i < one.scores.size(); ++i) {
      EXPECT_NEAR(found.scores[i], one.scores[i], same ? 0 : 1e-4) << i;
    }
    EXPECT_LT(found.most_bytes, part * static_cast<double>(one.most_bytes));
  }
}

// The same bits over the same ranks, with fewer weights on the device.
TEST_P(ForwardRanksTest, StreamWhatIsAtHomeOnTheHost) {
  const std::string stage = "stage.1.";
  for (const auto& [ranks, layout] : std::vector<std::pair<int, Sets>>{
           {1, {}},
           {2, {}},
           {3, {stage + "parallel={pipeline=3}"}},
           {3, {stage + "parallel={zero=3}"}},
           {4, {stage + "parallel={tensor=2,pipeline=2}"}}}) {
    const double loss = LossOn(ranks, layout);
    const Scored scored = ScoresOn(ranks, layout);
    const std::vector<int32_t> tokens =
        ranks == 2 ? std::vector<int32_t>() : TokensOn(ranks, layout);
    for (const std::string& offload :
         {stage + "offload.weights=host", stage + "offload={resident=0.0}"}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ", offload));
      Sets sets = layout;
      sets.push_back(offload);
      EXPECT_EQ(LossOn(ranks, sets), loss);
      const Scored streamed = ScoresOn(ranks, sets);
      EXPECT_EQ(streamed.scores, scored.scores);
      EXPECT_LT(streamed.most_bytes, scored.most_bytes);
      if (ranks != 2) {
        EXPECT_EQ(TokensOn(ranks, sets), tokens);
      }
    }
  }
}

// Unless --set says otherwise, where the checkpoint's stage has them.
TEST_P(ForwardRanksTest, HomesAreThoseOfTheStage) {
  const auto bytes_of = [&](const std::string& run, const Sets& sets) {
    SelfCommunicator comm;
    int64_t bytes = 0;
    EvaluateOptions options = Options(sets);
    options.checkpoint = runs_.Folder(run);
    options.device =
        [&](const Recipe&) -> absl::StatusOr<std::unique_ptr<Device>> {
      return std::make_unique<WeightsDevice>(&bytes);
    };
    const auto result = Evaluate(options, BuiltInModels(), comm);
    EXPECT_TRUE(result.ok()) << result.status();
    return bytes;
  };
  const int64_t all = bytes_of("run", {});
  const std::string offload = "stage.1.offload=";
  // The host updates, and the device has copies all the time.
  runs_.Go({.sets = {offload + "{update=\"host\"}"},
            .out = "updated",
            .until_step = kStep});
  EXPECT_EQ(bytes_of("updated", {}), all);
  runs_.Go({.sets = {offload + "{resident=0.0,update=\"host\"}"},
            .out = "streamed",
            .until_step = kStep});
  const int64_t some = bytes_of("streamed", {});
  EXPECT_LT(some, all);
  EXPECT_EQ(bytes_of("run", {offload + "{resident=0.0}"}), some);
  EXPECT_EQ(bytes_of("streamed", {offload + "{}"}), all);
  EXPECT_EQ(bytes_of("streamed", {"stage.1.offload.weights=device"}), all);
  // Within half of a budget.
  EXPECT_EQ(bytes_of("run", {offload + "{device=\"1KiB\"}"}), some);
  EXPECT_EQ(bytes_of("run", {offload + "{device=\"1GiB\"}"}), all);
}

TEST_P(ForwardRanksTest, WithoutRoomForWeightsHaveThemOnTheHost) {
  SelfCommunicator comm;
  EvaluateOptions options = Options({});
  options.device =
      [](const Recipe&) -> absl::StatusOr<std::unique_ptr<Device>> {
    return std::make_unique<SmallDevice>();
  };
  const absl::Status status = Evaluate(options, BuiltInModels(), comm).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string set = "stage.1.offload.weights=host";
  EXPECT_THAT(std::string(status.message()), HasSubstr("--set " + set));
  options.sets = {set};
  const auto result = Evaluate(options, BuiltInModels(), comm);
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST_P(ForwardRanksTest, OnlyTheCheckpointsStageIsArranged) {
  const std::string sets = "stage.1.parallel.";
  for (const auto& [set, why] :
       std::vector<std::pair<std::string, std::string>>{
           {"stage.0.parallel.tensor=2",
            "the checkpoint was saved in stage 1, so only that stage can be "
            "set; give "
            "stage.1.parallel"},
           {"stage.0.offload.weights=host", "give stage.1.offload"},
           {"stage.1.offload.weights=disc", "stage[1].offload.weights"},
           {"stage.1.offload.weight=host", "did you mean 'weights'?"},
           {"stage.1.offload.rows=[{match=\"blocks/9/*\",weights=\"host\"}]",
            "stage[1].offload.rows[0].match: 'blocks/9/*' matches no "
            "parameter; an example of a name is embed/token/weight"},
           {sets + "zero=1",
            "zero = 1 keeps whole weights on each rank; use zero = 3, or leave "
            "zero out"},
           {"stage.1.parallel={zero=2}", "zero = 2 keeps whole weights"},
           {sets + "zero=4", "parallel.zero is 0 or 3, not the integer 4"},
           {sets + "zero=true", "parallel.zero is 0 or 3, not"},
           {"stage.1.parallel={shard=2}",
            "shard = 2, but zero = 0 keeps whole weights; use zero = 3, or "
            "shard = 0"},
           {sets + "shard=-1",
            "parallel.shard is a whole number of at least 0"},
           {"stage.1.parallel={tensor=2,context=2}",
            "only tensor, pipeline, expert, zero = 3 and shard divide a "
            "checkpoint's weights among ranks; leave context out"},
           {sets + "tensor=0",
            "parallel.tensor is a whole number of at least 1 and at most "
            "1048576, not the integer 0"},
           {sets + "expert=2",
            "stage[1].parallel.expert: 2, but the model has no experts; leave "
            "it out"},
           {sets + "tensor=two", "not the string \"two\""},
           {"stage.1.parallel=2", "expected a table"},
           {"stage.1.parallelism=2", "can be set: stage.1.parallel.tensor"},
           {"stage.1.parallel", "can be set: stage.1.parallel.tensor"},
           {sets + "pipeline=9", "use at most pipeline"}}) {
    const absl::Status status = RunRanks(1, [&, set = set](Communicator& comm) {
      return Evaluate(Options({set}), BuiltInModels(), comm).status();
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << set;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }
}

// A recipe of one rank may say what several could not be trained with.
TEST_P(ForwardRanksTest, WhatTrainingCannotBeArrangedForCanBeUsed) {
  runs_.Go({.sets = {"run.order=layer", "stage.0.depth=1"},
            .out = "layers",
            .until_step = 5});
  EvaluateOptions options = Options({"stage.0.parallel.pipeline=3"});
  options.checkpoint = runs_.Folder("layers");
  const absl::Status status = RunRanks(3, [&](Communicator& comm) {
    return Evaluate(options, BuiltInModels(), comm).status();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ForwardRanksTest, ThatDoNotMultiplyOut) {
  const absl::Status status = RunRanks(3, [&](Communicator& comm) {
    return Evaluate(Options({"stage.1.parallel.tensor=2"}), BuiltInModels(),
                    comm)
        .status();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("stage[1].parallel: tensor 2 x pipeline 1 is 2 ranks or "
                "a multiple, but 3 were started; start it with mpirun "
                "-np 2"));
  const absl::Status other = RunRanks(1, [&](Communicator& comm) {
    return Evaluate(Options({"data.seq=8"}), BuiltInModels(), comm).status();
  });
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("--set data.seq=8: of a checkpoint's recipe only the "
                        "placement of weights can be set: "
                        "stage.1.parallel.tensor, stage.1.parallel.pipeline, "
                        "stage.1.parallel.expert, stage.1.parallel.zero, "
                        "stage.1.parallel.shard and stage.1.offload"));
}

}  // namespace
}  // namespace delink::testing::forward_ranks_test
