// A checkpoint that several ranks have together: what it is worth and what it
// says, against one process that has all of it.
#include "recipes/saved/forward_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/evaluate.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/saved_model.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
namespace {

using ::testing::HasSubstr;
using Sets = std::vector<std::string>;

constexpr int64_t kStep = 12;  // after the switch

class ForwardRanksTest : public ::testing::TestWithParam<const char*> {
 protected:
  ForwardRanksTest() : runs_(GetParam()) {
    runs_.Go({.out = "run", .until_step = kStep});
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
  // As many as make the context begin anew once.
  std::vector<int32_t> TokensOn(int ranks, const Sets& sets) const {
    std::vector<std::vector<int32_t>> tokens(static_cast<size_t>(ranks));
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      const ModelList models = BuiltInModels();
      DELINK_ASSIGN_OR_RETURN(
          const auto saved, SavedModel::Open(comm, runs_.Folder("run"), models,
                                             DType::kF32, sets));
      DELINK_ASSIGN_OR_RETURN(const Mesh mesh, saved->MeshFor(ranks));
      const std::unique_ptr<Device> device = NewCpuDevice();
      DELINK_ASSIGN_OR_RETURN(const auto store,
                              saved->Load(comm, *device, {}, mesh));
      DELINK_ASSIGN_OR_RETURN(
          const auto together,
          ForwardRanks::Create(store->layout(), *device, comm));
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
                         ::testing::ValuesIn(kTinyRecipes));

TEST_P(ForwardRanksTest, HaveTheLossAndTheWordsOfOneProcess) {
  const double loss = LossOn(1, {});
  const std::vector<int32_t> tokens = TokensOn(1, {});
  const std::string stage = "stage.1.parallel.";
  EXPECT_EQ(LossOn(2, {}), loss);
  for (const auto& [ranks, layout] :
       std::vector<std::pair<int, Sets>>{{3, {"pipeline=3"}},
                                         {2, {"tensor=2"}},
                                         {4, {"tensor=4"}},
                                         {4, {"tensor=2", "pipeline=2"}}}) {
    Sets sets;
    for (const std::string& set : layout) sets.push_back(stage + set);
    SCOPED_TRACE(sets.front());
    const bool same = layout.front() == "pipeline=3";
    EXPECT_NEAR(LossOn(ranks, sets), loss, same ? 0 : 1e-6);
    EXPECT_EQ(TokensOn(ranks, sets), tokens);
    // Each half of the ranks has some of the sequences.
    if (ranks <= 3) {
      EXPECT_NEAR(LossOn(2 * ranks, sets), loss, 1e-6);
    }
  }
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
              HasSubstr("--set data.seq=8: of a checkpoint's recipe only how "
                        "ranks are arranged may be another"));
}

}  // namespace
}  // namespace delink::testing
