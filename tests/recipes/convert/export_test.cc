// Checkpoints as folders of Hugging Face: what is in them, that they are the
// same model, and that nothing half-written is left.
#include "recipes/convert/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "framework/comm/self_communicator.h"
#include "framework/hdf5/hdf5.h"
#include "framework/safetensors/folder.h"
#include "recipes/convert/import.h"
#include "recipes/saved/evaluate.h"
#include "recipes/saved/offline_delink.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::export_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using safetensors::Type;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Of losses that are summed in another order, in double.
constexpr double kSums = 1e-12;

// Three pseudo steps, then one of a real model.
constexpr int64_t kPseudo = 3, kReal = 4;
const std::vector<std::string> kShort = {
    "data.batch=2",      "run.micro_batch=2",     "schedule.steps=4",
    "schedule.warmup=0", "stage.0.until.steps=3", "optimizer.lr=1e-2"};
// Of tiny_llama what makes a Qwen 3, with more heads than of keys and values,
// and unlike as many: 6 and 2.
const std::vector<std::string> kQwen3 = {"model.qkv_bias=false",
                                         "model.window=0", "model.heads=6",
                                         "model.kv_heads=2"};

std::vector<std::string> Join(std::vector<std::string> a,
                              const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

json ReadJson(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << path;
  return json::parse(text.value_or("null"));
}

// All values of a folder, by name.
Tensors ReadFolder(const std::string& path) {
  const auto folder = safetensors::Folder::Open(path);
  EXPECT_TRUE(folder.ok()) << std::string(folder.status().message());
  Tensors tensors;
  for (const auto& [name, tensor] : folder->tensors()) {
    std::vector<float>& values = tensors[name];
    values.resize(static_cast<size_t>(tensor.entry->count()));
    EXPECT_TRUE(
        tensor.file
            ->Read(*tensor.entry, 0, tensor.entry->count(), values.data())
            .ok());
  }
  return tensors;
}

class Export : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    gpt_ = std::make_unique<TinyRuns>();
    gpt_->Go({.sets = kShort, .out = "run"});
    llama_ = std::make_unique<TinyRuns>("tiny_llama");
    llama_->sets = Join(kShort, kQwen3);
    llama_->Go({.out = "run"});
  }
  static void TearDownTestSuite() {
    gpt_.reset();
    llama_.reset();
  }

  static ExportReport Exported(const ExportOptions& options) {
    absl::StatusOr<ExportReport> report =
        ExportHuggingFace(options, BuiltInModels());
    EXPECT_TRUE(report.ok()) << std::string(report.status().message());
    return report.ok() ? *std::move(report) : ExportReport();
  }

  static std::string Refused(const ExportOptions& options) {
    const absl::Status status =
        ExportHuggingFace(options, BuiltInModels()).status();
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(PathExists(options.out + ".tmp"));
    return std::string(status.message());
  }

  // The loss of a checkpoint on the corpus of `runs`, whatever tokenizer the
  // checkpoint says it is of.
  static double Loss(const TinyRuns& runs, const std::string& checkpoint) {
    const std::string corpus = runs.Folder("corpus/validation");
    const absl::StatusOr<std::string> tokenizer =
        ReadFile(runs.Checkpoint("run", kReal) + "/tokenizer");
    EXPECT_TRUE(WriteFile(checkpoint + "/tokenizer", *tokenizer).ok());
    std::vector<std::string> names = *ListDirectory(checkpoint);
    std::erase(names, kSumsName);
    EXPECT_TRUE(WriteSums(checkpoint, names).ok());
    SelfCommunicator comm;
    const auto evaluation = Evaluate({.checkpoint = checkpoint, .data = corpus},
                                     BuiltInModels(), comm);
    EXPECT_TRUE(evaluation.ok()) << std::string(evaluation.status().message());
    return evaluation.ok() ? evaluation->loss : -1;
  }

  // Out, and in again: the step folder.
  static std::string ThereAndBack(const TinyRuns& runs,
                                  const std::string& checkpoint,
                                  const std::string& name) {
    const std::string out = runs.Folder(name);
    Exported({.in = checkpoint, .out = out});
    const auto back =
        ImportHuggingFace({.in = out, .out = out + "-back"}, BuiltInModels());
    EXPECT_TRUE(back.ok()) << std::string(back.status().message());
    return back.ok() ? back->to : "";
  }

  static std::unique_ptr<TinyRuns> gpt_, llama_;
};
std::unique_ptr<TinyRuns> Export::gpt_;
std::unique_ptr<TinyRuns> Export::llama_;

