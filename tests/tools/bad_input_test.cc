// Bad input of every kind, against the program itself: what it exits with, and
// that its message says where, what, and how to mend it. What a rank does when
// another dies is in killed_rank.py; what somebody made on purpose, and what
// the system does, in crafted_input_test.cc.
#include "tests/tools/bad_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "framework/checkpoint/checkpoint.h"
#include "framework/hdf5/hdf5.h"
#include "tests/testing/source_path.h"

namespace delink::testing::bad_input_test {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

TEST_F(BadInput, Recipes) {
  const std::string recipe = SourcePath("recipes/tiny.toml");
  const auto own = [](const std::string& text) {
    return [text] { WriteText(Path("own.toml"), text); };
  };
  const Words train_own = {"train", Path("own.toml"), "--out", Path("never")};
  Check({
      {"unknown key",
       Set("model.lairs=3"),
       2,
       {"model.lairs", "did you mean 'layers'"}},
      {"wrong type", Set("optimizer.lr=fast"), 2, {"optimizer.lr", "\"fast\""}},
      {"out of range",
       Set("model.dropout=1.5"),
       2,
       {"model.dropout: 1.5", "at least 0.0, below 1.0"}},
      {"batch that does not divide",
       Set("data.batch=7"),
       2,
       {"data.batch", "is not a multiple"}},
      {"batch that does not divide, told once by all ranks",
       Set("data.batch=7"),
       2,
       {"data.batch", "is not a multiple"},
       [] {},
       2},
      {"world size",
       Set("stage.0.parallel.data=2"),
       2,
       {"stage[0].parallel", "= 2 ranks", "start it with mpirun -np 2"}},
      {"world size under mpirun",
       Set("stage.1.parallel.data=1"),
       2,
       {"stage[1].parallel", "start it with mpirun -np 1"},
       [] {},
       2},
      {"groups that do not divide",
       Set("stage.0.share=\"groups:3\""),
       2,
       {"stage[0].share", "groups:3 does not divide 4 layers"}},
      {"a later stage that links again",
       TrainWords("never", {"--set", "stage.0.share=\"none\"", "--set",
                            "stage.1.share=\"all\""}),
       2,
       {"stage[1].share", "a later stage can only cut links"}},
      {"a group that matches nothing",
       Set("optimizer.group=[{match=\"blocks/0/attn/qkv/wight\"}]"),
       2,
       {"optimizer.group[0].match", "matches no parameter",
        "near names are blocks/0/attn/qkv/weight"}},
      {"groups that tell apart layers that share",
       Set("optimizer.group=[{match=\"blocks/1/*\", lr_scale=0.5}]"),
       2,
       {"stage[0].share", "share weights, but groups give them lr_scale"}},
      {"a key of another optimizer",
       Set("optimizer.relative_step=true"),
       2,
       {"optimizer.relative_step", "\"adamw\" has no such key", "adafactor"}},
      {"a master that only AdamW knows",
       TrainWords("never", {"--set", "optimizer.kind=muon", "--set",
                            "run.precision=bf16", "--set", "run.master=split"}),
       2,
       {"run.master", "adamw"}},
      {"gradients in bf16 of weights in fp32",
       Set("run.gradients=bf16"),
       2,
       {"run.gradients", "run.precision"}},
      {"gradients in no such type",
       Set("run.gradients=fp16"),
       2,
       {"run.gradients", "fp16", "bf16"}},
      {"vocabulary smaller than the corpus's",
       Set("model.vocab=100"),
       2,
       {"model.vocab is 100", "257", "leave model.vocab out"}},
      {"a key that others have under another name",
       Set("optimizer.weight_decay=0.1"),
       2,
       {"optimizer.weight_decay", "did you mean 'decay'"}},
      {"a value in place of a table",
       Set("stage.0.until=0.25"),
       2,
       {"stage[0].until", "give until.fraction"}},
      {"ranks of a plan",
       {"plan", recipe, "--ranks", "8", "--set", "model.vocab=257", "--set",
        "stage.0.parallel.data=2"},
       2,
       {"stage[0].parallel", "the plan is of 8; give --ranks 2"}},
      {"not TOML", train_own, 2, {"own.toml:2:"}, own("[model]\nkind = gpt\n")},
      {"a key twice",
       train_own,
       2,
       {"own.toml:3:", "kind"},
       own("[model]\nkind = \"gpt\"\nkind = \"gpt\"\n")},
      {"not UTF-8",
       train_own,
       2,
       {"own.toml:1:", "utf-8"},
       own("kind = \"\xff\xfe\"\n")},
      {"empty", train_own, 2, {"own.toml", "model.kind: required"}, own("")},
      {"no such recipe", {"train", Path("no.toml")}, 2, {"no.toml"}},
      {"a folder that holds a run",
       TrainWords("straight"),
       2,
       {"straight: holds a run", "--resume", "--overwrite"}},
  });
}

// Each is all that is said.
TEST_F(BadInput, Depths) {
  const auto expect = [](const Outcome& outcome, const std::string& line) {
    EXPECT_EQ(outcome.code, 2) << line;
    EXPECT_EQ(outcome.err, "error: " + line + "\n");
    EXPECT_FALSE(fs::exists(Path("never")));
  };
  const auto train = [](const Words& sets) {
    Words more;
    for (const std::string& set : sets) more.insert(more.end(), {"--set", set});
    return TrainWords("never", more);
  };
  expect(RunDelink(train({"stage.0.depth=5"})),
         "--set stage.0.depth=5: stage[0].depth: 5 is more than model.layers "
         "4");
  expect(RunDelink(train({"stage.1.depth=3"})),
         "--set stage.1.depth=3: stage[1].depth: 3 is fewer than the 4 blocks "
         "that stage[0] visits; a later stage visits as many or more");
  expect(RunDelink(train({"stage.1.grow=copy"})),
         "--set stage.1.grow=copy: stage[1].grow: stage[0] visits all 4 blocks "
         "that this one does, so nothing grows; leave the key out");
  expect(RunDelink(train({"stage.0.depth=2", "stage.0.grow=zero"})),
         "--set stage.0.grow=zero: stage[0].grow: the first stage begins with "
         "initial weights, so nothing grows; leave the key out");
  expect(RunDelink(train({"stage.0.depth=2", "stage.0.share=groups:2"})),
         "--set stage.0.share=groups:2: stage[0].share: attention \"groups:2\" "
         "has 2 sets, but the stage visits blocks of only 1 of them (0,1); "
         "give it fewer sets, or a depth and visit that reach them all");
  expect(RunHybrid(train(
             {"stage.0.share=none", "stage.0.depth=3", "stage.1.grow=copy"})),
         "--set stage.1.grow=copy: stage[1].grow: block 3 would be a copy of "
         "block 2, which declares other parameters in mlp; let it begin as "
         "\"random\" or \"zero\"");
  // By hand.
  const std::string pseudo = Step("straight", kSwitch);
  const auto by_hand = [&](const Words& more) {
    Words words = {"delink", pseudo, Path("never")};
    words.insert(words.end(), more.begin(), more.end());
    return RunDelink(words);
  };
  expect(by_hand({"--depth", "5"}),
         pseudo + ": the model has 4 blocks, fewer than --depth 5");
  expect(by_hand({"--depth", "3"}),
         pseudo +
             ": under 'none' blocks 0,1,2,3 are visited before the "
             "switch, but after it only 0,1,2: a switch leaves no block "
             "out; give a larger depth, or a visit that keeps them");
  expect(by_hand({"--grow", "copy"}),
         pseudo +
             ": has 4 blocks already, so nothing grows; leave --grow out, "
             "or give a --depth");
}

// Each is all that is said, though the second stage has the same pipeline; what
// else is wrong with one: recipe_errors_test.cc.
TEST_F(BadInput, Pipelines) {
  const std::string recipe = SourcePath("recipes/tiny.toml");
  const auto with = [](const std::string& more) {
    return TrainWords("never",
                      {"--set", "stage.0.parallel={pipeline=2" + more + "}"});
  };
  const std::string turns = ", schedule=\"interleaved\"";
  Check({
      {"fewer layers than pieces",
       Set("stage.0.parallel={pipeline=4" + turns + "}"),
       2,
       {"stage[0].parallel.pipeline: 8 pieces (pipeline 4 x 2 chunks), but "
        "there are 6 layers: 4 blocks, embedding, head; at most pipeline 3"}},
      {"more chunks than layers",
       with(turns + ", chunks=4"),
       2,
       {"stage[0].parallel.chunks: 8 pieces (pipeline 2 x 4 chunks), but "
        "there are 6 layers: 4 blocks, embedding, head; at most chunks 3"}},
      {"layers that do not add up",
       with(", layers=[3,2]"),
       2,
       {"stage[0].parallel.layers: add up to 5, but the stage visits 4 blocks; "
        "number 1 would be 1, not 2"}},
      {"layers of another number of pieces",
       with(", layers=[2,1,1]"),
       2,
       {"stage[0].parallel.layers: 3 numbers, but pipeline 2 makes 2 pieces"}},
      {"chunks of a schedule that has one",
       with(", chunks=2"),
       2,
       {"stage[0].parallel.chunks: 2 with schedule \"1f1b\""}},
      {"no such schedule",
       with(", schedule=\"gpipe\""),
       2,
       {"stage[0].parallel.schedule", "\"1f1b\", \"interleaved\"",
        "got the string \"gpipe\""}},
      {"a pipeline after the switch that the stage before has no layers for",
       TrainWords("never", {"--set", "stage.0.depth=1", "--set",
                            "stage.1.parallel.pipeline=4"}),
       2,
       {"stage[1].parallel.pipeline: 4 pieces (pipeline 4), but at the switch "
        "stage[0] is laid out so first, which has 3 layers"}},
      {"heads that tensor ranks do not divide",
       Set("stage.1.parallel.tensor=3"),
       2,
       {"stage[1].parallel.tensor: 3 does not divide model.heads 4; use tensor "
        "2 or 4"}},
      {"sequences that context ranks do not divide",
       Set("stage.1.parallel.context=3"),
       2,
       {"stage[1].parallel.context: 3, but data.seq 32 is no multiple of 6",
        "use context 2 or 4, or data.seq 30 or 36"}},
      {"a tensor group across nodes",
       {"plan", recipe, "--ranks", "4", "--ranks-per-node", "2", "--set",
        "model.vocab=257", "--set", "stage.1.parallel.tensor=4"},
       2,
       {"stage[1].parallel.tensor: 4, but ranks 0,1,2,3 of one group are on "
        "nodes 0,1",
        "use tensor 2", "tensor_across_nodes = true"}},
      {"an order of its own",
       TrainWords("never", {"--set", "stage.0.parallel.pipeline=2", "--set",
                            "run.order=layer"}),
       2,
       {"run.order: \"layer\""}},
      {"one process",
       with(""),
       2,
       {"stage[0].parallel: data 1 x pipeline 2 is 2 ranks or a multiple, but "
        "one process was started; start it with mpirun -np 2"}},
      {"ranks that do not multiply out",
       with(""),
       2,
       {"stage[0].parallel",
        "mpirun started 3; start it with mpirun -np 2 or "
        "4"},
       [] {},
       3},
      {"ranks of a plan that do not multiply out",
       {"plan", recipe, "--ranks", "5", "--set", "model.vocab=257", "--set",
        "stage.0.parallel.pipeline=2"},
       2,
       {"stage[0].parallel", "the plan is of 5; give --ranks 4 or 6"}},
      {"interleaved micro-batches that are no multiple",
       TrainWords("never",
                  {"--set", "stage.0.parallel={pipeline=2" + turns + "}",
                   "--set", "run.micro_batch=8"}),
       2,
       {"data.batch: 8 is 1 micro-batch a rank", "multiple of pipeline 2",
        "use 16, or micro_batch 4"},
       [] {},
       2},
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
       "error: rank 1: this rank was started with what is no command (delink "
       "train: "},
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
  const std::string recipe = SourcePath("recipes/tiny.toml");
  const std::vector<std::string> says = {"--threads", "100000", "1 to 4096"};
  Check({
      {"of train",
       {"train", recipe, "--out", Path("never"), "--threads", "100000"},
       2,
       says},
      {"of bench", {"bench", "--threads", "100000"}, 2, says},
      {"of data build",
       {"data", "build", "--out", Path("never"), "--threads", "100000",
        Path("text0.txt")},
       2,
       says},
      {"of a recipe",
       Set("run.threads=100000"),
       2,
       {"run.threads", "100000", "1 to 4096"}},
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
  const Outcome key = RunDelink({"plan", keys});
  EXPECT_EQ(key.code, 2);
  EXPECT_THAT(key.err, HasSubstr("escape" + shown + ".toml:2:1: run.la" +
                                 shown + "irs: unknown key"));
  const Outcome file = RunDelink({"plan", Path("no\x1b[31m")});
  EXPECT_THAT(file.err, HasSubstr("no" + shown));
  const Outcome stage = RunDelink({"plan", SourcePath("recipes/tiny.toml"),
                                   "--set", "model.vocab=257", "--set",
                                   "stage.0.name=\"\\u001b[31mred\""});
  EXPECT_EQ(stage.code, 0) << stage.err;
  EXPECT_THAT(stage.out, HasSubstr("stage " + shown + "red"));
  for (const Outcome& outcome : {key, file, stage}) {
    EXPECT_EQ((outcome.out + outcome.err).find('\x1b'), std::string::npos);
  }
}

TEST_F(BadInput, Corpora) {
  const auto text = [](const std::string& name, const std::string& bytes) {
    return [=] { WriteText(Path(name), bytes); };
  };
  Check({
      {"no such corpus",
       Set("data.train=/no/such/corpus"),
       2,
       {"/no/such/corpus"}},
      {"empty text",
       Build("empty.txt", "c1"),
       2,
       {"empty.txt", "name files that have"},
       text("empty.txt", "")},
      {"not UTF-8",
       Build("latin.txt", "c2"),
       2,
       {"latin.txt", "UTF-8", "byte 3"},
       text("latin.txt", "caf\xe9 au lait")},
      {"a corpus that is there",
       Build("text0.txt", "corpus"),
       2,
       {Path("corpus"), "--overwrite"}},
      {"too short for a sequence",
       TrainOn("short"),
       2,
       {"short/train", "data.seq"},
       [] {
         WriteText(Path("short.txt"), "one.\n");
         WriteText(Path("short2.txt"), "two.\n");
         Words words = Build("short.txt", "short");
         words.push_back(Path("short2.txt"));
         ASSERT_EQ(RunDelink(words).code, 0);
       }},
      {"truncated shard",
       TrainOn("cut"),
       1,
       {"cut/train/shard-00000.h5"},
       [] {
         CopyCorpus("cut");
         fs::resize_file(Path("cut/train/shard-00000.h5"), 4000);
       }},
      {"flipped byte, when verified",
       {"data", "verify", Path("flip/train")},
       1,
       {"flip/train/shard-00000.h5"},
       [] {
         CopyCorpus("flip");
         FlipByte(Path("flip/train/shard-00000.h5"), 3000);
       }},
      {"two tokenizers",
       TrainOn("mixed"),
       2,
       {"mixed/train", "mixed/validation", "different tokenizers",
        "in one call"},
       [] {
         CopyCorpus("mixed");
         fs::remove_all(Path("mixed/validation"));
         const Outcome built = RunDelink(
             {"data", "build", "--train-tokenizer", "400", "--validation",
              "0.5", "--out", Path("words"), SourcePath("LICENSE")});
         ASSERT_EQ(built.code, 0) << built.err;
         fs::copy(Path("words/validation"), Path("mixed/validation"));
       }},
      {"a checkpoint's other tokenizer",
       {"eval", Path("straight"), "--data", Path("words/validation")},
       2,
       {Path("words/validation"), "tokenizer"}},
  });
}

TEST_F(BadInput, Checkpoints) {
  const std::string newest = Step("straight", kSteps);
  Check({
      {"nothing there", Resume(Path("nowhere")), 2, {Path("nowhere")}},
      {"no checkpoint there",
       {"inspect", Path("corpus")},
       2,
       {"no checkpoint there"}},
      {"truncated",
       {"inspect", Step("c-cut", kSteps)},
       1,
       {"rank-00000.h5", "truncated"},
       [] {
         CopyRun("c-cut");
         fs::resize_file(Step("c-cut", kSteps) + "/rank-00000.h5", 4000);
       }},
      {"one flipped byte",
       Resume(Step("c-flip", kSteps)),
       1,
       {"rank-00000.h5"},
       [] {
         CopyRun("c-flip");
         FlipByte(Step("c-flip", kSteps) + "/rank-00000.h5", 5000);
       }},
      {"one flipped byte: the one before is taken, and it is said",
       {"inspect", Path("c-flip"), "--json"},
       0,
       {Step("c-flip", kSteps), "rank-00000.h5"}},
      {"no digests",
       {"inspect", Step("c-bare", kSteps)},
       2,
       {"SHA256SUMS: missing", "make it again or choose another"},
       [] {
         CopyRun("c-bare");
         fs::remove(Step("c-bare", kSteps) + "/SHA256SUMS");
       }},
      {"newer format",
       {"inspect", Step("c-new", kSteps)},
       1,
       {"format 2", "newer delink"},
       [] {
         CopyRun("c-new");
         const std::string path = Step("c-new", kSteps);
         hdf5::File index = *hdf5::File::OpenReadWrite(path + "/index.h5");
         ASSERT_TRUE(index.SetInt("/", "format", kCheckpointFormat + 1).ok());
         ASSERT_TRUE(index.Close().ok());
         ASSERT_TRUE(WriteSums(path, {"index.h5", "rank-00000.h5",
                                      "recipe.toml", "tokenizer"})
                         .ok());
       }},
      {"another vocabulary",
       Resume(newest, {"--set", "model.vocab=300"}),
       2,
       {"a vocabulary of 257", "300", "tokenizer"}},
      {"another model",
       Resume(newest, {"--set", "model.dim=64"}),
       2,
       {"model.dim: is 64, but the run to resume has 32"}},
      {"another corpus",
       Resume(newest, {"--set", "data.train=" + Path("other/train")}),
       2,
       {"another corpus", "digests differ", "resume with the same corpus"},
       [] {
         Words words = Build("text0.txt", "other");
         words.push_back(Path("text1.txt"));
         ASSERT_EQ(RunDelink(words).code, 0);
       }},
  });
}

TEST_F(BadInput, Reports) {
  const std::string out = Path("report.html");
  Check({
      {"a run that is not there",
       {"report", Path("nowhere"), "--out", out},
       2,
       {"nowhere"}},
      {"a folder that is no run",
       {"report", Path("corpus"), "--out", out},
       1,
       {"corpus: is no run", "recipe.toml", "delink train"}},
      {"a page in a folder that is not there",
       {"report", Path("straight"), "--out", Path("nowhere/report.html")},
       2,
       {"nowhere/report.html: there is no folder", "another --out"}},
      {"a page over something else",
       {"report", Path("straight"), "--out", Path("straight/metrics.jsonl")},
       2,
       {"is no HTML page", "another --out"}},
      {"no page", {"report", Path("straight")}, 2, {"--out"}},
      {"several processes",
       {"report", Path("straight"), "--out", out},
       2,
       {"one process", "without mpirun"},
       [] {},
       2},
  });
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(BadInput, Runs) {
  Words wild = {"--set", "optimizer.lr=1000", "--set", "optimizer.clip=0"};
  Check({
      {"a loss that is not finite",
       TrainWords("wild", wild),
       1,
       {"step 2: the loss or its gradient is not finite: the gradient of embed",
        "wild/diagnosis/step-00000002", "Lower optimizer.lr"}},
      {"a loss that is not finite, told once by all ranks",
       TrainWords("wilder", wild),
       1,
       {"rank 0: step 2: the loss or its gradient is not finite",
        "wilder/diagnosis/step-00000002", "Lower optimizer.lr"},
       [] {},
       2},
      {"an option that is not there",
       {"train", "--ot", "x"},
       2,
       {"'--ot'", "did you mean '--out'", "--help"}},
      {"several processes for the work of one",
       {"inspect", Path("straight")},
       2,
       {"one process", "without mpirun"},
       [] {},
       2},
      {"the out folder is a file",
       TrainWords("text0.txt"),
       2,
       {"text0.txt", "is a file", "another --out"}},
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
  for (const char* says : {"step-00000010", "No space left",
                           "older checkpoints are as they were"}) {
    EXPECT_THAT(outcome.err, HasSubstr(says));
  }
  const nlohmann::json whole = Json({"inspect", run, "--json"});
  EXPECT_EQ(whole["step"], 5);
}

}  // namespace
}  // namespace delink::testing::bad_input_test
