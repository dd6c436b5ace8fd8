// Plans of pipelines against their ranks: each makes its part on a device that
// does allocate.
#include "recipes/run/dry_run/pipeline_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "recipes/plan/plan.h"
#include "recipes/run/observers/recorder.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/schema/recipe_io.h"
#include "tests/testing/source_path.h"

namespace delink::testing::pipeline_plan_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Words = std::vector<std::string>;

const std::string kTiny = SourcePath("recipes/tiny.toml");

// A fixed model; both stages with the same pipeline.
Words Sets(int pipeline, int data, const Words& more = {}) {
  Words sets = {"model.vocab=61", "model.layers=6", "data.batch=16",
                "run.micro_batch=1"};
  for (const char* stage : {"stage.0", "stage.1"}) {
    sets.push_back(absl::StrCat(stage, ".parallel.pipeline=", pipeline));
    sets.push_back(absl::StrCat(stage, ".parallel.data=", data));
  }
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

RunPlan PlanOf(const Words& sets) {
  auto plan = PlanRun({.recipe = kTiny, .sets = sets}, BuiltInModels());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// What a stage takes on each rank, and what all of them tell of it.
struct Taken {
  std::vector<int64_t> bytes;
  std::vector<MemoryAccount> accounts;
  std::vector<Program> programs;
  std::vector<StageFacts> facts;
};

Taken Make(const Words& sets, size_t index, int ranks) {
  Taken taken;
  taken.bytes.resize(ranks);
  taken.accounts.resize(ranks);
  taken.programs.resize(ranks);
  taken.facts.resize(ranks);
  const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
    const ModelList models = BuiltInModels();
    DELINK_ASSIGN_OR_RETURN(const Recipe read,
                            ReadRecipe(kTiny, sets, KindsOf(models)));
    DELINK_ASSIGN_OR_RETURN(const Recipe recipe, CheckWorld(read, ranks));
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> network,
                            comm.Split(0, comm.rank()));
    const std::unique_ptr<Device> device = NewCpuDevice();
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RunModel> model,
                            RunModel::Create(recipe, models));
    DELINK_ASSIGN_OR_RETURN(
        const std::unique_ptr<StageRun> stage,
        StageRun::Create(model->On(*device, comm, *network), index));
    taken.bytes[comm.rank()] = device->bytes_in_use();
    taken.accounts[comm.rank()] = stage->account();
    taken.programs[comm.rank()] = stage->executor().program();
    DELINK_ASSIGN_OR_RETURN(taken.facts[comm.rank()], FactsOf(*stage, comm));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return taken;
}

