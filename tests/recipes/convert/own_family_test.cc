// A model of a user's own, whose family is a table like ours: in and out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/safetensors/folder.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/norm.h"
#include "recipes/convert/export.h"
#include "recipes/convert/import.h"
#include "recipes/huggingface/config_reader.h"
#include "recipes/schema/section.h"
#include "tests/recipes/huggingface/tiny_folder.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::own_family_test {
namespace {

using huggingface::ConfigReader;
using ::testing::HasSubstr;

struct OwnConfig final : ModelConfig {
  int64_t dim = 0;

  std::string_view kind() const override { return "own"; }
  std::vector<std::string> parts() const override { return {"norm"}; }
  std::unique_ptr<ModelConfig> Clone() const override {
    return std::make_unique<OwnConfig>(*this);
  }
  void Describe(Section& s) override {
    s.Int("layers", &layers, {.doc = "blocks", .required = true, .min = 1});
    s.Int("dim", &dim, {.doc = "width", .required = true, .min = 1});
    s.Int("vocab", &vocab, {.doc = "ids", .when_omitted = "the corpus's"});
    s.Int("max_seq", &max_seq, {.doc = "tokens", .when_omitted = "data.seq"});
  }
};

class OwnBlock final : public Module {
 public:
  using Config = OwnConfig;
  OwnBlock(const Scope& s, const OwnConfig& c)
      : norm_(s / "norm", {.dim = c.dim}) {}
  Var operator()(Var x) override { return norm_(x); }

 private:
  Norm norm_;
};

std::unique_ptr<Sequential> BuildOwn(const Scope& s, const OwnConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<Embedding>("embed", {.vocab = c.vocab, .dim = c.dim});
  for (int64_t i = 0; i < c.layers; ++i) model->Block<OwnBlock>(c);
  model->Epilogue<LmHead>({.dim = c.dim, .vocab = c.vocab});
  return model;
}

std::unique_ptr<ModelConfig> ReadOwn(ConfigReader& theirs) {
  auto ours = std::make_unique<OwnConfig>();
  ours->layers = theirs.Int("depth");
  ours->dim = theirs.Int("width");
  ours->vocab = theirs.Int("words");
  ours->max_seq = 16;
  return ours;
}

absl::Status WriteOwn(const ModelConfig& config,
                      nlohmann::ordered_json& theirs) {
  const auto* const ours = dynamic_cast<const OwnConfig*>(&config);
  DELINK_CHECK(ours != nullptr);
  theirs["depth"] = ours->layers;
  theirs["width"] = ours->dim;
  theirs["words"] = ours->vocab;
  return absl::OkStatus();
}

// `scale`, `shift`: what their tensors of a block are called.
ModelList OwnModels(const std::string& scale = "scale",
                    const std::string& shift = "shift") {
  ModelList models = BuiltInModels();
  AddModel<OwnConfig>(
      models, {"own", "Norms.", [] { return std::make_unique<OwnConfig>(); }},
      BuildOwn);
  AddFamily(models,
            {.model_type = "own",
             .architecture = "OwnForCausalLM",
             .kind = "own",
             .tensors = {{"embed/token/weight", {"words"}},
                         {"blocks/{i}/norm/weight", {"layers.{i}." + scale}},
                         {"blocks/{i}/norm/bias", {"layers.{i}." + shift}},
                         {"norm/weight", {"last.scale"}},
                         {"norm/bias", {"last.shift"}},
                         {"head/weight", {"head"}}},
             .read = ReadOwn,
             .write = WriteOwn});
  return models;
}

TinyFolder OwnFolder(int depth) {
  TinyFolder folder;
  folder.config = {
      {"model_type", "own"}, {"depth", depth}, {"width", 6}, {"words", 11}};
  folder.Add("words", {11, 6});
  folder.Add("head", {11, 6});
  std::vector<std::string> norms = {"last"};
  for (int i = 0; i < depth; ++i) norms.push_back(absl::StrCat("layers.", i));
  for (const std::string& norm : norms) {
    folder.Add(norm + ".scale", {6});
    folder.Add(norm + ".shift", {6});
  }
  return folder;
}

TEST(OwnFamily, ComesInAndGoesOutAsItWas) {
  const TinyFolder folder = OwnFolder(2);
  const TempDir dir;
  folder.Write(dir / "there");
  const ModelList models = OwnModels();
  const auto imported =
      ImportHuggingFace({.in = dir / "there", .out = dir / "ours"}, models);
  ASSERT_TRUE(imported.ok()) << std::string(imported.status().message());
  EXPECT_EQ(imported->kind, "own");
  const auto exported =
      ExportHuggingFace({.in = dir / "ours", .out = dir / "back"}, models);
  ASSERT_TRUE(exported.ok()) << std::string(exported.status().message());
  const auto back = safetensors::Folder::Open(dir / "back");
  ASSERT_TRUE(back.ok());
  ASSERT_EQ(back->tensors().size(), folder.tensors.size());
  for (const auto& [name, stored] : folder.tensors) {
    const auto* const tensor = back->Find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->entry->shape, stored.shape);
    std::vector<float> values(stored.values.size());
    ASSERT_TRUE(tensor->file
                    ->Read(*tensor->entry, 0,
                           static_cast<int64_t>(values.size()), values.data())
                    .ok());
    EXPECT_EQ(values, stored.values) << name;
  }
  const absl::StatusOr<std::string> config = ReadFile(dir / "back/config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(ParseJson(*config)["depth"], 2);
}

// What is left of one table is nothing to another, though all sizes are the
// same.
TEST(OwnFamily, IsNotGoneOnWithByAnotherTable) {
  const TinyFolder folder = OwnFolder(1);
  const TempDir dir;
  folder.Write(dir / "there");
  ASSERT_TRUE(
      ImportHuggingFace({.in = dir / "there", .out = dir / "ours"}, OwnModels())
          .ok());
  const auto scale = [&](const std::string& name, const ModelList& models) {
    const std::string out = dir / name;
    const auto exported =
        ExportHuggingFace({.in = dir / "ours", .out = out}, models);
    EXPECT_TRUE(exported.ok()) << std::string(exported.status().message());
    std::vector<float> values(6);
    const auto back = safetensors::Folder::Open(out);
    EXPECT_TRUE(back.ok());
    if (!back.ok()) return values;
    const auto* const tensor = back->Find("layers.0.scale");
    EXPECT_TRUE(tensor->file->Read(*tensor->entry, 0, 6, values.data()).ok());
    return values;
  };
  const std::vector<float> before = scale("out", OwnModels());
  EXPECT_EQ(before, folder.tensors.at("layers.0.scale").values);
  // As if it had been killed when all but its name was done.
  ASSERT_TRUE(Rename(dir / "out", dir / "next.tmp").ok());
  ASSERT_TRUE(WriteFile(dir / "next.tmp/lock", "").ok());
  EXPECT_EQ(scale("next", OwnModels("shift", "scale")),
            folder.tensors.at("layers.0.shift").values);
}

// A program that does not have it says so.
TEST(OwnFamily, IsUnknownElsewhere) {
  const TinyFolder folder = OwnFolder(1);
  const TempDir dir;
  folder.Write(dir / "there");
  const absl::Status status =
      ImportHuggingFace({.in = dir / "there", .out = dir / "ours"},
                        BuiltInModels())
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"own\""));
}

}  // namespace
}  // namespace delink::testing::own_family_test
