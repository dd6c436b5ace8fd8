// Runs that begin with the weights of a Hugging Face folder, and checkpoints
// that such folders become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/corpus/build.h"
#include "data/tokenizer/huggingface_files.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/comm/self_communicator.h"
#include "recipes/convert/export.h"
#include "recipes/convert/import.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/evaluate.h"
#include "recipes/saved/inspect.h"
#include "tests/recipes/huggingface/tiny_folder.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::init_folder_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

Words Join(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Three pseudo steps, three real ones, of two sequences each.
const Words& Short() {
  static const auto* const kShort = new Words{
      "data.batch=2",      "run.micro_batch=2",     "schedule.steps=6",
      "schedule.warmup=0", "stage.0.until.steps=3", "data.shuffle=false"};
  return *kShort;
}
// A run that computes and does not move.
constexpr char kStill[] = "optimizer.lr=1e-35";

// A published model with a tokenizer of bytes, and a corpus in its tokens.
class Published {
 public:
  explicit Published(const std::string& type)
      : runs(RecipeOf(type)), folder(TinyOf(type)), type_(type) {
    Write();
    const absl::Status built = BuildCorpus({.inputs = {runs.Folder("text.txt")},
                                            .out = runs.Folder("own"),
                                            .tokenizer_file = path(),
                                            .validation = 0.1})
                                   .status();
    DELINK_CHECK(built.ok()) << std::string(built.message());
    runs.data = {absl::StrCat("data.train=\"", runs.Folder("own/train"), "\"")};
    runs.sets = Join(Short(), SetsOf(type));
  }

  void Write() const {
    folder.Write(path());
    const HuggingFaceTokenizer tokenizer = ForHuggingFace(*MakeByteTokenizer());
    for (const auto& [name, bytes] : tokenizer.files) {
      DELINK_CHECK(WriteFile(JoinPath(path(), name), bytes).ok());
    }
  }
  std::string path() const { return runs.Folder("published"); }
  absl::StatusOr<ImportReport> Import(const std::string& out) const {
    return ImportHuggingFace({.in = path(), .out = runs.Folder(out)},
                             BuiltInModels());
  }
  // What is said of a run that cannot begin; nothing of it may be there.
  std::string Refused(const Words& sets, const Words& data = {}) const {
    const absl::Status status = runs.Run(
        {.sets = sets, .data = data, .out = "refused", .init = path()});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status.ToString();
    EXPECT_FALSE(PathExists(runs.Folder("refused")));
    return std::string(status.message());
  }
  const std::vector<float>& Stored(const std::string& name) const {
    return folder.tensors.at(name).values;
  }

  TinyRuns runs;
  TinyFolder folder;

 private:
  std::string type_;
};

TEST(InitFolder, TheFirstLossIsThatOfTheImportedCheckpoint) {
  for (const std::string type : kModelTypes) {
    const Published model(type);
    const auto imported = model.Import("imported");
    ASSERT_TRUE(imported.ok()) << std::string(imported.status().message());
    EXPECT_TRUE(imported->notes.empty());
    SelfCommunicator comm;
    const auto evaluation = Evaluate({.checkpoint = imported->to,
                                      .data = model.runs.Folder("own/train"),
                                      .batches = 1},
                                     BuiltInModels(), comm);
    ASSERT_TRUE(evaluation.ok()) << std::string(evaluation.status().message());
    const int most = type == "llama" ? 2 : 1;
    for (int ranks = 1; ranks <= most; ++ranks) {
      SCOPED_TRACE(absl::StrCat(type, " on ", ranks, " ranks"));
      std::vector<double> losses;
      for (const std::string init : {"published", "imported"}) {
        const std::string out = absl::StrCat(init, ".on", ranks);
        model.runs.Go(
            {.ranks = ranks,
             .sets = {"data.batch=8", "stage.0.share=none", "run.seed=9"},
             .out = out,
             .until_step = 1,
             .init = model.runs.Folder(init)});
        losses.push_back(model.runs.Steps(out).at(0).loss);
      }
      EXPECT_EQ(losses[0], losses[1]);
      // Its sum is made in another order.
      EXPECT_NEAR(losses[0], evaluation->loss, 1e-6);
    }
  }
}

// Shared and delinked again: what the leader has there, and at the switch
// copies of it.
TEST(InitFolder, AStageThatSharesBeginsWithItsLeadersWeights) {
  const Published model("llama");
  model.runs.Go({.sets = {"stage.0.share={ mlp = \"groups:2\" }", kStill},
                 .out = "shared",
                 .init = model.path()});
  for (const int64_t step : {3, 6}) {
    const Tensors tensors = model.runs.Load("shared", step);
    for (int block = 0; block < 4; ++block) {
      const auto ours = [&](const char* name) {
        return tensors.at(absl::StrCat("/model/blocks/", block, "/", name));
      };
      const auto theirs = [&](int of, const char* name) {
        return model.Stored(absl::StrCat("model.layers.", of, ".", name));
      };
      const int leader = block / 2 * 2;
      EXPECT_EQ(ours("mlp/down/weight"),
                theirs(leader, "mlp.down_proj.weight"));
      EXPECT_EQ(ours("attn/out/weight"),
                theirs(block, "self_attn.o_proj.weight"));
    }
  }
}

// Values of the folder go to where planes are at home, and so at the switch;
// masters too, which the host updates.
TEST(InitFolder, HomesOnTheHostChangeNoBit) {
  const Published model("llama");
  for (const Words& numbers :
       {Words{}, Words{"run.precision=bf16"},
        Words{"run.precision=bf16", "run.master=split"}}) {
    Words shared = {"stage.0.share={ mlp = \"groups:2\" }",
                    "optimizer.clip=0.5"};
    shared.insert(shared.end(), numbers.begin(), numbers.end());
    const std::string name = absl::StrCat("of ", numbers.size());
    model.runs.Go({.sets = shared, .out = name, .init = model.path()});
    for (const char* const stages : {"0", "1", "01"}) {
      Words sets = shared;
      for (const char stage : std::string(stages)) {
        sets.push_back(absl::StrCat(
            "stage.", std::string(1, stage),
            ".offload={weights=\"host\",gradients=\"host\",state=\"host\"",
            numbers.empty() ? "" : ",update=\"host\"", "}"));
      }
      const std::string out = absl::StrCat(name, ", homes ", stages);
      model.runs.Go({.sets = sets, .out = out, .init = model.path()});
      model.runs.ExpectSameBits(name, out, 6);
    }
  }
}

TEST(InitFolder, AStageOfSomeBlocksBeginsWithTheirs) {
  const Published model("gpt2");
  model.runs.Go({.sets = {"stage.0.share=none", "stage.0.depth=2",
                          "stage.0.visit=\"even\"", kStill},
                 .out = "shallow",
                 .until_step = 1,
                 .init = model.path()});
  const Tensors tensors = model.runs.Load("shallow", 1);
  EXPECT_FALSE(tensors.contains("/model/blocks/1/norm1/weight"));
  EXPECT_FALSE(tensors.contains("/model/blocks/3/norm1/weight"));
  for (const int block : {0, 2}) {
    const auto ours =
        tensors.find(absl::StrCat("/model/blocks/", block, "/norm1/weight"));
    ASSERT_NE(ours, tensors.end()) << block;
    EXPECT_EQ(ours->second, model.Stored(absl::StrCat("transformer.h.", block,
                                                      ".ln_1.weight")));
  }
}

TEST(InitFolder, KeysOfTheRecipeThatAreNotTheFoldersAreAllNamed) {
  const Published model("llama");
  EXPECT_THAT(
      model.Refused({"model.rope_theta=10000.0", "model.kv_heads=4",
                     "model.rope_scaling.factor=4.0", "model.layers=3",
                     "stage.0.share=none"}),
      AllOf(HasSubstr("model.rope_theta is 5e+05, but the recipe's is "
                      "10000.0"),
            HasSubstr("model.kv_heads is 2"), HasSubstr("model.layers is 4"),
            HasSubstr("model.rope_scaling.factor is 2.0"),
            Not(HasSubstr("norm_eps"))));
  const Words training = {"model.dropout=0.1", "model.init_std=0.1",
                          "model.z_loss=1e-3", "model.max_seq=64"};
  model.runs.Go({.sets = Join(training, {"stage.0.share=none"}),
                 .out = "own_keys",
                 .until_step = 1,
                 .init = model.path()});
}

TEST(InitFolder, PositionsThatAreStoredMustBeAsMany) {
  const Published model("gpt2");
  EXPECT_THAT(model.Refused({"model.max_seq=64"}),
              AllOf(HasSubstr("transformer.wpe.weight: is [32, 32]"),
                    HasSubstr("[64, 32]")));
}

TEST(InitFolder, AnotherKindOfModelIsRefused) {
  Published model("gpt2");
  model.folder = TinyLlama("llama");
  model.Write();
  EXPECT_THAT(model.Refused({}),
              AllOf(HasSubstr("family llama"), HasSubstr("\"gpt\"")));
}

TEST(InitFolder, TheCorpusMustBeInTheFoldersTokens) {
  const Published model("gpt2");
  const std::string other =
      absl::StrCat("data.train=\"", model.runs.Folder("corpus/train"), "\"");
  EXPECT_THAT(model.Refused({}, {other}),
              AllOf(HasSubstr("corpus/train"), HasSubstr("another tokenizer"),
                    HasSubstr(absl::StrCat("--tokenizer ", model.path()))));
  // Without a tokenizer nothing can be compared.
  ASSERT_TRUE(RemoveAll(model.path()).ok());
  model.folder.Write(model.path());
  EXPECT_TRUE(model.runs
                  .Run({.data = {other},
                        .out = "trusted",
                        .until_step = 1,
                        .init = model.path()})
                  .ok());
}

TEST(InitFolder, AFolderThatIsWrongLeavesNoRun) {
  Published model("qwen2");
  model.folder.tensors.erase("model.norm.weight");
  model.Write();
  EXPECT_THAT(model.Refused({}), HasSubstr("model.norm.weight: is missing"));
  ASSERT_TRUE(RemoveAll(model.path() + "/config.json").ok());
  EXPECT_THAT(model.Refused({}), HasSubstr("has no config.json"));
}

TEST(ImportHuggingFace, IsACheckpointOfWeightsAlone) {
  for (const std::string type : kModelTypes) {
    SCOPED_TRACE(type);
    const Published model(type);
    int64_t done = 0, all = 0;
    const auto imported =
        ImportHuggingFace({.in = model.path(),
                           .out = model.runs.Folder("imported"),
                           .progress =
                               [&](int64_t now, int64_t of) {
                                 EXPECT_GT(now, done);
                                 done = now;
                                 all = of;
                               }},
                          BuiltInModels());
    ASSERT_TRUE(imported.ok()) << std::string(imported.status().message());
    EXPECT_EQ(imported->to, model.runs.Folder("imported/step-00000000"));
    EXPECT_EQ(imported->family, type);
    EXPECT_EQ(done, imported->parameters);
    EXPECT_EQ(all, imported->parameters);
    int64_t stored = 0;
    for (const auto& [name, tensor] : model.folder.tensors) {
      stored += static_cast<int64_t>(tensor.values.size());
    }
    EXPECT_EQ(imported->parameters, stored);
    EXPECT_EQ(imported->bytes, 4 * stored);
    EXPECT_THAT(ToString(*imported), HasSubstr("  recipe.toml\n"));
    const auto inspected = InspectCheckpoint(imported->to, BuiltInModels());
    EXPECT_TRUE(inspected.ok()) << std::string(inspected.status().message());
  }
}

TEST(ImportHuggingFace, WhatWantsACheckpointSaysHowToMakeOne) {
  const Published model("gpt2");
  SelfCommunicator comm;
  const absl::Status status = Evaluate({.checkpoint = model.path(),
                                        .data = model.runs.Folder("own/train")},
                                       BuiltInModels(), comm)
                                  .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("delink convert ", model.path())));
}