TEST(PipelinePlanTest, TheHeaviestRanksTakeWhatIsPlanned) {
  const struct {
    int pipeline, data;
    Words more;
  } cases[] = {
      {2, 1, {"model.tied=true"}},
      {2, 2, {"model.tied=false", "stage.0.parallel.zero=1"}},
      {4, 1, {"run.recompute=block"}},
      {2,
       2,
       {"stage.0.parallel.schedule=interleaved",
        "stage.1.parallel.schedule=interleaved", "run.precision=bf16"}},
      // Owners of mlp 0 and 2, and of mlp 1 and all that is smaller.
      {2,
       2,
       {"optimizer.kind=muon", "model.ffn=160", "stage.1.parallel.zero=1",
        "stage.1.parallel.layers=[3,3]"}},
      // What is kept in 8 bits and what is not lie in other shards.
      {2,
       2,
       {"optimizer.moments=8bit", "stage.0.parallel.zero=1",
        "stage.1.parallel.zero=1"}}};
  int not_first = 0;
  for (const auto& [pipeline, data, more] : cases) {
    const Words sets = Sets(pipeline, data, more);
    SCOPED_TRACE(absl::StrCat(pipeline, " x ", data, " ", more.front()));
    const int ranks = pipeline * data;
    const RunPlan plan = PlanOf(sets);
    EXPECT_EQ(plan.ranks, ranks);
    for (size_t i = 0; i < 2; ++i) {
      const StagePlan& stage = plan.stages[i];
      const Taken taken = Make(sets, i, ranks);
      ASSERT_EQ(stage.pipeline.stages.size(), static_cast<size_t>(pipeline));
      for (int s = 0; s < pipeline; ++s) {
        const PipelineStagePlan& of = stage.pipeline.stages[s];
        EXPECT_EQ(of.row.ranks.size(), static_cast<size_t>(data));
        EXPECT_EQ(of.row.ranks.front(), s * data);
        EXPECT_EQ(of.row.ranks.back(), s * data + data - 1);
        not_first += of.rank > of.row.ranks.front() ? 1 : 0;
        EXPECT_EQ(of.account.total(), taken.bytes[of.rank]);
        EXPECT_EQ(ToString(of.account), ToString(taken.accounts[of.rank]));
        EXPECT_EQ(of.program, taken.programs[of.rank]);
        EXPECT_EQ(of.account.total(),
                  *std::max_element(taken.bytes.begin() + s * data,
                                    taken.bytes.begin() + (s + 1) * data));
      }
      const auto most = std::ranges::max_element(taken.bytes);
      EXPECT_EQ(stage.account.total(), *most);
      const auto rank = most - taken.bytes.begin();
      for (const StageFacts& facts : taken.facts) {
        EXPECT_EQ(ToString(facts.account), ToString(taken.accounts[rank]));
        EXPECT_EQ(facts.pipeline.size(), static_cast<size_t>(pipeline));
      }
    }
  }
  EXPECT_EQ(not_first, 6) << "the last two's ranks that have more state";
}

// By kind, in the rank's ledger: what its planes take now, or took at most.
using Kinds = std::map<std::string, int64_t>;

Kinds PlanesOn(const Device& device, int64_t MemoryLedger::Entry::*bytes) {
  Kinds planes;
  for (const MemoryLedger::Entry& of : device.ledgers().allocated.entries()) {
    if (of.kind == "weights" || of.kind == "gradients" ||
        of.kind == "masters" || of.kind == "low halves" ||
        absl::StartsWith(of.kind, "state ")) {
      planes[of.kind] = of.*bytes;
    }
  }
  return planes;
}

int64_t Sum(const Kinds& a, const Kinds& b) {
  int64_t sum = 0;
  for (const Kinds& all : {a, b}) {
    for (const auto& [kind, bytes] : all) sum += bytes;
  }
  return sum;
}

// By rank, what was taken at most at the switch from the first stage to the
// second, which goes over to ranks arranged otherwise where it `moves`.
struct SwitchTakes {
  std::vector<int64_t> planes, all;
};

SwitchTakes SwitchOn(const Words& sets, int ranks, bool moves) {
  SwitchTakes takes;
  takes.planes.resize(ranks);
  takes.all.resize(ranks);
  const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
    const ModelList models = BuiltInModels();
    DELINK_ASSIGN_OR_RETURN(const Recipe read,
                            ReadRecipe(kTiny, sets, KindsOf(models)));
    DELINK_ASSIGN_OR_RETURN(const Recipe recipe, CheckWorld(read, ranks));
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> network,
                            comm.Split(0, comm.rank()));
    const std::unique_ptr<Device> device = NewCpuDevice();
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RunModel> model,
                            RunModel::Create(recipe, models));
    const RunEnv env = model->On(*device, comm, *network);
    DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage,
                            StageRun::Create(env, 0));
    const Kinds before = PlanesOn(*device, &MemoryLedger::Entry::bytes);
    const int64_t first = device->bytes_in_use();
    DELINK_RETURN_IF_ERROR(stage->TakeLayout(1));
    const Kinds moved = PlanesOn(*device, &MemoryLedger::Entry::bytes);
    const int64_t laid_out =
        TakesLayout(recipe, 0, 1) ? device->bytes_in_use() : 0;
    DELINK_ASSIGN_OR_RETURN(stage, StageRun::Switch(env, std::move(stage), 1));
    const Kinds after = PlanesOn(*device, &MemoryLedger::Entry::bytes);
    const int64_t move = moves ? Sum(before, moved) : 0;
    const int64_t planes = std::max(move, Sum(moved, after));
    const int64_t all = std::max(planes, laid_out);
    takes.planes[comm.rank()] = planes;
    takes.all[comm.rank()] = all;
    EXPECT_EQ(device->ledgers().allocated.highest(),
              std::max({first, all, device->bytes_in_use()}));
    // And never more: both stores were there at once, and no third one.
    Kinds most;
    for (const auto& [kind, bytes] : after) {
      most[kind] = std::max(moved.at(kind) + bytes,
                            moves ? before.at(kind) + moved.at(kind) : 0);
    }
    EXPECT_EQ(PlanesOn(*device, &MemoryLedger::Entry::highest), most);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return takes;
}

