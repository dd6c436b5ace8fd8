// Delinking in whole runs (docs/pseudo-to-real.md).
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "layers/modules/attention.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"
#include "recipes/models/gpt_config.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/offline_delink.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
namespace {

const char* const kShares[] = {"\"all\"", "\"groups:2\"", "\"cycle:2\"",
                               "{attention=\"all\",mlp=\"groups:2\"}"};

class DelinkRunTest : public ::testing::TestWithParam<
                          std::tuple<const char*, const char*, int>> {};

// (i) with training before the switch and state carried on.
TEST_P(DelinkRunTest, PreservesTheLossBitForBit) {
  const auto [recipe, share, ranks] = GetParam();
  TinyRuns runs(recipe);
  const absl::Status status =
      runs.Run({.ranks = ranks,
                .sets = {std::string("stage.0.share=") + share},
                .out = "run"});
  ASSERT_TRUE(status.ok()) << std::string(status.message());
  const std::vector<Switch> switches = runs.Switches("run");
  ASSERT_EQ(switches.size(), 1);
  EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
  EXPECT_GT(switches[0].loss_before, 0);
}

INSTANTIATE_TEST_SUITE_P(Shares, DelinkRunTest,
                         ::testing::Combine(::testing::ValuesIn(kTinyRecipes),
                                            ::testing::ValuesIn(kShares),
                                            ::testing::Values(1, 4)));

// A hybrid: blocks with attention take turns with blocks that have an MLP.
class HybridBlock final : public Module {
 public:
  struct Config {
    bool attention;
    int64_t dim;
  };
  HybridBlock(const Scope& s, const Config& c)
      : norm_(s / "norm", {.dim = c.dim}) {
    if (c.attention) {
      attention_.emplace(s / "attn",
                         Attention::Config{.dim = c.dim, .heads = 4});
    } else {
      mlp_.emplace(s / "mlp", Mlp::Config{.dim = c.dim, .hidden = 4 * c.dim});
    }
  }

  Var operator()(Var x) override {
    const Var y = norm_(x);
    return x + (attention_.has_value() ? (*attention_)(y) : (*mlp_)(y));
  }

 private:
  Norm norm_;
  std::optional<Attention> attention_;
  std::optional<Mlp> mlp_;
};

std::unique_ptr<Sequential> BuildHybrid(const Scope& s, const GptConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<Embedding>(
      "embed", {.vocab = c.vocab, .dim = c.dim, .positions = c.max_seq});
  for (int64_t i = 0; i < c.layers; ++i) {
    model->Block<HybridBlock>({.attention = i % 2 == 0, .dim = c.dim});
  }
  model->Epilogue<LmHead>({.dim = c.dim, .vocab = c.vocab});
  return model;
}

// In the place of gpt, whose recipes and parts it has.
ModelList Hybrids() {
  ModelList models;
  AddModel(models, GptKind(), BuildHybrid);
  return models;
}

class HybridRunTest : public ::testing::Test {
 protected:
  void Go(RunRequest request) {
    request.models = Hybrids;
    const absl::Status status = runs_.Run(request);
    ASSERT_TRUE(status.ok()) << std::string(status.message());
  }
  TinyRuns runs_;
};

TEST_F(HybridRunTest, SwitchesAndGoesOnBitForBit) {
  ExpectStopsAreBitEqual(
      runs_, [&](const RunRequest& request) { Go(request); }, 20);
}

// By hand from the checkpoint at the switch, as in the run.
TEST_F(HybridRunTest, DelinksOffline) {
  Go({.out = "a"});
  const auto report = OfflineDelink(
      {.checkpoint = runs_.Checkpoint("a", 10), .out = runs_.Folder("cut")},
      Hybrids());
  ASSERT_TRUE(report.ok()) << report.status();
  Go({.out = "b", .resume = true, .resume_from = report->to});
  EXPECT_EQ(FirstDifference(runs_.Load("a", 20), runs_.Load("b", 20)), "");
}

}  // namespace
}  // namespace delink::testing
