// `delink plan` from outside: what it prints is what `delink train` then says
// and does.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "tests/testing/source_path.h"
#include "tests/tools/program_fixture.h"

namespace delink::testing::plan_command_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using nlohmann::json;

class PlanProgram : public Program {
 protected:
  static Words PlanWords(const Words& more = {}) {
    return With(
        {"plan", SourcePath("recipes/tiny.toml"), "--set",
         "data.train=" + Path("corpus/train"), "--set", "run.threads=1"},
        more);
  }

  // What a run tells of its bytes at the switch, before and after.
  static json Switch(const std::string& run) {
    for (const json& row : Rows(Path(run + "/metrics.jsonl"))) {
      if (row.contains("event") && row["event"] == "delink") return row;
    }
    return json::object();
  }

  // The line of a text that begins so, blanks aside.
  static std::string LineWith(const std::string& text,
                              const std::string& start) {
    const size_t at = text.find(start);
    if (at == std::string::npos) return "no line with " + start;
    return text.substr(at, text.find('\n', at) - at);
  }
};

TEST_F(PlanProgram, BytesAreThoseOfTheRun) {
  const json plan = Json(PlanWords({"--json"}));
  const json run = Switch("straight");
  ASSERT_EQ(plan["stages"].size(), 2u);
  EXPECT_EQ(plan["stages"][0]["bytes"], run["bytes_before"]);
  EXPECT_EQ(plan["stages"][1]["bytes"], run["bytes_after"]);
  EXPECT_EQ(plan["stages"][0]["unique_parameters"],
            run["unique_parameters_before"]);
  EXPECT_EQ(plan["stages"][1]["unique_parameters"], run["unique_parameters"]);
  EXPECT_EQ(plan["vocab"], 257);
  const json threads = Json(PlanWords({"--json", "--set", "run.threads=3"}));
  EXPECT_GT(threads["stages"][0]["bytes"]["workspace"],
            plan["stages"][0]["bytes"]["workspace"]);
}

// A stage without homes on the host, then one with them.
TEST_F(PlanProgram, BytesOfTheHostAreThoseOfTheRun) {
  const Words homes = {"--set",
                       "stage.1.offload={resident=0.5,update=\"host\"}"};
  const json plan = Json(PlanWords(With(homes, {"--json"})));
  const Outcome train = Succeed(TrainWords("on_host", homes));
  const json run = Switch("on_host");
  EXPECT_EQ(plan["stages"][0]["bytes"], run["bytes_before"]);
  EXPECT_EQ(plan["stages"][1]["bytes"], run["bytes_after"]);
  EXPECT_FALSE(run["bytes_before"].contains("host"));
  EXPECT_GT(run["bytes_after"]["host"], 0);
  EXPECT_GT(run["bytes_after"]["fetched"], 0);
  // Both are in the log's table at the switch, and in the plan's.
  const std::string log =
      train.err.substr(train.err.find("delinking after step"));
  const Outcome planned = Succeed(PlanWords(homes));
  const auto table = [](const std::string& text) {
    return text.substr(std::min(text.find("memory of a rank"), text.size()));
  };
  for (const char* row : {"of the host", "  fetched planes", "  in all"}) {
    EXPECT_EQ(LineWith(table(log), row), LineWith(table(planned.out), row));
  }
}

TEST_F(PlanProgram, LinesAreThoseOfTheLog) {
  const Outcome plan = Succeed(PlanWords());
  const Outcome train = Succeed(TrainWords("logged", {"--until-step", "1"}));
  const char* const start = "stage pseudo: ";
  EXPECT_EQ(LineWith(plan.out, start), LineWith(train.err, start));
  // A table whose first column is what train begins with.
  for (const char* row :
       {"memory of a rank ", "  weights ", "  gradients ", "  optimizer state ",
        "  activations ", "    slots ", "    boundaries ", "    workspace ",
        "  records ", "  in all "}) {
    const std::string begun = LineWith(train.err, row);
    EXPECT_EQ(begun.size(), 31u) << begun;
    EXPECT_THAT(LineWith(plan.out, row), StartsWith(begun));
    EXPECT_EQ(LineWith(plan.out, row).size(), 43u);
  }
}