TEST_F(Export, TensorsAreTheFamilys) {
  const std::string out = gpt_->Folder("gpt2");
  const ExportReport report = Exported({.in = gpt_->Folder("run"), .out = out});
  EXPECT_EQ(report.from, gpt_->Checkpoint("run", kReal));
  const Tensors ours = gpt_->Load("run", kReal), theirs = ReadFolder(out);
  // 2 embeddings, 12 tensors of each of 4 blocks, 2 of the last norm; the head
  // is tied.
  EXPECT_EQ(theirs.size(), 2U + 4 * 12 + 2);
  EXPECT_EQ(theirs.at("transformer.wte.weight"),
            ours.at("/model/embed/token/weight"));
  EXPECT_EQ(theirs.at("transformer.h.3.ln_2.bias"),
            ours.at("/model/blocks/3/norm2/bias"));
  const std::vector<float>& qkv =
      theirs.at("transformer.h.2.attn.c_attn.weight");  // [32, 96]
  for (size_t i = 0; i < 32; ++i) {
    for (size_t o = 0; o < 96; ++o) {
      ASSERT_EQ(qkv[i * 96 + o],
                ours.at("/model/blocks/2/attn/qkv/weight")[o * 32 + i]);
    }
  }
  const json config = ReadJson(out + "/config.json");
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["architectures"], json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(config["n_layer"], 4);
  EXPECT_EQ(config["vocab_size"], 257);
  EXPECT_EQ(config["tie_word_embeddings"], true);
  EXPECT_EQ(config["torch_dtype"], "float32");
  // Not those of the first GPT-2.
  EXPECT_EQ(config["bos_token_id"], nullptr);
  EXPECT_EQ(config["eos_token_id"], 256);
  EXPECT_EQ(ReadJson(out + "/generation_config.json")["eos_token_id"], 256);
  EXPECT_TRUE(PathExists(out + "/tokenizer.json"));
}

TEST_F(Export, QueriesKeysAndValuesAreTakenApart) {
  const std::string out = llama_->Folder("qwen3");
  const ExportReport report =
      Exported({.in = llama_->Folder("run"), .out = out});
  EXPECT_EQ(report.model_type, "qwen3");
  const Tensors ours = llama_->Load("run", kReal), theirs = ReadFolder(out);
  const std::vector<float>& qkv = ours.at("/model/blocks/1/attn/qkv/weight");
  std::vector<float> joined;
  for (const char* part : {"q", "k", "v"}) {
    const std::vector<float>& some = theirs.at(
        absl::StrCat("model.layers.1.self_attn.", part, "_proj.weight"));
    EXPECT_EQ(some.size(), (*part == 'q' ? 6U : 2U) * 12 * 32);
    joined.insert(joined.end(), some.begin(), some.end());
  }
  EXPECT_EQ(joined, qkv);
  EXPECT_EQ(theirs.count("lm_head.weight"), 0U);
  const json config = ReadJson(out + "/config.json");
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["head_dim"], 12);
}

// What is said of sampling comes back as it was, list of ends and all.
TEST_F(Export, TheGenerationConfigTravels) {
  const std::string there = gpt_->Folder("sampled");
  Exported({.in = gpt_->Folder("run"), .out = there});
  const std::string name = "/generation_config.json";
  const std::string text = "{\"eos_token_id\": [256, 0], \"temperature\": 0.6}";
  ASSERT_TRUE(WriteFile(there + name, text).ok());
  const auto imported =
      ImportHuggingFace({.in = there, .out = there + "-in"}, BuiltInModels());
  ASSERT_TRUE(imported.ok()) << std::string(imported.status().message());
  EXPECT_TRUE(imported->notes.empty());
  Exported({.in = there + "-in", .out = there + "-out"});
  EXPECT_EQ(*ReadFile(there + "-out" + name), text);

  ASSERT_TRUE(WriteFile(there + name, "[").ok());
  const auto damaged =
      ImportHuggingFace({.in = there, .out = there + "-more"}, BuiltInModels());
  ASSERT_TRUE(damaged.ok()) << std::string(damaged.status().message());
  ASSERT_EQ(damaged->notes.size(), 1U);
  EXPECT_THAT(damaged->notes[0], HasSubstr("is no JSON object"));
  EXPECT_FALSE(PathExists(damaged->to + name));
}

