// `delink plan --search` against the plan of every candidate.
#include "recipes/plan/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/file.h"
#include "recipes/plan/plan.h"
#include "recipes/schema/machine_file.h"
#include "recipes/schema/recipe_io.h"
#include "tests/testing/cpu_rates.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::search_test {
namespace {

using offload::MachineRates;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Two nodes of two GPUs.
MachineRates Small() {
  MachineRates machine = CpuRates(1e12, 1e9, 1e10);
  machine.device = {.kind = "cuda", .name = "Abacus 9"};
  machine.nodes = 2;
  machine.devices = 2;
  machine.inside = {.latency = 1e-7, .bytes_per_s = 1e10};
  machine.between = {.latency = 1e-6, .bytes_per_s = 1e9, .links = 1};
  return machine;
}

class Search : public ::testing::TestWithParam<const char*> {
 protected:
  absl::StatusOr<RunSearch> Try(const MachineRates& machine,
                                SearchOptions options) const {
    EXPECT_TRUE(WriteMachine(machine, path_).ok());
    if (options.plan.recipe.empty()) {
      options.plan.recipe = SourcePath("recipes/tiny.toml");
    }
    options.plan.machine = path_;
    options.plan.sets.insert(
        options.plan.sets.begin(),
        {"model.vocab=61", "data.batch=4", "run.micro_batch=1"});
    return SearchRun(options, BuiltInModels());
  }
  StageSearch Of(const MachineRates& machine, SearchOptions options) const {
    if (options.stage.empty()) options.stage = "pseudo";
    const absl::StatusOr<RunSearch> search = Try(machine, std::move(options));
    EXPECT_TRUE(search.ok()) << search.status();
    return search.ok() ? search->stages.front() : StageSearch{};
  }
  // All that fit.
  StageSearch Everything(const MachineRates& machine,
                         const std::string& recipe = "") const {
    return Of(machine, {.plan = {.recipe = recipe},
                        .best = std::numeric_limits<size_t>::max(),
                        .placements = 0,
                        .rules = false});
  }