TEST_F(PlanProgram, OfSeveralRanks) {
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Words zero = {"--set", "stage.1.parallel.zero=1"};
  const json plan = Json(PlanWords(With(zero, {"--ranks", "2", "--json"})));
  const Outcome train = MpirunDelink(2, TrainWords("both", zero));
  ASSERT_EQ(train.code, 0) << train.err;
  const json run = Switch("both");
  EXPECT_EQ(plan["stages"][0]["bytes"], run["bytes_before"]);
  EXPECT_EQ(plan["stages"][1]["bytes"], run["bytes_after"]);
  EXPECT_GT(plan["stages"][1]["reduced_bytes"], 0);
  EXPECT_EQ(plan["stages"][1]["reduced_bytes"],
            plan["stages"][1]["gathered_bytes"]);
  const Outcome both = MpirunDelink(2, PlanWords());
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("one process"));
}

// A run that is delayed has the bits of one that is not, and a trace of that
// one is what a plan takes costs from.
TEST_F(PlanProgram, OverLinksByATrace) {
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Words zero = {"--set", "stage.1.parallel.zero=1", "--until-step", "14"};
  const Words traced =
      With(zero, {"--trace", Path("near.json"), "--trace-steps", "11:14"});
  const Outcome near = MpirunDelink(2, TrainWords("near", traced));
  ASSERT_EQ(near.code, 0) << near.err;
  setenv("DELINK_DELAY", "1e-4,1e9", 1);
  const Outcome far = MpirunDelink(2, TrainWords("far", zero));
  setenv("DELINK_DELAY", "much", 1);
  const Outcome bad = MpirunDelink(2, TrainWords("bad", zero));
  unsetenv("DELINK_DELAY");
  ASSERT_EQ(far.code, 0) << far.err;
  EXPECT_THAT(far.err, HasSubstr("all exchanges between ranks are delayed"));
  ExpectSameBits("near", "far", 14);
  EXPECT_NE(bad.code, 0);
  EXPECT_THAT(bad.err, HasSubstr("DELINK_DELAY: 'much' is not a link"));

  const Words words = {
      "--ranks", "2",       "--set",          "stage.1.parallel.zero=1",
      "--json",  "--trace", Path("near.json")};
  const json plan = Json(PlanWords(words));
  EXPECT_FALSE(plan["stages"][0].contains("traced"));
  const json time = plan["stages"][1]["traced"];
  EXPECT_EQ(time["steps"], 4);
  EXPECT_GT(time["step_seconds"], 0);
  EXPECT_EQ(time["planned_ends"].size(), 2u);
  const json over =
      Json(PlanWords(With(words, {"--delay", "5,1e9"})))["stages"][1]["traced"];
  // Each slab is scattered, the norm exchanged, each slab gathered.
  EXPECT_GT(over["planned_step_seconds"], 100);
  EXPECT_EQ(over["step_seconds"], time["step_seconds"]);
}

// What is kept of the machine is what both quote, whoever measured it.
TEST_F(PlanProgram, SecondsStandOnThePeakOfTraining) {
  const std::string here = "XDG_CACHE_HOME=" + Path("cache") + " \"$0\" \"$@\"";
  const std::string kept = Path("cache/delink/matmul_peak.json");
  const auto plan = [&](const Words& more = {}) {
    const Outcome outcome = RunShell(here, PlanWords(With({"--json"}, more)));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  };
  const json measured = plan();
  json peaks = json::parse(std::ifstream(kept), nullptr, false);
  ASSERT_EQ(peaks.size(), 1u) << peaks;
  EXPECT_EQ(peaks.begin().value(), measured["peak_flops"]);
  // Faster than any machine: it stays what it is.
  peaks.begin().value() = 1e18;
  WriteText(kept, peaks.dump());
  const json again = plan();
  EXPECT_EQ(again["peak_flops"], 1e18);
  EXPECT_EQ(again["flops"], measured["flops"]);
  EXPECT_DOUBLE_EQ(again["least_seconds"], again["flops"].get<double>() / 1e18);
  EXPECT_EQ(plan({"--ranks", "2"})["peak_flops"], 2e18);
  const Outcome train =
      RunShell(here, TrainWords("quoted", {"--until-step", "1"}));
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_EQ(Rows(Path("quoted/metrics.jsonl")).at(0)["peak_flops"], 1e18);
}