TEST(ImportHuggingFace, ResumeRefusesItNamingInit) {
  const Published model("gpt2");
  const auto imported = model.Import("imported");
  ASSERT_TRUE(imported.ok());
  const absl::Status status = model.runs.Run(
      {.out = "resumed", .resume = true, .resume_from = imported->to});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(imported->to), HasSubstr("family gpt2"),
                    HasSubstr(absl::StrCat("--init ", imported->to))));
}

TEST(ImportHuggingFace, WithoutATokenizerItSpeaksInIds) {
  const Published model("mistral");
  ASSERT_TRUE(RemoveAll(model.path()).ok());
  model.folder.Write(model.path());
  const auto imported = model.Import("imported");
  ASSERT_TRUE(imported.ok()) << std::string(imported.status().message());
  ASSERT_EQ(imported->notes.size(), 1u);
  EXPECT_THAT(imported->notes[0], HasSubstr("ids instead of text"));
  const auto tokenizer = LoadTokenizerFile(imported->to + "/tokenizer");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->vocab_size(), 257);
  // Those of a text are then the user's affair.
  EXPECT_TRUE((*tokenizer)->Encode("3 5").ok());
  // What the config says ends what is generated, and goes out again.
  EXPECT_EQ((*tokenizer)->end_of_document(), 2);
  const auto exported = ExportHuggingFace(
      {.in = imported->to, .out = model.runs.Folder("out")}, BuiltInModels());
  ASSERT_TRUE(exported.ok()) << std::string(exported.status().message());
  const auto config =
      nlohmann::json::parse(*ReadFile(model.runs.Folder("out/config.json")));
  EXPECT_EQ(config["eos_token_id"], 2);
}