// A pseudo checkpoint's layers go out as copies: as the one delinked from it.
TEST_F(Export, APseudoModelGoesOutWhole) {
  const std::string pseudo = llama_->Checkpoint("run", kPseudo);
  const auto cut = OfflineDelink(
      {.checkpoint = pseudo, .out = llama_->Folder("cut")}, BuiltInModels());
  ASSERT_TRUE(cut.ok());
  Exported({.in = pseudo, .out = llama_->Folder("hf-pseudo")});
  Exported({.in = cut->to, .out = llama_->Folder("hf-cut")});
  for (const char* file : {"config.json", "model.safetensors"}) {
    EXPECT_EQ(*Sha256File(llama_->Folder("hf-pseudo/") + file),
              *Sha256File(llama_->Folder("hf-cut/") + file))
        << file;
  }
  const Tensors theirs = ReadFolder(llama_->Folder("hf-pseudo"));
  EXPECT_EQ(theirs.at("model.layers.3.mlp.down_proj.weight"),
            theirs.at("model.layers.0.mlp.down_proj.weight"));
}

TEST_F(Export, ThereAndBackIsTheSameBitForBit) {
  for (const TinyRuns* const runs : {gpt_.get(), llama_.get()}) {
    const std::string before = runs->Checkpoint("run", kReal);
    const std::string after = ThereAndBack(*runs, before, "there");
    const Tensors ours = runs->Load("run", kReal);
    const auto file = hdf5::File::OpenReadOnly(after + "/index.h5", "rank");
    ASSERT_TRUE(file.ok());
    int compared = 0;
    for (const auto& [path, values] : ours) {
      if (!path.starts_with("/model/")) continue;
      const auto back = file->ReadAll<float>(path);
      ASSERT_TRUE(back.ok()) << path;
      EXPECT_EQ(*back, values) << path;
      ++compared;
    }
    EXPECT_GT(compared, 30);
    const double loss = Loss(*runs, before);
    EXPECT_NEAR(Loss(*runs, after), loss, kSums * loss);
  }
}

// Interleaved pairs come back as halves: other rows, the same function. So do
// the biases of Qwen 2 and the norms of Qwen 3.
TEST_F(Export, InterleavedPairsComputeTheSame) {
  const std::vector<std::string> families[] = {
      kQwen3,
      {"model.qk_norm=false", "model.window=0", "model.kv_heads=2",
       "model.rope_scaling.kind=linear"}};
  for (const std::vector<std::string>& family : families) {
    const TinyRuns runs("tiny_llama");
    runs.Go(
        {.sets = Join(Join(kShort, family), {"model.rope_pairing=interleaved"}),
         .out = "run"});
    const std::string before = runs.Checkpoint("run", kReal);
    const std::string after = ThereAndBack(runs, before, "there");
    const double loss = Loss(runs, before);
    EXPECT_NEAR(Loss(runs, after), loss, 1e-6 * loss);
    const auto file = hdf5::File::OpenReadOnly(after + "/index.h5", "rank");
    ASSERT_TRUE(file.ok());
    EXPECT_NE(*file->ReadAll<float>("/model/blocks/0/attn/qkv/weight"),
              runs.Load("run", kReal).at("/model/blocks/0/attn/qkv/weight"));
  }
}