// Over a bus of a second a copy nothing else of a step is seen.
TEST_F(PlanProgram, AStepIsDrawnLaneByLane) {
  const Words homes = {"--set",
                       "stage.1.offload={ resident = 0.0, update = \"host\" }"};
  const Words traced =
      With(homes, {"--until-step", "14", "--trace", Path("homes.json"),
                   "--trace-steps", "11:14"});
  setenv("DELINK_BUS", "1e-4,1e9", 1);
  const Outcome train = RunDelink(TrainWords("homes", traced));
  unsetenv("DELINK_BUS");
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_THAT(train.err,
              HasSubstr("copies between device and host are delayed"));
  const Words words =
      With(homes, {"--trace", Path("homes.json"), "--bus", "1,1e12"});
  const Outcome plan = Succeed(PlanWords(words));
  EXPECT_THAT(plan.out, HasSubstr("  lanes of rank 0 in a step, "));
  EXPECT_THAT(LineWith(plan.out, "    compute   "),
              AllOf(HasSubstr("  0%  "), Not(HasSubstr("F"))));
  EXPECT_THAT(LineWith(plan.out, "    in   "), HasSubstr("www"));
  EXPECT_THAT(LineWith(plan.out, "    out   "), HasSubstr("ggg"));
  EXPECT_THAT(
      LineWith(plan.out, "  hidden under compute: "),
      AllOf(HasSubstr(" s of copies, "), HasSubstr(" of the host's updates")));
  const json time =
      Json(PlanWords(With(words, {"--json"})))["stages"][1]["traced"];
  double in = 0, out = 0;
  Words lanes;
  for (const json& lane : time["lanes"]) {
    lanes.push_back(lane["lane"]);
    EXPECT_LE(lane["hidden_seconds"].get<double>(),
              lane["busy_seconds"].get<double>() + 1e-6);
    if (lane["lane"] == "in") in = lane["busy_seconds"];
    if (lane["lane"] == "out") out = lane["busy_seconds"];
  }
  EXPECT_THAT(lanes, ElementsAre("compute", "in", "out", "updates-in", "host"));
  EXPECT_GT(in, out);
  EXPECT_GE(time["planned_step_seconds"].get<double>() + 1e-6, in);
}

TEST_F(PlanProgram, TheProgramAsDocumented) {
  const Outcome plan =
      Succeed(PlanWords({"--program", "--set", "data.batch=2"}));
  EXPECT_THAT(plan.out,
              HasSubstr("\nF(0,a) F(1,a) F(2,a) F(3,a) F(4,a) Loss(a) "));
}

TEST_F(PlanProgram, ABadRecipeIsToldAsTrainTellsIt) {
  const Words cases[] = {{"--set", "model.lairs=3"},
                         {"--set", "optimizer.lr=fast"},
                         {"--set", "data.batch=7"}};
  for (const Words& more : cases) {
    const Outcome plan = RunDelink(PlanWords(more));
    const Outcome train = RunDelink(TrainWords("never", more));
    EXPECT_EQ(plan.code, 2);
    EXPECT_EQ(plan.err, train.err);
  }
  const Outcome nowhere =
      RunDelink(PlanWords({"--set", "data.train=/no/such/corpus"}));
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.err, AllOf(HasSubstr("/no/such/corpus"),
                                 HasSubstr("--set model.vocab=N")));
  Succeed(PlanWords(
      {"--set", "data.train=/no/such/corpus", "--set", "model.vocab=257"}));
}

// 10 trillion parameters, of which each of 512 ranks has its part.
TEST_F(PlanProgram, TenTrillionParametersOnManyRanks) {
  const json plan =
      Json({"plan", SourcePath("recipes/m6_10t_h200.toml"), "--ranks", "512",
            "--machine", SourcePath("machines/h200-8x64.toml"), "--json"});
  EXPECT_TRUE(plan["machine"]["fits"].get<bool>());
  ASSERT_EQ(plan["stages"].size(), 2u);
  const json &pseudo = plan["stages"][0], &real = plan["stages"][1];
  EXPECT_EQ(pseudo["virtual_parameters"], real["unique_parameters"]);
  EXPECT_GT(real["unique_parameters"], int64_t{10} * 1000 * 1000 * 1000 * 1000);
  // Of each 32 neighbours one has 320 experts of three layers, two matrices of
  // 1024 x 9984 each, in bf16; the rest is small.
  const double experts = 3.0 * 320 * 2 * 1024 * 9984 * 2;
  EXPECT_NEAR(real["bytes"]["weights"].get<double>(), experts, 0.02 * experts);
}

}  // namespace
}  // namespace delink::testing::plan_command_test