TEST(PipelinePlanTest, ASwitchTakesWhatIsPlannedOnEveryRank) {
  const std::string cut = "stage.1.parallel={tensor=2, pipeline=2, zero=1}";
  const struct {
    Words more;
    bool moves = true;
  } cases[] = {
      {.more = {"stage.1.parallel={pipeline=4}"}},
      {.more = {cut}},
      {.more = {"stage.1.parallel={tensor=4}", "stage.0.parallel={zero=1}"}},
      {.more = {cut, "run.precision=bf16", "optimizer.moments=8bit",
                "run.master=split", "stage.0.parallel={zero=1}"}},
      {.more = {cut, "optimizer.kind=muon", "stage.0.parallel={zero=1}"}},
      {.more = {cut, "optimizer.kind=adafactor"}},
      {.more = {"stage.0.parallel={tensor=4}",
                "stage.1.parallel={tensor=2, context=2}"}},
      {.more = {"stage.0.parallel={tensor=2, sequence=false}",
                "stage.1.parallel={tensor=2, sequence=true}"}},
      // Who has most of one stage has not of the other.
      {.more = {"stage.0.parallel={data=3, zero=1}", "optimizer.kind=muon",
                "model.ffn=160", "data.batch=6"},
       .moves = false},
      {.more = {cut, "stage.0.depth=4", "stage.0.share=none"}},
      // The stage before works as the one to come first.
      {.more = {"stage.0.share=none", "stage.1.micro_batch=4",
                "stage.0.parallel={data=2}", "data.batch=8",
                "stage.1.offload={weights=\"host\", state=\"host\"}"},
       .moves = false},
      {.more = {"stage.1.micro_batch=4", "stage.0.parallel={data=2}",
                "stage.1.parallel={pipeline=2}", "data.batch=8"}},
      {.more = {"stage.1.micro_batch=4", "optimizer.kind=muon",
                "stage.0.parallel={data=3, zero=1}", "data.batch=12",
                "stage.0.offload={state=\"host\"}",
                "stage.1.offload={state=\"host\"}"},
       .moves = false}};
  int unlike = 0, of_visits = 0;
  for (const auto& [more, moves] : cases) {
    Words sets = {"model.vocab=61", "model.layers=16", "model.dim=48",
                  "run.micro_batch=1"};
    sets.insert(sets.end(), more.begin(), more.end());
    SCOPED_TRACE(absl::StrJoin(more, " "));
    const RunPlan plan = PlanOf(sets);
    const StagePlan& real = plan.stages[1];
    const SwitchTakes takes =
        SwitchOn(sets, static_cast<int>(plan.ranks), moves);
    EXPECT_EQ(takes.all, real.switch_by_rank);
    EXPECT_EQ(std::ranges::max(takes.all), real.switch_bytes);
    EXPECT_EQ(std::ranges::max(takes.planes), real.switch_planes);
    unlike += std::ranges::min(takes.all) < real.switch_bytes ? 1 : 0;
    of_visits += real.switch_bytes > real.switch_planes ? 1 : 0;
  }
  EXPECT_GT(unlike, 5) << "switches of which ranks hold unlike much";
  EXPECT_GT(of_visits, 2) << "switches that visits take more of than planes";
}