  TempDir dir_;
  const std::string path_ = dir_ / "m.toml";
};

int64_t Sum(const StageSearch& of) {
  return of.refused + of.not_needed + of.slower + of.unfit + of.simulated +
         of.untried;
}

// With each memory, the winner is the fastest of all that fit.
TEST_P(Search, FindsTheFastestThatFits) {
  const std::string recipe = SourcePath(GetParam());
  MachineRates machine = Small();
  const StageSearch all = Everything(machine, recipe);
  ASSERT_GT(all.best.size(), 100U);
  EXPECT_EQ(Sum(all), all.candidates);
  std::vector<int64_t> sizes;
  for (const FoundForm& of : all.best) {
    sizes.push_back(of.device);
    EXPECT_LE(of.least, of.step.seconds * (1 + 1e-9)) << ToString(of.form);
  }
  std::ranges::sort(sizes);
  double before = std::numeric_limits<double>::infinity();
  for (const size_t part : {0, 1, 4, 20, 50, 100}) {
    machine.tier.memory = sizes[(sizes.size() - 1) * part / 100];
    SCOPED_TRACE(machine.tier.memory);
    const StageSearch found =
        Of(machine, {.plan = {.recipe = recipe}, .placements = 0});
    EXPECT_EQ(Sum(found), found.candidates);
    EXPECT_EQ(found.refused, all.refused);
    EXPECT_LT(found.simulated, all.simulated);
    const auto fastest = std::ranges::find_if(all.best, [&](const auto& of) {
      return of.device <= machine.tier.memory;
    });
    ASSERT_FALSE(found.best.empty());
    const FoundForm& best = found.best.front();
    EXPECT_EQ(best.step.seconds, fastest->step.seconds)
        << ToString(best.form) << " beside " << ToString(fastest->form);
    EXPECT_LE(best.device, machine.tier.memory);
    EXPECT_LE(best.step.seconds, before);
    before = best.step.seconds;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Search,
                         ::testing::Values("recipes/tiny.toml",
                                           "recipes/tiny_moe.toml"),
                         [](const auto& of) {
                           const std::string name = of.param;
                           return name.substr(8, name.find('.') - 8);
                         });

// A search that may plan nothing else still plans the recipe's own form.
TEST_F(Search, NeverMissesTheRecipesOwnForm) {
  const StageSearch found =
      Of(Small(), {.plan = {.sets = {"run.recompute=block"}},
                   .placements = 0,
                   .exhaustive = 0,
                   .plans = 0});
  ASSERT_EQ(found.best.size(), 1U);
  EXPECT_THAT(
      ToString(found.best.front().form),
      AllOf(HasSubstr("data 4, micro_batch 1"), HasSubstr("recompute block")));
  EXPECT_EQ(Sum(found), found.candidates);
  EXPECT_GT(found.untried, 100);
}

// A smaller memory only removes candidates.
TEST_F(Search, ASmallerMemoryOnlyRemoves) {
  MachineRates machine = Small();
  const StageSearch all = Everything(machine);
  machine.tier.memory = all.best[all.best.size() / 2].device;
  const StageSearch fewer = Everything(machine);
  EXPECT_LT(fewer.best.size(), all.best.size());
  EXPECT_EQ(fewer.best.size() + static_cast<size_t>(fewer.unfit),
            all.best.size());
  size_t at = 0;
  for (const FoundForm& of : all.best) {
    if (of.device > machine.tier.memory) continue;
    EXPECT_EQ(ToString(fewer.best[at].form), ToString(of.form));
    EXPECT_EQ(fewer.best[at].step.seconds, of.step.seconds);
    ++at;
  }
}

// As the network between nodes gets slower, a tensor group on both nodes
// becomes one on a node.
TEST_F(Search, ASlowNetworkKeepsTensorGroupsOnANode) {
  MachineRates machine = Small();
  machine.matmul = {{DType::kF32, 1e9}};
  machine.inside = {.latency = 1e-9, .bytes_per_s = 1e12};
  std::vector<int64_t> tensor;
  for (double rate = 1e12; rate > 1e5; rate /= 8) {
    machine.between = {.latency = 1e-9, .bytes_per_s = rate, .links = 2};
    const StageSearch found =
        Of(machine,
           {.plan = {.sets = {"data.batch=1", "data.seq=3", "model.tied=false",
                              "model.layers=2", "stage.0.parallel.pipeline=4",
                              "stage.1.parallel.tensor_across_nodes="
                              "true"}},
            .stage = "real"});
    tensor.push_back(found.best.front().form.parallel.tensor);
  }
  EXPECT_EQ(tensor.front(), 4);
  EXPECT_LE(tensor.back(), 2);
  EXPECT_TRUE(std::ranges::is_sorted(tensor, std::greater()));
}

// A node whose CPU runs four ranks, without the workspace of a GPU.
MachineRates Cpu() {
  MachineRates machine = CpuRates(1e9, 1e9, 1e10);
  machine.threads = 4;
  return machine;
}

// Where nothing else fits, planes are placed on the host.
TEST_F(Search, OffloadsWhatDoesNotFit) {
  MachineRates machine = Cpu();
  const SearchOptions options{.plan = {.sets = {"model.dim=128"}},
                              .stage = "real"};
  SearchOptions all = options;
  all.best = std::numeric_limits<size_t>::max();
  all.placements = 0;
  all.rules = false;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const FoundForm& of : Of(machine, all).best) {
    least = std::min(least, of.device);
  }
  machine.tier.memory = 4 * (least - 1);
  const StageSearch found = Of(machine, options);
  ASSERT_FALSE(found.best.empty());
  EXPECT_TRUE(found.best.front().form.offload.any());
  EXPECT_GT(found.best.front().host, 0);
  EXPECT_LE(found.best.front().device, least - 1);
}

// The recipe that it writes has the same figures in a plan.
TEST_F(Search, WritesTheBestRecipe) {
  for (const bool offloads : {false, true}) {
    MachineRates machine = Cpu();
    machine.threads = 8;
    if (offloads) machine.tier.memory = int64_t{8 * 1300} << 10;
    const absl::StatusOr<RunSearch> search =
        Try(machine, {.plan = {.sets = {"model.dim=128"}, .ranks = 4}});
    ASSERT_TRUE(search.ok()) << search.status();
    const std::string path = dir_ / "best.toml";
    ASSERT_TRUE(WriteFileAtomically(path, ToToml(search->recipe)).ok());
    const absl::StatusOr<RunPlan> plan = PlanRun(
        {.recipe = path, .ranks = 4, .machine = path_}, BuiltInModels());
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(search->stages.size(), plan->stages.size());
    bool offloaded = false;
    for (size_t i = 0; i < plan->stages.size(); ++i) {
      const FoundForm& best = search->stages[i].best.front();
      const StagePlan& stage = plan->stages[i];
      EXPECT_EQ(stage.account.total(), best.device);
      EXPECT_EQ(stage.simulated->seconds, best.step.seconds);
      EXPECT_EQ(stage.switch_bytes, best.switch_bytes);
      EXPECT_EQ(stage.micro_batches, best.micro_batches);
      EXPECT_EQ(stage.offload.has_value(), best.form.offload.any());
      offloaded |= best.form.offload.any();
      EXPECT_THAT(ToText(*search), HasSubstr(ToString(best.form)));
    }
    EXPECT_EQ(offloaded, offloads);
    EXPECT_LE(plan->peak_bytes(), search->machine.rank_memory());
  }
}

// One line each.
TEST_F(Search, SaysWhatIsWrong) {
  MachineRates tiny = Small();
  tiny.tier.memory = 2000;
  tiny.host_bytes = 2000;
  MachineRates odd = Small();
  odd.nodes = 7;
  const struct {
    MachineRates machine;
    SearchOptions options;
    std::vector<std::string> says;
  } cases[] = {
      {Small(), {.stage = "nobody"}, {"--stage nobody: ", "pseudo, real"}},
      {tiny,
       {},
       {"stage pseudo: nothing fits; the nearest, ", " of 2.0 KiB, ",
        " too much; ", "; use more devices"}},
      {odd,
       {.plan = {.ranks = 7}},
       {"stage pseudo: none of 4 layouts is possible on 7 rank(s); most "
        "often: "}},
      {Small(), {.plan = {.sets = {"run.device=cpu"}}}, {"devices of kind"}},
  };
  for (const auto& [machine, options, says] : cases) {
    const absl::Status status = Try(machine, options).status();
    const std::string told(status.message());
    for (const std::string& each : says) EXPECT_THAT(told, HasSubstr(each));
    EXPECT_EQ(told.find('\n'), std::string::npos) << told;
  }
  const absl::Status none =
      SearchRun({.plan = {.recipe = SourcePath("recipes/tiny.toml")}},
                BuiltInModels())
          .status();
  EXPECT_THAT(std::string(none.message()),
              HasSubstr("--search needs --machine FILE"));
}

}  // namespace
}  // namespace delink::testing::search_test