TEST(ImportHuggingFace, OfTheEndsThatAConfigSaysTheFirstIsTaken) {
  using nlohmann::json;
  Published model("llama");
  ASSERT_TRUE(RemoveAll(model.path()).ok());
  const std::vector<std::pair<json, int32_t>> ends = {{json::array({9, 5}), 9},
                                                      {7, 7},
                                                      {json::array(), 256},
                                                      {nullptr, 256},
                                                      {257, 256},
                                                      {-1, 256},
                                                      {2.5, 256},
                                                      {"</s>", 256}};
  for (size_t i = 0; i < ends.size(); ++i) {
    SCOPED_TRACE(ends[i].first.dump());
    model.folder.config["eos_token_id"] = ends[i].first;
    model.folder.Write(model.path());
    const auto imported = model.Import(absl::StrCat("imported", i));
    ASSERT_TRUE(imported.ok()) << std::string(imported.status().message());
    const auto tokenizer = LoadTokenizerFile(imported->to + "/tokenizer");
    ASSERT_TRUE(tokenizer.ok());
    EXPECT_EQ((*tokenizer)->end_of_document(), ends[i].second);
  }
}

TEST(ImportHuggingFace, WritesNothingWhereItFailsOrOnlyLooks) {
  Published model("gpt2");
  const std::string out = model.runs.Folder("imported");
  const auto looked = ImportHuggingFace(
      {.in = model.path(), .out = out, .dry_run = true}, BuiltInModels());
  ASSERT_TRUE(looked.ok());
  EXPECT_FALSE(PathExists(out));
  ASSERT_FALSE(looked->tensors.empty());
  EXPECT_THAT(ToString(*looked),
              HasSubstr("\nblocks/0/attn/qkv/weight  [96, 32]   F32  12288  F32"
                        "  transformer.h.0.attn.c_attn.weight\n"));
  model.folder.tensors.erase("transformer.wte.weight");
  model.Write();
  EXPECT_TRUE(absl::IsInvalidArgument(model.Import("imported").status()));
  EXPECT_FALSE(PathExists(out));
  EXPECT_FALSE(PathExists(out + ".tmp"));
  ASSERT_TRUE(MakeDirectories(out).ok());
  const absl::Status there = model.Import("imported").status();
  EXPECT_TRUE(absl::IsAlreadyExists(there));
  EXPECT_THAT(std::string(there.message()), HasSubstr(out));
}

TEST(ImportHuggingFace, OnAFullDiskNothingIsLeft) {
  const SmallDisk disk("128k");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  const Published model("gpt2");
  const std::string out = disk.path() + "/imported";
  const absl::Status status =
      ImportHuggingFace({.in = model.path(), .out = out}, BuiltInModels())
          .status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status.ToString();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("imported.tmp: cannot make room for "),
                    Not(HasSubstr("older checkpoints"))));
  EXPECT_FALSE(PathExists(out));
  EXPECT_FALSE(PathExists(out + ".tmp"));
}

}  // namespace
}  // namespace delink::testing::init_folder_test
