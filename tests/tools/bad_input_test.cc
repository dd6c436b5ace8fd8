// Bad input of every kind, against the program itself: what it exits with, and
// that its message says where, what, and how to mend it. What a rank does when
// another dies is in killed_rank.py; what somebody made on purpose, and what
// the system does, in crafted_input_test.cc.
#include "tests/tools/bad_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/testing/source_path.h"

namespace delink::testing::bad_input_test {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

// One of each place that finds something; what else can be wrong with a recipe,
// and all that is said of it: recipe_errors_test.cc.
TEST_F(BadInput, Recipes) {
  const std::string recipe = SourcePath("recipes/tiny.toml");
  const auto own = [](const std::string& text) {
    return [text] { WriteText(Path("own.toml"), text); };
  };
  const Words train_own = {"train", Path("own.toml"), "--out", Path("never")};
  Check({
      {Set("model.lairs=3"), {"model.lairs", "did you mean 'layers'"}},
      {Set("model.dropout=1.5"),
       {"model.dropout: 1.5", "at least 0.0, below 1.0"}},
      OnRanks(2, {Set("data.batch=7"), {"data.batch", "is not a multiple"}}),
      {Set("stage.0.parallel.data=2"),
       {"stage[0].parallel", "= 2 ranks", "start it with mpirun -np 2"}},
      OnRanks(2, {Set("stage.1.parallel.data=1"),
                  {"stage[1].parallel", "start it with mpirun -np 1"}}),
      {Set("optimizer.group=[{match=\"blocks/0/attn/qkv/wight\"}]"),
       {"optimizer.group[0].match", "matches no parameter",
        "similar names are blocks/0/attn/qkv/weight"}},
      {Set("optimizer.group=[{match=\"blocks/1/*\", lr_scale=0.5}]"),
       {"stage[0].share", "share weights, but groups give them lr_scale"}},
      {Set("run.master=split"), {"run.master", "run.precision"}},
      {Set("run.gradients=bf16"), {"run.gradients", "run.precision"}},
      {Set("run.gradients=fp16"), {"run.gradients", "fp16", "bf16"}},
      {Set("model.vocab=100"),
       {"model.vocab is 100", "257", "leave model.vocab out"}},
      {{"plan", recipe, "--ranks", "8", "--set", "model.vocab=257", "--set",
        "stage.0.parallel.data=2"},
       {"stage[0].parallel", "the plan is for 8; give --ranks 2"}},
      {train_own, {"own.toml:2:"}, own("[model]\nkind = gpt\n")},
      {train_own, {"own.toml", "model.kind: required"}, own("")},
      {{"train", Path("no.toml")}, {"no.toml"}},
      {TrainWords("straight"),
       {"straight: holds a run", "--resume", "--overwrite"}},
  });
}

// A block that grows as a copy of one with other parameters; and a depth given
// by hand where there are as many blocks already.
TEST_F(BadInput, Depths) {
  const Outcome grown = RunHybrid(
      TrainWords("never", {"--set", "stage.0.share=none", "--set",
                           "stage.0.depth=3", "--set", "stage.1.grow=copy"}));
  EXPECT_EQ(grown.code, 2);
  EXPECT_EQ(grown.err,
            "error: --set stage.1.grow=copy: stage[1].grow: block 3 would be a "
            "copy of block 2, which declares other parameters in mlp; let it "
            "begin as \"random\" or \"zero\"\n");
  const std::string pseudo = Step("straight", kSwitch);
  EXPECT_EQ(
      ExpectRefused({"delink", pseudo, Path("never"), "--grow", "copy"}, pseudo)
          .err,
      "error: " + pseudo +
          ": has 4 blocks already, so none are added; leave --grow out, "
          "or give a --depth\n");
  ExpectRefused({"delink", pseudo, Path("never"), "--depth", "5"},
                ": the model has 4 blocks, fewer than --depth 5");
  EXPECT_FALSE(fs::exists(Path("never")));
}

// What else is wrong with a pipeline: recipe_errors_test.cc.
TEST_F(BadInput, Pipelines) {
  const std::string recipe = SourcePath("recipes/tiny.toml");
  const std::string two = "stage.0.parallel.pipeline=2";
  Check({
      {{"plan", recipe, "--ranks", "4", "--ranks-per-node", "2", "--set",
        "model.vocab=257", "--set", "stage.1.parallel.tensor=4"},
       {"stage[1].parallel.tensor: 4, but ranks 0,1,2,3 of one group are on "
        "nodes 0,1",
        "use tensor 2", "tensor_across_nodes = true"}},
      OnRanks(3, {Set(two),
                  {"stage[0].parallel",
                   "mpirun started 3; start it with mpirun -np 2 or 4"}}),
      OnRanks(2, {TrainWords("never", {"--set",
                                       "stage.0.parallel={pipeline=2,"
                                       "schedule=\"interleaved\"}",
                                       "--set", "run.micro_batch=8"}),
                  {"data.batch: 8 is 1 micro-batch a rank",
                   "multiple of pipeline 2", "use 16, or micro_batch 4"}}),
  });
}

// Some would wait for what others never begin.
TEST_F(BadInput, RanksThatAreStartedUnlike) {
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Words train = TrainWords("never");
  struct Row {
    Words second;
    const char* says;
  };
  const Row rows[] = {
      {TrainWords("never", {"--resume"}),
       "error: rank 1: this rank has '--resume' where rank 0 has 'no "
       "--resume'; give all ranks the same recipe, options and corpus"},
      {TrainWords("never", {"--until-step", "7"}),
       "error: rank 1: this rank has '--until-step 7' where rank 0 has 'no "
       "--until-step'; "},
      {{"eval", Path("straight"), "--data", Path("corpus")},
       "error: rank 1: this rank was started with 'delink eval' by delink "},
      {{"train", "--no-such-option"},
       "error: rank 1: this rank was started with arguments that are not a "
       "command (delink train: "},
  };
  for (const Row& row : rows) {
    const Outcome outcome = MpirunDelinkUnlike(train, row.second);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(row.says));
    EXPECT_EQ(outcome.err.find("error: "), outcome.err.rfind("error: "));
    EXPECT_FALSE(std::filesystem::exists(Path("never")));
  }
}

