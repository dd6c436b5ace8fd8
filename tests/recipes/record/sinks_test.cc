// What each sink says of what happens in a run, to the letter: people and
// programs read it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/log.h"
#include "recipes/record/pipeline_table.h"
#include "recipes/record/sink.h"
#include "tests/testing/temp_dir.h"

namespace delink::sinks_test {
namespace {

using ::delink::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two sources, of which the second has nothing to validate on.
std::vector<SourceState> Sources(int64_t web, int64_t code) {
  return {{.name = "web",
           .folder = "data/web",
           .corpus = "w1",
           .corpus_tokens = 12800,
           .at = {.epoch = 100, .consumed = web, .share = 0.75},
           .tokens = web * 128},
          {.name = "code",
           .folder = "data/code",
           .corpus = "c1",
           .corpus_tokens = 1280,
           .validated = false,
           .at = {.epoch = 10,
                  .repeat = false,
                  .consumed = code,
                  .share = code < 10 ? 0.25 : 0},
           .tokens = code * 128}};
}

const StageFacts kPseudo{.name = "pseudo",
                         .depth = 4,
                         .unique_parameters = 1000,
                         .virtual_parameters = 4000,
                         .active_parameters = 4000,
                         .account = {.weights = 4096},
                         .flops_per_token = 500,
                         .loss = 2.5};
const StageFacts kReal{.name = "real",
                       .depth = 4,
                       .unique_parameters = 4000,
                       .virtual_parameters = 4000,
                       .active_parameters = 3000,
                       .account = {.weights = 16384},
                       .flops_per_token = 500,
                       .loss = 2.5};

RunBegan Began() {
  return {.at = {.step = 4,
                 .tokens = 512,
                 .flops = 256e3,
                 .stage = "pseudo",
                 .seconds = 1},
          .resumed = true,
          .recipe = "[model]\n",
          .stage = kPseudo,
          .device = "cpu",
          .ranks = 2,
          .threads = 3,
          .peak_flops = 2e6,
          .tokens_left = 20000,
          .sources = Sources(4, 1),
          .counts = {{.name = "web", .corpus = "w1", .share = 0.5},
                     {.name = "old", .corpus = "o1", .samples = 7}}};
}

// After the fifth step.
RunMoment AtFive(const char* stage, double seconds) {
  return {.step = 5,
          .tokens = 640,
          .flops = 32e4,
          .stage = stage,
          .seconds = seconds};
}

StepDone Step() {
  return {
      .at = AtFive("pseudo", 1.5),
      .stage_index = 0,
      .depth = 4,
      .steps = 10,
      .loss = 3.25,
      .lr = 0.001,
      .grad_norm = 0.5,
      .skipped = true,
      .speed = {.tokens_per_s = 256,
                .peak_fraction = 0.25,
                .mean_seconds = 2,
                .mean_tokens_per_s = 128,
                .mean_peak_fraction = 0.125,
                .new_peak_flops = 3e6},
      .wait = PipelineWait{.bubble = 0.25, .seconds = 0.125},
      .memory = 1 << 20,
      .peak_memory = 1 << 21,
      .norms =
          NormsByLayer{.layers = {"embed"}, .gradient = {0.5}, .weight = {2}},
      .routing = RoutingByLayer{.layers = {"blocks/1"},
                                .load = {{0.5, 0.75, 1, 1.25, 1.5}},
                                .max_violation = {0.5},
                                .dropped = {0.125},
                                .entropy = {0.25},
                                .z = {2.5},
                                .aux_loss = {0.375},
                                .choices = {{1, 3}}},
      .sources = Sources(5, 10)};
}

// In the order of a run.
std::vector<RunEvent> Events() {
  return {Began(),
          Step(),
          StepsTimed{.at = AtFive("pseudo", 2),
                     .planned = 0.5,
                     .measured = 0.75,
                     .lanes = {{"compute", 0.5, 0.625}, {"host", 0.25, 0.5}}},
          GradientsProbed{.at = AtFive("pseudo", 2),
                          .rho = 0.5,
                          .times_unrelated = 1.5,
                          .rho_of = {{"attention", 0.25}, {"mlp", 0.75}}},
          RunValidated{.at = AtFive("pseudo", 3),
                       .loss = 3,
                       .loss_of = {{"web", 2.5}, {"code", 3.5}}},
          CheckpointSaved{.at = {.step = 5}, .path = "run/step-00000005"},
          StageSwitched{.at = AtFive("real", 4),
                        .why = "as the recipe says",
                        .before = kPseudo,
                        .after = kReal},
          RunEndsEarly{.at = AtFive("real", 5),
                       .why = "enough",
                       .best_loss = 3,
                       .best_step = 5},
          RunEnded{.at = AtFive("real", 65),
                   .peak_memory = 1 << 21,
                   .sources = Sources(5, 10)}};
}

void Tell(Sink& sink, const std::vector<RunEvent>& events) {
  for (const RunEvent& event : events) {
    const absl::Status status = sink.Record(event);
    ASSERT_TRUE(status.ok()) << status;
  }
}

// The lines that `sink` logs.
std::string LogOf(Sink& sink, const std::vector<RunEvent>& events) {
  const TempDir dir;
  SetLogLevel(LogLevel::kInfo);
  EXPECT_TRUE(SetLogFile(dir / "log.txt"));
  Tell(sink, events);
  SetLogFile("");
  return *ReadFile(dir / "log.txt");
}

TEST(LogSink, SaysWhatAPersonWantsToKnow) {
  EXPECT_EQ(LogOf(*NewLogSink(), Events()),
            R"(stage pseudo: 1.00 k unique parameters, 4.00 k virtual
memory of a rank         pseudo
  weights               4.0 KiB
  in all                4.0 KiB
computing on cpu
500 FLOP a token; matmul peak 2.00 MFLOP/s on 2 rank(s) of 3 thread(s)
20.0 k tokens to go: about 10 s at half the peak
resuming after step 4
source web: 75.0% of the samples; 12.8 k tokens, read 0.04 times
source code: 25.0% of the samples; 1.28 k tokens, read 0.10 times; not validated on
source code is new to the run: it begins at its first sample
source old is not in the recipe: its 7 samples stay counted, and it continues from there if it returns
the blend differs from the checkpoint's; from here on web 75.0%, code 25.0%
matmul peak, measured again: 3.00 MFLOP/s
source code has ended: all its 10 samples have been read, and repeat = false
from here on the samples are web 75.0%, code 0.0%
stage pseudo: a step takes 0.75 s, 1.50 times the planned 0.5 s
warning: the plan and the steps differ most in lane host: 0.5 s a step for 0.25 s as planned; if the machine was idle, measure its rates anew (delink bench --suite machine)
step 5  gradients of layers that share agree: rho 0.500, attention 0.250, mlp 0.750; 1.50 times unrelated
step 5  validation loss 3.0000 (perplexity 20.09)
  by source: web 2.5000, code 3.5000
saved run/step-00000005
delinking after step 5, as the recipe says
  pseudo: 1.00 k unique parameters, 4.00 k virtual, loss 2.5 on one fixed batch
  real: 4.00 k unique parameters, 4.00 k virtual, 3.00 k active, loss 2.5 on one fixed batch
memory of a rank         pseudo        real
  weights               4.0 KiB    16.0 KiB
  in all                4.0 KiB    16.0 KiB
the run ends early, after step 5: enough
done: 5 steps, 640 tokens, 320 kFLOP, 1 min 05 s, peak memory 2.0 MiB
read: web 640 tokens (0.05 epochs), code 1.28 k tokens (1.00 epochs)
)");
}

// What is to go is told by the FLOPs of the stage that begins.
TEST(LogSink, SaysThatAStageIsNotTheWholeRun) {
  RunBegan began = Began();
  began.grows = true;
  EXPECT_THAT(LogOf(*NewLogSink(), {began}),
              HasSubstr("\n20.0 k tokens to go: about 10 s at half the peak, "
                        "and longer once it has grown\n"));
}

TEST(LogSink, SaysWhoHasWhatOfAPipeline) {
  RunBegan began = Began();
  const std::string table =
      "pipeline stage  ranks             layers  parameters\n"
      "             0   0..1  embed,blocks/0..2      3.00 k\n"
      "             1   2..3     blocks/3..head      1.00 k\n";
  began.stage.pipeline = {
      {.ranks = {0, 1}, .layers = "embed,blocks/0..2", .parameters = 3000},
      {.ranks = {2, 3}, .layers = "blocks/3..head", .parameters = 1000}};
  EXPECT_THAT(LogOf(*NewLogSink(), {began}),
              HasSubstr(" virtual\n" + table + "memory of a rank"));
  const std::string log =
      LogOf(*NewLogSink(),
            {StageSwitched{
                .at = {.step = 5}, .before = kPseudo, .after = began.stage}});
  EXPECT_THAT(log, HasSubstr(table + "memory of a rank"));
}

// As where another axis than the pipeline is the last one.
TEST(PipelineTable, SaysWhichRanksAreApart) {
  std::vector<int> even, pairs, uneven;
  for (int i = 0; i < 8; ++i) even.push_back(2 * i);
  for (int i = 0; i < 6; ++i) pairs.insert(pairs.end(), {4 * i, 4 * i + 1});
  for (const int rank : {0, 2, 4, 6, 8, 11, 12}) uneven.push_back(rank);
  EXPECT_EQ(PipelineTable({{.ranks = {0, 2}, .layers = "embed"},
                           {.ranks = even, .layers = "blocks/0"},
                           {.ranks = pairs, .layers = "blocks/1"},
                           {.ranks = uneven, .layers = "blocks/2"},
                           {.ranks = {0, 1, 4, 5}, .layers = "head"}}),
            "pipeline stage                 ranks    layers  parameters\n"
            "             0                   0,2     embed           0\n"
            "             1            0,2,...,14  blocks/0           0\n"
            "             2  0..1,4..5,...,20..21  blocks/1           0\n"
            "             3      0,2,4,6,8,11..12  blocks/2           0\n"
            "             4             0..1,4..5      head           0\n");
}

TEST(LogSink, SaysHowFarAStageGrows) {
  StageFacts shallow = kPseudo;
  shallow.depth = 1;
  shallow.flops_per_token = 200;
  const std::string log =
      LogOf(*NewLogSink(), {StageSwitched{.at = {.step = 5},
                                          .why = "as the recipe says",
                                          .before = shallow,
                                          .after = kReal}});
  EXPECT_THAT(log, StartsWith("growing from 1 to 4 blocks after step 5, as the "
                              "recipe says\n"));
  EXPECT_THAT(log, HasSubstr("\n  FLOP a token: 200 before, 500 after\n"));
}

TEST(LogSink, FlopsThatWereNotCountedAreNotTold) {
  const RunMoment at{
      .step = 5, .tokens = 640, .flops = std::nan(""), .seconds = 65};
  EXPECT_THAT(LogOf(*NewLogSink(), {RunEnded{.at = at}}),
              StartsWith("done: 5 steps, 640 tokens, 1 min 05 s, peak"));
}

TEST(LogSink, OfOneCorpusOnlyThatItHasEnded) {
  RunBegan began = Began();
  began.counts.clear();
  began.sources = {Sources(99, 0)[0]};
  StepDone step = Step();
  step.speed.new_peak_flops.reset();
  step.sources = {Sources(100, 0)[0]};
  StepDone next = step;
  next.sources = {Sources(101, 0)[0]};
  const std::string log = LogOf(*NewLogSink(), {began, step, next, next});
  const std::string head = "resuming after step 4\n";
  EXPECT_EQ(log.substr(log.find(head) + head.size()),
            "the corpus data/web has ended: all its 100 samples have been "
            "read; from here on they are repeated, each epoch in another "
            "order\n");
}

// The rows in `path` but for the first, as they are written.
std::vector<std::string> RowsOf(const std::string& path) {
  std::vector<std::string> rows;
  std::string text = *ReadFile(path);
  for (size_t end = 0; (end = text.find('\n')) != std::string::npos;) {
    rows.push_back(text.substr(0, end));
    text.erase(0, end + 1);
  }
  return rows;
}

TEST(MetricsSink, RowsHaveTheirKeysInTheirOrder) {
  const TempDir dir;
  auto sink = OpenMetricsSink(dir / "metrics.jsonl", 0);
  ASSERT_TRUE(sink.ok()) << sink.status();
  Tell(**sink, Events());
  const std::vector<std::string> rows = RowsOf(dir / "metrics.jsonl");
  ASSERT_EQ(rows.size(), 7);
  std::string keys;
  const auto start = nlohmann::ordered_json::parse(rows[0]);
  for (const auto& [key, value] : start.items()) keys += key + " ";
  EXPECT_EQ(keys,
            "event step tokens flops stage time command version commit "
            "features device processor cores ranks threads peak_flops depth "
            "flops_per_token unique_parameters virtual_parameters "
            "active_parameters bytes sources seconds ");
  EXPECT_EQ(
      start["sources"].dump(),
      R"([{"name":"web","corpus":"w1","share":0.75,"epoch_samples":100,"repeat":true,"samples":4,"tokens":512,"epochs":0.04},{"name":"code","corpus":"c1","share":0.25,"epoch_samples":10,"repeat":false,"samples":1,"tokens":128,"epochs":0.1}])");
  EXPECT_EQ(
      rows[1],
      R"({"step":5,"tokens":640,"flops":320000.0,"stage":"pseudo","loss":3.25,"lr":0.001,"grad_norm":0.5,"seconds":1.5,"tokens_per_s":256.0,"peak_memory":2097152,"bubble":0.25,"network_wait":0.125,"skipped":true,"peak_flops":3000000.0,"norms":{"layers":["embed"],"gradient":[0.5],"weight":[2.0]},"routing":{"layers":["blocks/1"],"load":[[0.5,0.75,1.0,1.25,1.5]],"max_violation":[0.5],"dropped":[0.125],"entropy":[0.25],"z":[2.5],"aux_loss":[0.375],"choices":[[1.0,3.0]]},"sources":{"web":{"samples":5,"tokens":640,"epochs":0.05},"code":{"samples":10,"tokens":1280,"epochs":1.0}}})");
  EXPECT_EQ(
      rows[2],
      R"({"event":"timed","step":5,"tokens":640,"flops":320000.0,"stage":"pseudo","planned_step_seconds":0.5,"step_seconds":0.75,"lanes":{"compute":{"planned":0.5,"measured":0.625},"host":{"planned":0.25,"measured":0.5}},"seconds":2.0})");
  EXPECT_EQ(
      rows[3],
      R"({"event":"agreement","step":5,"tokens":640,"flops":320000.0,"stage":"pseudo","agreement":1.5,"rho":0.5,"rho_of":{"attention":0.25,"mlp":0.75},"seconds":2.0})");
  EXPECT_EQ(
      rows[4],
      R"({"step":5,"tokens":640,"flops":320000.0,"stage":"pseudo","validation_loss":3.0,"seconds":3.0,"validation_loss_of":{"web":2.5,"code":3.5}})");
  const std::string bytes =
      R"("gradients":0,"state":0,"activations":0,"slots":0,"boundaries":0,"workspace":0,"copies":0,"records":0,"total":)";
  EXPECT_EQ(
      rows[5],
      R"({"event":"delink","step":5,"from":"pseudo","to":"real","why":"as the recipe says","loss_before":2.5,"loss_after":2.5,"depth_before":4,"depth":4,"unique_parameters":4000,"virtual_parameters":4000,"unique_parameters_before":1000,"virtual_parameters_before":4000,"flops_per_token_before":500.0,"flops_per_token":500.0,"bytes_before":{"weights":4096,)" +
          bytes + R"(4096},"bytes_after":{"weights":16384,)" + bytes +
          R"(16384},"seconds":4.0})");
  EXPECT_EQ(
      rows[6],
      R"({"event":"early_end","step":5,"tokens":640,"flops":320000.0,"why":"enough","best_validation_loss":3.0,"best_step":5,"seconds":5.0})");
}

// What is not there to tell has no key.
TEST(MetricsSink, APlainStepIsShort) {
  const TempDir dir;
  auto sink = OpenMetricsSink(dir / "metrics.jsonl", 0);
  ASSERT_TRUE(sink.ok()) << sink.status();
  StepDone step = Step();
  step.skipped = false;
  step.speed.new_peak_flops.reset();
  step.norms.reset();
  step.routing.reset();
  step.wait.reset();
  step.sources.pop_back();
  Tell(**sink, {step});
  EXPECT_EQ(
      RowsOf(dir / "metrics.jsonl"),
      std::vector<std::string>{
          R"({"step":5,"tokens":640,"flops":320000.0,"stage":"pseudo","loss":3.25,"lr":0.001,"grad_norm":0.5,"seconds":1.5,"tokens_per_s":256.0,"peak_memory":2097152})"});
}

TEST(MetricsSink, ARunThatGoesOnDropsWhatIsNotItsOwn) {
  const TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  const std::string kept = "{\"step\":4,\"loss\":1}\n{\"step\":5,\"loss\":1}\n";
  ASSERT_TRUE(WriteFile(path, kept + "{\"event\":\"delink\",\"step\":5}\n"
                                     "not a row\n{\"loss\":1}\n"
                                     "{\"step\":6,\"loss\":1}\n{\"step\":")
                  .ok());
  {
    auto sink = OpenMetricsSink(path, 5);
    ASSERT_TRUE(sink.ok()) << sink.status();
    EXPECT_EQ(*ReadFile(path), kept);
    Tell(**sink, {RunEndsEarly{.at = {.step = 5}}});
  }
  EXPECT_EQ(RowsOf(path).size(), 3);
}

TEST(ProgressSink, OfSoManyStepsOneStays) {
  std::vector<RunEvent> events;
  for (int64_t step = 1; step <= 10; ++step) {
    StepDone done = Step();
    done.at.step = step;
    events.emplace_back(done);
    events.emplace_back(CheckpointSaved{.at = done.at, .path = "there"});
  }
  const auto sink = NewProgressSink(4);
  const std::string rest =
      "  128 tokens/s  pseudo  12% of peak  lr 0.001  grad norm 0.5  1.0 "
      "MiB\n";
  EXPECT_EQ(LogOf(*sink, events),
            "step 1/10  loss 3.2500  18 s left" + rest +
                "step 4/10  loss 3.2500  12 s left" + rest +
                "step 8/10  loss 3.2500  4 s left" + rest +
                "step 10/10  loss 3.2500  0 s left" + rest);
}

}  // namespace
}  // namespace delink::sinks_test