// By data ranks of which each has the pseudo model, to ranks that have the real
// one together, which no rank ever has.
TEST(PipelinePlanTest, NoRankHasHalfOfTheRealModelAtTheSwitch) {
  const Words sets = {"model.vocab=61", "model.layers=16", "model.dim=48",
                      "run.micro_batch=1"};
  const int64_t whole = PlanOf(sets).stages[1].account.planes();
  for (const std::string ranks : {"{pipeline=4}", "{tensor=2, pipeline=2}"}) {
    Words cut = sets;
    cut.push_back("stage.1.parallel=" + ranks);
    const RunPlan plan = PlanOf(cut);
    ASSERT_EQ(plan.ranks, 4);
    EXPECT_EQ(plan.stages[0].mesh, Mesh{.data = 4});
    for (const int64_t planes : SwitchOn(cut, 4, true).planes) {
      EXPECT_LT(2 * planes, whole);
    }
  }
}

TEST(PipelinePlanTest, ExchangesByGroup) {
  const Words zero = {"stage.1.parallel.zero=1", "model.tied=true"};
  const RunPlan plan = PlanOf(Sets(2, 2, zero));
  for (const StagePlan& stage : plan.stages) {
    for (const PipelineStagePlan& of : stage.pipeline.stages) {
      int64_t sent = 0, reduced = 0, gathered = 0;
      for (const ExchangePlan& one : of.exchanges) {
        (one.kind == "send"             ? sent
         : one.kind == "reduce-scatter" ? reduced
                                        : gathered) += one.bytes;
        EXPECT_GT(one.count, 0);
        // The embedding is the head's, on the last stage.
        EXPECT_EQ(one.ranks, one.along == "data x pipeline" ? 4 : 2);
      }
      EXPECT_EQ(sent, of.sent_bytes);
      EXPECT_EQ(reduced, of.reduced_bytes);
      EXPECT_EQ(gathered, of.gathered_bytes);
    }
  }
  const std::string text = ToText(plan, false);
  EXPECT_THAT(text, HasSubstr("  ranks: data 2 x pipeline 2, neighbours along "
                              "data\n"));
  EXPECT_THAT(text, HasSubstr("reduce-scatter  along data x pipeline (4 ranks)"
                              "  1 x, "));
  const auto json = nlohmann::json::parse(ToJson(plan, false));
  EXPECT_EQ(json["stages"][1]["mesh"]["pipeline"], 2);
  EXPECT_THAT(json["stages"][1]["exchanges"].dump(),
              HasSubstr("\"along\":\"data x pipeline\""));
}