TEST_F(BadInput, Threads) {
  const std::vector<std::string> says = {"--threads", "100000", "1 to 4096"};
  Check({
      {{"train", SourcePath("recipes/tiny.toml"), "--out", Path("never"),
        "--threads", "100000"},
       says},
      {{"bench", "--threads", "100000"}, says},
      {{"data", "build", "--out", Path("never"), "--threads", "100000",
        Path("text0.txt")},
       says},
      {Set("run.threads=100000"), {"run.threads", "100000", "1 to 4096"}},
  });
  const Outcome outcome = RunShell(
      "OMP_NUM_THREADS=100000 \"$0\" \"$@\"",
      {"eval", Path("straight"), "--data", Path("corpus"), "--batches", "1"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("OMP_NUM_THREADS: 100000"));
}

// What names say to a terminal is shown, not done.
TEST_F(BadInput, EscapeSequences) {
  const std::string shown = "\\u001b[31m";
  const std::string keys = Path("escape\x1b[31m.toml");
  WriteText(keys, "[run]\n\"la\\u001b[31mirs\" = 3\n");
  const Outcome key =
      ExpectRefused({"plan", keys}, "escape" + shown + ".toml:2:1: run.la" +
                                        shown + "irs: unknown key");
  const Outcome file = RunDelink({"plan", Path("no\x1b[31m")});
  EXPECT_THAT(file.err, HasSubstr("no" + shown));
  const Outcome stage =
      Succeed({"plan", SourcePath("recipes/tiny.toml"), "--set",
               "model.vocab=257", "--set", "stage.0.name=\"\\u001b[31mred\""});
  EXPECT_THAT(stage.out, HasSubstr("stage " + shown + "red"));
  for (const Outcome& outcome : {key, file, stage}) {
    EXPECT_EQ((outcome.out + outcome.err).find('\x1b'), std::string::npos);
  }
}

TEST_F(BadInput, Corpora) {
  const auto short_corpus = [] {
    WriteText(Path("short.txt"), "one.\n");
    WriteText(Path("short2.txt"), "two.\n");
    Succeed(With(Build("short.txt", "short"), {Path("short2.txt")}));
  };
  const auto cut_shard = [] {
    CopyCorpus("cut");
    fs::resize_file(Path("cut/train/shard-00000.h5"), 4000);
  };
  const auto flipped_shard = [] {
    CopyCorpus("flip");
    FlipByte(Path("flip/train/shard-00000.h5"), 3000);
  };
  const auto two_tokenizers = [] {
    CopyCorpus("mixed");
    fs::remove_all(Path("mixed/validation"));
    Succeed({"data", "build", "--train-tokenizer", "400", "--validation", "0.5",
             "--out", Path("words"), SourcePath("LICENSE")});
    fs::copy(Path("words/validation"), Path("mixed/validation"));
  };
  Check({
      {Set("data.train=/no/such/corpus"), {"/no/such/corpus"}},
      {Build("text0.txt", "corpus"), {Path("corpus"), "--overwrite"}},
      {TrainOn("short"), {"short/train", "data.seq"}, short_corpus},
      {TrainOn("cut"), {"cut/train/shard-00000.h5"}, cut_shard, 1},
      {{"data", "verify", Path("flip/train")},
       {"flip/train/shard-00000.h5"},
       flipped_shard,
       1},
      {TrainOn("mixed"),
       {"mixed/train", "mixed/validation", "different tokenizers",
        "in one call"},
       two_tokenizers},
      {{"eval", Path("straight"), "--data", Path("words/validation")},
       {Path("words/validation"), "tokenizer"}},
  });
}

TEST_F(BadInput, Checkpoints) {
  const std::string newest = Step("straight", kSteps);
  const std::string flipped = Step("c-flip", kSteps);
  const auto cut = [] {
    CopyRun("c-cut");
    fs::resize_file(Step("c-cut", kSteps) + "/rank-00000.h5", 4000);
  };
  const auto flip = [flipped] {
    CopyRun("c-flip");
    FlipByte(flipped + "/rank-00000.h5", 5000);
  };
  const auto bare = [] {
    CopyRun("c-bare");
    fs::remove(Step("c-bare", kSteps) + "/SHA256SUMS");
  };
  const auto another_corpus = [] {
    Succeed(With(Build("text0.txt", "other"), {Path("text1.txt")}));
  };
  Check({
      {Resume(Path("nowhere")), {Path("nowhere")}},
      {{"inspect", Path("corpus")}, {"no checkpoint there"}},
      {{"inspect", Step("c-cut", kSteps)},
       {"rank-00000.h5", "truncated"},
       cut,
       1},
      {Resume(flipped), {"rank-00000.h5"}, flip, 1},
      // The one before is taken, and it is said.
      {{"inspect", Path("c-flip"), "--json"},
       {flipped, "rank-00000.h5"},
       [] {},
       0},
      {{"inspect", Step("c-bare", kSteps)},
       {"SHA256SUMS: missing", "make it again or choose another"},
       bare},
      {Resume(newest, {"--set", "model.dim=64"}),
       {"model.dim: is 64, but the run to resume has 32"}},
      {Resume(newest, {"--set", "data.train=" + Path("other/train")}),
       {"another corpus", "digests differ", "resume with the same corpus"},
       another_corpus},
  });
}

TEST_F(BadInput, Reports) {
  const std::string run = Path("straight"), out = Path("report.html");
  Check({
      {{"report", Path("nowhere"), "--out", out}, {"nowhere"}},
      {{"report", Path("corpus"), "--out", out},
       {"corpus: is not a run", "recipe.toml", "delink train"},
       [] {},
       1},
      {{"report", run, "--out", Path("nowhere/report.html")},
       {"nowhere/report.html: there is no folder", "another --out"}},
      {{"report", run, "--out", Path("straight/metrics.jsonl")},
       {"is not an HTML page", "another --out"}},
      {{"report", run}, {"--out"}},
      OnRanks(2, {{"report", run, "--out", out},
                  {"one process", "without mpirun"}}),
  });
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(BadInput, Runs) {
  const Words wild = {"--set", "optimizer.lr=1000", "--set",
                      "optimizer.clip=0"};
  Check({
      {TrainWords("wild", wild),
       {"step 2: the loss or its gradient is not finite: the gradient of embed",
        "wild/diagnosis/step-00000002", "Lower optimizer.lr"},
       [] {},
       1},
      {TrainWords("wilder", wild),
       {"rank 0: step 2: the loss or its gradient is not finite",
        "wilder/diagnosis/step-00000002", "Lower optimizer.lr"},
       [] {},
       1,
       2},
      OnRanks(2, {{"inspect", Path("straight")},
                  {"one process", "without mpirun"}}),
      {TrainWords("text0.txt"), {"text0.txt", "is a file", "another --out"}},
  });
  EXPECT_TRUE(fs::exists(Path("wild/diagnosis/step-00000002/step.json")));
  EXPECT_TRUE(fs::exists(Path("wild/diagnosis/step-00000002/rank-00000.json")));
  int steps = 0;
  for (const auto& row : Rows(Path("wild/metrics.jsonl"))) {
    steps += static_cast<int>(row.contains("loss"));
  }
  EXPECT_EQ(steps, 1);
}

// Nothing that was to be printed is lost without a word.
TEST_F(BadInput, OutputThatIsLost) {
  const std::string recipe = SourcePath("recipes/tiny.toml");
  const std::string run = Path("straight");
  WriteText(Path("grid.toml"), "recipe = \"" + recipe + "\"\nseeds = [1, 2]\n");
  const std::vector<Words> commands = {
      {"--help"},
      {"--version"},
      {"man"},
      {"completion", "bash"},
      {"plan", recipe, "--set", "model.vocab=257"},
      {"inspect", run},
      {"inspect", run, "--json"},
      {"eval", run, "--data", Path("corpus"), "--batches", "1", "--json"},
      {"generate", run, "--prompt", "the", "--tokens", "2"},
      {"delink", Step("straight", kSwitch), Path("lost")},
      {"data", "info", Path("corpus")},
      {"data", "check", Path("corpus"), "--json"},
      {"data", "verify", Path("corpus")},
      {"report", run, "--out", Path("lost.html")},
      {"sweep", Path("grid.toml"), "--out", Path("lost-sweep"), "--set",
       "data.train=" + Path("corpus"), "--dry-run"},
  };
  for (const Words& command : commands) {
    SCOPED_TRACE(::testing::PrintToString(command));
    const Outcome full = RunShell("\"$0\" \"$@\" > /dev/full", command);
    EXPECT_EQ(full.code, 1) << full.err;
    EXPECT_THAT(full.err,
                HasSubstr("standard output: not all of it could be written"));
  }
  // A reader that has gone has seen what it wanted.
  const Outcome gone =
      RunShell("\"$0\" \"$@\" | true; exit ${PIPESTATUS[0]}", {"man"});
  EXPECT_TRUE(gone.code == 0 || gone.code == 141) << gone.code;
  EXPECT_EQ(gone.err, "");
}

TEST_F(BadInput, AFileBeyondItsLimit) {
  const Outcome outcome =
      RunShell("ulimit -f 16; exec \"$0\" \"$@\"", TrainWords("limited"));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("File too large"));
}

// Room for the first checkpoint of the run and a half.
TEST_F(BadInput, AFullDiskKeepsTheOlderCheckpoint) {
  int64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(Step("straight", 5))) {
    bytes += static_cast<int64_t>(file.file_size());
  }
  SmallDisk disk(std::to_string(bytes * 3 / 2 + 100'000));
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  const std::string run = disk.path() + "/run";
  Words words = TrainWords("never");
  words[3] = run;
  const Outcome outcome = RunDelink(words);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  for (const char* says :
       {"step-00000010", "No space left", "older checkpoints are unchanged"}) {
    EXPECT_THAT(outcome.err, HasSubstr(says));
  }
  const nlohmann::json whole = Json({"inspect", run, "--json"});
  EXPECT_EQ(whole["step"], 5);
}

}  // namespace
}  // namespace delink::testing::bad_input_test
