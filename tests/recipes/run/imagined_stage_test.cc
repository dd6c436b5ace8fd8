// What is planned of ranks that take unlike much without an executor of each:
// the account that each of them makes, and which of them has most.
#include "recipes/run/dry_run/imagined_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "framework/base/at.h"
#include "recipes/models/model_list.h"
#include "recipes/run/dry_run/imagined_ranks.h"
#include "recipes/run/dry_run/like_ranks.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/schema/recipe_io.h"
#include "tests/testing/source_path.h"

namespace delink::testing::imagined_stage_test {
namespace {

using Words = std::vector<std::string>;

const std::string kRecipe = SourcePath("recipes/tiny_llama.toml");

// Stage 1 of a recipe over imagined ranks.
class Imagined {
 public:
  Imagined(const Words& sets, int ranks)
      : recipe_(
            *CheckWorld(*ReadRecipe(kRecipe, sets, KindsOf(models_)), ranks)),
        world_(ranks),
        model_(*RunModel::Create(recipe_, models_)),
        first_(*ImaginedStage::Create(model_->On(*device_, world_, world_), 1,
                                      0)) {}
  ImaginedStage& first() { return *first_; }

 private:
  const ModelList models_ = BuiltInModels();
  const Recipe recipe_;
  const std::unique_ptr<Device> device_ = NewMetaDevice();
  ImaginedRanks world_;
  const std::unique_ptr<RunModel> model_;
  const std::unique_ptr<ImaginedStage> first_;
};

Words Sets(const Words& more) {
  Words sets = {"model.vocab=61",    "model.layers=5",   "model.dim=48",
                "model.ffn=160",     "data.seq=16",      "data.batch=12",
                "run.micro_batch=1", "run.probe_every=0"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

struct Case {
  int ranks;
  Words sets;
};

// Whole tensors and 8-bit state over ranks, and uneven cuts, with homes on the
// host.
std::vector<Case> Cases() {
  const std::string all =
      "weights=\"host\", gradients=\"host\", state=\"host\"";
  const Words offloads = {
      "",
      "state=\"host\"",
      all,
      "state=\"host\", resident=0.5",
      "state=\"host\", update=\"host\", activations=\"host\"",
      "rows=[{match=\"*/mlp/*\", state=\"host\"}]"};
  const Case parallels[] = {
      {3, {"stage.1.parallel={data=3, zero=1}"}},
      {4, {"stage.1.parallel={data=4, zero=1}"}},
      {6, {"stage.1.parallel={data=3, pipeline=2, zero=1}"}},
      {4, {"stage.1.parallel={data=2, context=2, zero=1}"}}};
  std::vector<Case> cases;
  const auto add = [&](int ranks, const Words& sets, const std::string& said) {
    cases.push_back({ranks, sets});
    cases.back().sets.push_back("stage.1.offload={" + said + "}");
  };
  for (const std::string& said : offloads) {
    for (const auto& [ranks, parallel] : parallels) {
      for (const std::string kind : {"muon", "adafactor"}) {
        add(ranks, {parallel[0], "optimizer.kind=" + kind}, said);
      }
    }
    add(2, {"stage.1.parallel={tensor=2}"}, said);
    add(4,
        {"stage.1.parallel={tensor=2, data=2, zero=1}", "run.precision=bf16",
         "optimizer.moments=8bit"},
        said);
  }
  return cases;
}

// What is planned of every rank, by its likes, is what the rank itself has.
void ExpectOwnAccounts(Imagined& imagined, int ranks) {
  const ParamStore& store = imagined.first().stage().store();
  const auto all = MemoryByRank(imagined.first());
  ASSERT_TRUE(all.ok()) << all.status();
  const auto planes = PlanesByRank(store);
  ASSERT_TRUE(planes.ok()) << planes.status();
  ASSERT_EQ(all->size(), static_cast<size_t>(ranks));
  ASSERT_EQ(planes->size(), all->size());
  for (int rank = 0; rank < ranks; ++rank) {
    SCOPED_TRACE(rank);
    const auto own = imagined.first().On(rank);
    ASSERT_TRUE(own.ok()) << own.status();
    const MemoryAccount account = (*own)->stage().account();
    const PlaneBytes there = PlaneBytesOf((*own)->stage().store());
    const RankMemory& of = At(*all, rank);
    EXPECT_EQ(of.rank, rank);
    EXPECT_EQ(ToString(of.account), ToString(account));
    EXPECT_EQ(of.account.total(), account.total());
    EXPECT_EQ(of.account.host, account.host);
    for (const PlaneBytes& bytes : {of.planes, At(*planes, rank)}) {
      EXPECT_EQ(bytes.device, there.device);
      EXPECT_EQ(bytes.host, there.host);
    }
  }
}

TEST(ImaginedStage, OfEveryRankTheAccountIsItsOwn) {
  for (const auto& [ranks, more] : Cases()) {
    SCOPED_TRACE(absl::StrJoin(more, " "));
    Imagined imagined(Sets(more), ranks);
    ExpectOwnAccounts(imagined, ranks);
  }
}

std::vector<int> LikesOf(Imagined& imagined) {
  const ParamStore& store = imagined.first().stage().store();
  std::vector<int> ranks(static_cast<size_t>(store.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return LikeRanks(store, ranks);
}

// How many ranks are imagined for all of them.
int64_t Distinct(const std::vector<int>& likes) {
  return std::ssize(std::set<int>(likes.begin(), likes.end()));
}

TEST(ImaginedStage, LikeRanksOfDrawnLayoutsTakeTheSame) {
  std::mt19937_64 random(11);
  const auto pick = [&random](const Words& of) {
    return of[random() % of.size()];
  };
  const Words meshes = {"tensor=2, data=4",
                        "tensor=2, data=2, pipeline=2",
                        "tensor=4, data=2",
                        "context=2, data=4",
                        "tensor=2, context=2, data=2",
                        "data=12",
                        "data=6, pipeline=2",
                        "data=3, pipeline=4, layers=[1,1,2,1]",
                        "tensor=2, data=3, pipeline=2",
                        "data=8"};
  const Words optimizers = {
      "kind=\"adamw\", moments=\"8bit\"", "kind=\"adamw\", moments=\"bf16\"",
      "kind=\"adafactor\"", "kind=\"muon\"", "kind=\"lion\""};
  const Words offloads = {"", "state=\"host\"",
                          "state=\"host\", update=\"device\", resident=0.5"};
  const Words shares = {"all", "none", "cycle:2"};
  int64_t all = 0, imagined_ranks = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const Words more = {
        "data.batch=24",
        "run.precision=bf16",
        "model.heads=4",
        "optimizer={lr=1e-3, " + pick(optimizers) + "}",
        "stage.1.share=" + At(shares, trial % 3),
        "stage.1.parallel={zero=1, " + At(meshes, trial / 4) + "}",
        "stage.1.offload={" + pick(offloads) + "}"};
    SCOPED_TRACE(absl::StrJoin(more, " "));
    const Recipe recipe =
        *ReadRecipe(kRecipe, Sets(more), KindsOf(BuiltInModels()));
    const auto ranks = static_cast<int>(recipe.stages[1].parallel.ranks());
    Imagined imagined(Sets(more), ranks);
    ExpectOwnAccounts(imagined, ranks);
    all += ranks;
    imagined_ranks += Distinct(LikesOf(imagined));
  }
  EXPECT_LT(imagined_ranks, all * 2 / 3) << "many are like others";
}

// The plan of a large run takes no more than these.
TEST(ImaginedStage, Of512RanksFewAreImagined) {
  constexpr int kRanks = 512;
  constexpr int kTensor = 8, kStages = 8;
  Imagined imagined(
      Sets({"model.layers=62", "model.dim=128", "model.heads=8",
            "model.kv_heads=8", "data.batch=64", "run.precision=bf16",
            "optimizer.moments=8bit",
            "stage.0.parallel={tensor=8, pipeline=8, data=8}",
            "stage.1.parallel={tensor=8, pipeline=8, data=8, zero=1}"}),
      kRanks);
  const ParamStore& store = imagined.first().stage().store();
  const auto all = MemoryByRank(imagined.first());
  ASSERT_TRUE(all.ok()) << all.status();
  // Once for each place along the tensor axis, and whole.
  EXPECT_EQ(imagined.first().env().measured->count(), size_t{kTensor} + 1);
  EXPECT_LE(Distinct(LikesOf(imagined)), 3 * kTensor * kStages);
  const auto other = imagined.first().On(kRanks - 1);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->stage().store().shared_layout(), store.shared_layout());
}

TEST(ImaginedStage, TheHeaviestRankIsTheOneWithTheLargestAccount) {
  int of_copies = 0;  // where planes and workspace alone say another
  for (const auto& [ranks, more] : Cases()) {
    SCOPED_TRACE(absl::StrJoin(more, " "));
    Imagined imagined(Sets(more), ranks);
    // By stage of the pipeline the most of a rank; and what the rank has in all
    // that has most without copies.
    std::map<int, int64_t> device, host, most_without, with;
    const Mesh mesh = imagined.first().stage().store().layout().mesh();
    const auto stage_of = [&mesh](int rank) {
      return mesh.PlaceOf(rank)[Axis::kPipeline];
    };
    for (int rank = 0; rank < ranks; ++rank) {
      const auto own = imagined.first().On(rank);
      ASSERT_TRUE(own.ok()) << own.status();
      const MemoryAccount account = (*own)->stage().account();
      const int s = stage_of(rank);
      device[s] = std::max(device[s], account.total());
      host[s] = std::max(host[s], account.host);
      const int64_t without = account.total() - account.fetched;
      if (without > most_without[s]) {
        most_without[s] = without;
        with[s] = account.total();
      }
    }
    int stages = 0;
    const absl::Status visited = ForEachHeaviest(
        imagined.first(), [&](ImaginedStage& of, const HeaviestRank& heaviest) {
          const int s = stages++;
          EXPECT_EQ(heaviest.rank, of.stage().store().rank());
          EXPECT_EQ(stage_of(heaviest.rank), s);
          EXPECT_EQ(of.stage().account().total(), device[s]);
          EXPECT_EQ(heaviest.host, host[s]);
          of_copies += with[s] < device[s] ? 1 : 0;
          return absl::OkStatus();
        });
    EXPECT_TRUE(visited.ok()) << visited;
    EXPECT_EQ(stages, mesh.pipeline);
  }
  EXPECT_GT(of_copies, 0) << "without copies the same ranks had most";
}

}  // namespace
}  // namespace delink::testing::imagined_stage_test