// Of a stage that visits two of four blocks a model of two goes out.
TEST_F(Export, BlocksThatAreNotVisitedStay) {
  const TinyRuns runs;
  runs.Go({.sets = Join(kShort, {"stage.0.depth=2", "stage.0.visit=even",
                                 "stage.0.share=none"}),
           .out = "run"});
  const std::string before = runs.Checkpoint("run", kPseudo);
  const std::string after = ThereAndBack(runs, before, "there");
  EXPECT_EQ(ReadJson(runs.Folder("there/config.json"))["n_layer"], 2);
  const double loss = Loss(runs, before);
  EXPECT_NEAR(Loss(runs, after), loss, kSums * loss);
}

TEST_F(Export, ShardsAndThreadsChangeNoValue) {
  const std::string in = gpt_->Folder("run");
  const ExportReport one =
      Exported({.in = in, .out = gpt_->Folder("one"), .threads = 1});
  const ExportReport three =
      Exported({.in = in, .out = gpt_->Folder("three"), .threads = 3});
  EXPECT_EQ(*ReadFile(gpt_->Folder("one/SHA256SUMS")),
            *ReadFile(gpt_->Folder("three/SHA256SUMS")));
  // The report has the digests, and they are right.
  EXPECT_TRUE(VerifySums(gpt_->Folder("three")).ok());
  EXPECT_EQ(three.files.size(), ReadSums(gpt_->Folder("one"))->size());

  const std::string shards = gpt_->Folder("shards");
  Exported({.in = in, .out = shards, .shard_bytes = 30'000, .threads = 2});
  EXPECT_FALSE(PathExists(shards + "/model.safetensors"));
  EXPECT_GT(safetensors::Folder::Open(shards)->files().size(), 4U);
  EXPECT_EQ(
      FirstDifference(ReadFolder(shards), ReadFolder(gpt_->Folder("one"))), "");
  EXPECT_TRUE(VerifySums(shards).ok());
}

TEST_F(Export, TheDtypeIsOfAllTensorsAndOfTheConfig) {
  const std::string in = gpt_->Folder("run"), out = gpt_->Folder("half");
  const ExportReport report =
      Exported({.in = in, .out = out, .dtype = Type::kBF16});
  EXPECT_EQ(ReadJson(out + "/config.json")["torch_dtype"], "bfloat16");
  const auto folder = safetensors::Folder::Open(out);
  ASSERT_TRUE(folder.ok());
  int64_t bytes = 0;
  for (const auto& [name, tensor] : folder->tensors()) {
    EXPECT_EQ(tensor.entry->type, Type::kBF16) << name;
    bytes += 2 * tensor.entry->count();
  }
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_EQ(report.bytes, 2 * report.parameters);
}

// Rounded, biases of routers would choose other experts
// (sgl-project/sglang#37133). The loads of the last step stay; a run that wants
// some begins with equal ones.
TEST_F(Export, BiasesOfRoutersAreFp32InAnyDtype) {
  const TinyRuns runs("tiny_moe");
  const std::vector<std::string> batch = {"model.router.aux_over=batch"};
  runs.Go({.sets = Join(kShort, batch), .out = "run"});
  const std::string out = runs.Folder("half");
  Exported({.in = runs.Folder("run"), .out = out, .dtype = Type::kBF16});
  int biases = 0;
  const auto folder = safetensors::Folder::Open(out);
  ASSERT_TRUE(folder.ok());
  for (const auto& [name, tensor] : folder->tensors()) {
    const bool bias = name.ends_with("e_score_correction_bias");
    EXPECT_EQ(tensor.entry->type, bias ? Type::kF32 : Type::kBF16) << name;
    biases += bias ? 1 : 0;
  }
  EXPECT_EQ(biases, 3);
  for (const char* const file : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::remove(out + "/" + file);
  }
  runs.Go({.sets = Join(batch, {"stage.0.share=none", "stage.0.lr_scale=0.0",
                                "model.router.bias_rate=0.0"}),
           .out = "init",
           .until_step = 1,
           .init = out});
  const std::string name = "/model/blocks/2/moe/router/bias";
  EXPECT_EQ(runs.Load("init", 1).at(name), runs.Load("run", kReal).at(name));
}

// As if killed between two shards: what is whole is kept, the rest is made.
TEST_F(Export, WhatWasCutShortIsGoneOnWith) {
  const std::string out = gpt_->Folder("whole");
  const ExportOptions options{
      .in = gpt_->Folder("run"), .out = out, .shard_bytes = 30'000};
  const ExportReport whole = Exported(options);
  ExportOptions again = options;
  again.out = gpt_->Folder("again");
  fs::copy(out, again.out + ".tmp");
  ASSERT_TRUE(WriteFile(again.out + ".tmp/lock", "").ok());
  std::vector<std::string> shards;
  for (const FileSum& file : whole.files) {
    if (file.name.ends_with(".safetensors")) shards.push_back(file.name);
  }
  ASSERT_GT(shards.size(), 2U);
  const std::string kept = again.out + ".tmp/" + shards[0];
  for (const std::string& name :
       {shards[1], std::string(kSumsName), std::string("config.json"),
        std::string("model.safetensors.index.json")}) {
    fs::remove(again.out + ".tmp/" + name);
  }
  // As it would not be written: so it can be told that it was not.
  const auto past = fs::last_write_time(kept) - std::chrono::hours(24);
  fs::last_write_time(kept, past);
  Exported(again);
  EXPECT_EQ(fs::last_write_time(again.out + "/" + shards[0]), past);
  EXPECT_EQ(*ReadFile(again.out + "/SHA256SUMS"),
            *ReadFile(out + "/SHA256SUMS"));
  EXPECT_TRUE(VerifySums(again.out).ok());
}

// Values are verified while they go out: nothing is left of what is damaged,
// and of a run another checkpoint goes out.
TEST_F(Export, DamageGoesNowhere) {
  const std::string run = gpt_->Folder("damaged");
  fs::copy(gpt_->Folder("run"), run, fs::copy_options::recursive);
  const std::string newest = gpt_->Checkpoint("damaged", kReal);
  const std::string file = newest + "/rank-00000.h5";
  std::string bytes = *ReadFile(file);
  // Of the weights, which come first.
  char& byte = bytes[bytes.size() / 6];
  byte = static_cast<char>(byte ^ 1);
  ASSERT_TRUE(WriteFile(file, bytes).ok());
  const std::string out = gpt_->Folder("of-damaged");
  EXPECT_THAT(Refused({.in = newest, .out = out}),
              HasSubstr("rank-00000.h5: damaged: its SHA-256 is "));
  EXPECT_FALSE(PathExists(out));
  EXPECT_EQ(Exported({.in = run, .out = out}).from,
            gpt_->Checkpoint("damaged", kPseudo));
}

TEST_F(Export, ADryRunSaysItAllAndWritesNothing) {
  const std::string out = gpt_->Folder("dry");
  const ExportReport report = Exported({.in = gpt_->Folder("run"),
                                        .out = out,
                                        .dtype = Type::kF16,
                                        .dry_run = true});
  EXPECT_FALSE(PathExists(out));
  EXPECT_FALSE(PathExists(out + ".tmp"));
  EXPECT_THAT(ToString(report),
              AllOf(HasSubstr("would convert"), HasSubstr("GPT2LMHeadModel"),
                    HasSubstr("transformer.h.3.mlp.c_fc.weight"),
                    HasSubstr("[32, 128]"), HasSubstr("F16"), HasSubstr("8192"),
                    HasSubstr("blocks/3/mlp/up/weight")));
}

TEST_F(Export, AModelThatNoFamilyHasIsRefusedWithEachReason) {
  const TinyRuns runs("tiny_llama");
  runs.Go({.sets = kShort, .out = "run", .until_step = 1});
  const std::string out = runs.Folder("out");
  EXPECT_THAT(Refused({.in = runs.Folder("run"), .out = out}),
              AllOf(HasSubstr("no Hugging Face family can express this model"),
                    HasSubstr("llama: model.qkv_bias"),
                    HasSubstr("qwen2: model.qk_norm"),
                    HasSubstr("qwen3: model.qkv_bias")));
  EXPECT_FALSE(PathExists(out));
}

TEST_F(Export, WhatIsThereIsNotReplaced) {
  EXPECT_THAT(
      Refused({.in = gpt_->Folder("run"), .out = gpt_->Folder("corpus")}),
      HasSubstr("already exists"));
}

}  // namespace
}  // namespace delink::testing::export_test