// 16 micro-batches of a sequence of 32 tokens in f32, 32 wide.
TEST(PipelinePlanTest, BytesThatAreSentAndReduced) {
  const int64_t way = int64_t{16} * 32 * 32 * 4;
  const RunPlan plan = PlanOf(Sets(4, 1, {"model.tied=true"}));
  const PipelinePlan& pipeline = plan.stages[1].pipeline;
  std::vector<int64_t> sent;
  for (const PipelineStagePlan& stage : pipeline.stages) {
    sent.push_back(stage.sent_bytes);
  }
  EXPECT_THAT(sent, ElementsAre(way, 2 * way, 2 * way, way));
  EXPECT_EQ(plan.stages[1].sent_bytes, 2 * way);
  // The embedding alone is of two stages; a rank each has all the rest.
  ASSERT_EQ(pipeline.shared.size(), 1u);
  const SharedSlabs& tied = pipeline.shared[0];
  EXPECT_THAT(tied.stages, ElementsAre(0, 3));
  EXPECT_EQ(tied.ranks, 2);
  EXPECT_EQ(tied.slabs.size(), 1u);
  EXPECT_GE(tied.gradient_bytes, 61 * 32 * 4);
  EXPECT_EQ(pipeline.stages[0].reduced_bytes, tied.gradient_bytes);
  EXPECT_EQ(pipeline.stages[1].reduced_bytes, 0);
  EXPECT_EQ(pipeline.stages[3].reduced_bytes, tied.gradient_bytes);
  // Of blocks that share, all stages.
  EXPECT_THAT(plan.stages[0].pipeline.shared.front().stages,
              ElementsAre(0, 1, 2, 3));
  const RunPlan untied = PlanOf(Sets(2, 1, {"model.tied=false"}));
  EXPECT_THAT(untied.stages[1].pipeline.shared, IsEmpty());
  EXPECT_EQ(untied.stages[1].reduced_bytes, 0);
}

// Of one micro-batch one stage at a time is at work.
TEST(PipelinePlanTest, BubbleAndPicture) {
  const RunPlan one = PlanOf(Sets(4, 1, {"data.batch=1"}));
  EXPECT_NEAR(one.stages[1].pipeline.bubble, 0.75, 1e-12);
  // More of them leave less idle, and more chunks still less.
  const double often = PlanOf(Sets(2, 1)).stages[1].pipeline.bubble;
  EXPECT_LT(often, 0.3);
  EXPECT_GT(often, 1.0 / 17) << "the bubble of equal stages";
  const RunPlan turns =
      PlanOf(Sets(2, 1, {"stage.1.parallel.schedule=interleaved"}));
  ASSERT_EQ(turns.stages[1].pipeline.picture.size(), 2u);
  EXPECT_EQ(turns.stages[1].pipeline.picture[0][0], 'a');
  EXPECT_EQ(turns.stages[1].pipeline.picture[1][0], '.');
  EXPECT_THAT(turns.stages[1].pipeline.stages[0].row.layers,
              HasSubstr("blocks/0"));
}

// The programs of all stages are planned and proved once, not once a stage.
TEST(PipelinePlanTest, ManyStagesTakeOnePlan) {
  const Words sets = Sets(6, 1);
  const ModelList models = BuiltInModels();
  const absl::StatusOr<Recipe> read = ReadRecipe(kTiny, sets, KindsOf(models));
  ASSERT_TRUE(read.ok()) << read.status();
  const absl::StatusOr<Recipe> recipe = CheckWorld(*read, 6, true);
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const auto model = RunModel::Create(*recipe, models);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::unique_ptr<Device> device = NewMetaDevice(DeviceKind::kCpu);
  ImaginedRanks world(6);
  const auto first =
      ImaginedStage::Create((*model)->On(*device, world, world), 1, 0);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::shared_ptr<const JointPlan> plan = (*first)->env().shared->plan;
  ASSERT_NE(plan, nullptr);
  const auto other = ImaginedStage::Create((*first)->env(), 1, 3);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->env().shared->plan, plan);
  EXPECT_EQ((*other)->stage().executor().program().stage, 3);
  // Another stage's is no plan for this one.
  const auto another =
      ImaginedStage::Create((*model)->On(*device, world, world), 0, 0);
  ASSERT_TRUE(another.ok()) << another.status();
  (*first)->env().shared->plan = (*another)->env().shared->plan;
  const auto wrong = ImaginedStage::Create((*first)->env(), 1, 3);
  EXPECT_THAT(wrong.status().message(), HasSubstr("of another shape"));
}

TEST(PipelinePlanTest, TextAndJson) {
  const RunPlan plan = PlanOf(Sets(2, 2, {"stage.1.parallel.layers=[3,3]"}));
  const PipelinePlan& pipeline = plan.stages[1].pipeline;
  const std::string text = ToText(plan, false);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("  pipeline stage  ranks             layers  parameters  "
                      "slabs    groups   weights"),
            HasSubstr("               0   0..1  embed,blocks/0..2  "),
            HasSubstr("  0..3 0,1  "), HasSubstr("  0..3 2,3  "),
            HasSubstr("               1   2..3   blocks/3..5,head  "),
            HasSubstr("  in all      sent   reduced  gathered\n"),
            HasSubstr("252 MFLOP a step of 8 x 1 sequences on each of 2 data "
                      "rank(s), "),
            HasSubstr(absl::StrCat("\n   0  ", pipeline.picture[0], "\n")),
            HasSubstr(absl::StrCat("\n   1  ", pipeline.picture[1], "\n")),
            HasSubstr("  pipeline stages 0,1 share embed"),
            HasSubstr("% of a step as planned\n")));
  const nlohmann::json json = nlohmann::json::parse(ToJson(plan, true));
  const nlohmann::json& stage = json["stages"][1];
  const nlohmann::json& of = stage["pipeline"];
  EXPECT_EQ(of["bubble"], pipeline.bubble);
  EXPECT_EQ(of["picture"], pipeline.picture);
  EXPECT_EQ(of["stages"].size(), 2u);
  EXPECT_EQ(of["stages"][1]["ranks"], (std::vector<int>{2, 3}));
  EXPECT_EQ(of["stages"][1]["layers"], "blocks/3..5,head");
  EXPECT_EQ(of["stages"][1]["heaviest_rank"], 2);
  EXPECT_EQ(of["stages"][1]["slabs"].size(), 11u);
  EXPECT_EQ(of["stages"][1]["slabs"][0], "embed/embedding");
  EXPECT_EQ(of["stages"][1]["groups"],
            (std::vector<std::vector<int>>{{0, 1, 2, 3}, {2, 3}}));
  EXPECT_EQ(of["stages"][1]["bytes"]["total"],
            pipeline.stages[1].account.total());
  EXPECT_EQ(of["stages"][0]["sent_bytes"], pipeline.stages[0].sent_bytes);
  EXPECT_EQ(of["stages"][0]["reduced_bytes"], pipeline.stages[0].reduced_bytes);
  EXPECT_EQ(of["shared"][0]["stages"], (std::vector<int>{0, 1}));
  EXPECT_EQ(of["shared"][0]["ranks"], 4);
  EXPECT_EQ(stage["sent_bytes"], plan.stages[1].sent_bytes);
  EXPECT_EQ(stage["program"].size(), 2u);
  EXPECT_GE(stage["bytes"]["total"], of["stages"][0]["bytes"]["total"]);
  EXPECT_EQ(stage["instructions"],
            pipeline.stages[0].program.instructions.size() +
                pipeline.stages[1].program.instructions.size());
  // Of a long picture both ends are shown.
  const RunPlan longer = PlanOf(Sets(4, 1, {"data.batch=64"}));
  const std::string& row = longer.stages[0].pipeline.picture[3];
  EXPECT_GT(row.size(), 3 * 64u);
  const std::string longer_text = ToText(longer, false);
  EXPECT_THAT(longer_text,
              HasSubstr(absl::StrCat("\n   3  ", row.substr(0, 45), "  ~  ",
                                     row.substr(row.size() - 45), "\n")));
  EXPECT_THAT(longer_text, HasSubstr("  pipeline stages 0..3 share blocks/0"));
  // Without a pipeline nothing is told of one.
  const RunPlan alone = PlanOf(Sets(1, 2));
  EXPECT_FALSE(
      nlohmann::json::parse(ToJson(alone, false))["stages"][0].contains(
          "pipeline"));
  EXPECT_THAT(ToText(alone, false),
              AllOf(Not(HasSubstr("pipeline")), HasSubstr("  network: ")));
}

}  // namespace
}  // namespace delink::testing::pipeline_plan_test
