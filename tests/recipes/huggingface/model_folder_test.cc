#include "recipes/huggingface/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/base/file.h"
#include "recipes/models/model_list.h"
#include "tests/recipes/huggingface/tiny_folder.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::model_folder_test {
namespace {

using huggingface::IsModelFolder;
using huggingface::OpenModelFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ModelFolderTest : public ::testing::Test {
 protected:
  ModelFolderTest() { TinyGpt2().Write(path_); }

  absl::Status Open() {
    const ModelList models = BuiltInModels();
    const auto families = FamiliesOf(models);
    return OpenModelFolder(path_, families).status();
  }
  std::string Said() {
    const absl::Status status = Open();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status.ToString();
    return std::string(status.message());
  }
  std::string File(const std::string& name) { return JoinPath(path_, name); }
  void WriteConfig(const std::string& text) {
    ASSERT_TRUE(WriteFile(File("config.json"), text).ok());
  }

  TempDir dir_;
  const std::string path_ = dir_ / "model";
};

TEST_F(ModelFolderTest, IsOneWithAConfigOrWithWeights) {
  EXPECT_TRUE(IsModelFolder(path_));
  EXPECT_FALSE(IsModelFolder(dir_.path()));
  EXPECT_FALSE(IsModelFolder(File("config.json")));
  EXPECT_FALSE(IsModelFolder(dir_ / "none"));
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(RemoveAll(File("config.json")).ok());
  EXPECT_TRUE(IsModelFolder(path_));
}

TEST_F(ModelFolderTest, ARunWithAConfigThatHasStrayedThereIsNone) {
  for (const char* const inside : {"run/checkpoints/step-00000010",
                                   "imported/step-00000000", "step-00000020"}) {
    ASSERT_TRUE(MakeDirectories(dir_ / inside).ok());
    ASSERT_TRUE(WriteFile((dir_ / inside) + "/index.h5", "").ok());
  }
  for (const char* const folder : {"run", "imported", "step-00000020"}) {
    ASSERT_TRUE(WriteFile((dir_ / folder) + "/config.json", "{}").ok());
    EXPECT_FALSE(IsModelFolder(dir_ / folder)) << folder;
  }
}

TEST_F(ModelFolderTest, WithoutAConfigOrWeightsItIsRefused) {
  ASSERT_TRUE(RemoveAll(File("model.safetensors")).ok());
  EXPECT_THAT(Said(), AllOf(HasSubstr(path_), HasSubstr("model.safetensors")));
  ASSERT_TRUE(WriteFile(File("pytorch_model.bin"), "x").ok());
  EXPECT_THAT(Said(), HasSubstr("save_pretrained"));
  ASSERT_TRUE(RemoveAll(File("config.json")).ok());
  EXPECT_THAT(Said(), HasSubstr("has no config.json"));
  ASSERT_TRUE(RemoveAll(path_).ok());
  EXPECT_TRUE(absl::IsNotFound(Open()));
}

TEST_F(ModelFolderTest, OfAnUnknownFamilyTheKnownOnesAreListed) {
  nlohmann::json config = TinyGpt2().config;
  config["model_type"] = "mamba";
  WriteConfig(config.dump());
  EXPECT_THAT(Said(), AllOf(HasSubstr("\"mamba\""),
                            HasSubstr("gpt2, llama, mistral, qwen2, qwen3")));
  config.erase("model_type");
  WriteConfig(config.dump());
  EXPECT_THAT(Said(), HasSubstr("model_type is missing"));
  config["model_type"] = 3;
  WriteConfig(config.dump());
  EXPECT_THAT(Said(), HasSubstr("model_type is missing"));
}

TEST_F(ModelFolderTest, AConfigThatIsNoneIsRefused) {
  for (const char* const text :
       {"", "{", "[]", "3", "{\"model_type\": \"gpt2\",}",
        "{\"n_head\": 4, \"n_head\": 2, \"model_type\": \"gpt2\"}"}) {
    WriteConfig(text);
    EXPECT_THAT(Said(), HasSubstr("config.json: ")) << text;
  }
  WriteConfig(std::string((1 << 20) + 1, ' '));
  EXPECT_THAT(Said(), HasSubstr("larger than 1 MiB"));
}

TEST_F(ModelFolderTest, AConfigOfNoModelIsRefusedWithTheReason) {
  const struct {
    const char* key;
    nlohmann::json value;
    const char* said;
  } cases[] = {
      {"n_head", 5, "5 does not divide dim 32"},
      {"n_layer", 0, "n_layer: is 0"},
      {"n_layer", 1 << 24, "has 16777216 layers"},
      {"n_embd", 1 << 25, "n_embd: is 33554432"},
      {"layer_norm_epsilon", 0, "model.norm_eps"},
      {"quantization_config", {{"bits", 4}}, "quantised"},
      {"is_encoder_decoder", true, "is_encoder_decoder"},
      {"is_causal", false, "is_causal: is false"},
      {"logit_softcapping", 30.0, "logit_softcapping: is 30.0"},
  };
  for (const auto& [key, value, said] : cases) {
    nlohmann::json config = TinyGpt2().config;
    config[key] = value;
    WriteConfig(config.dump());
    EXPECT_THAT(Said(), AllOf(HasSubstr("config.json"), HasSubstr(said)));
  }
}

TEST_F(ModelFolderTest, WhatOurModelsAreMayBeSaid) {
  nlohmann::json config = TinyGpt2().config;
  config["is_causal"] = true;
  WriteConfig(config.dump());
  EXPECT_TRUE(Open().ok());
}

TEST_F(ModelFolderTest, ATruncatedShardIsNamed) {
  ASSERT_TRUE(RemoveAll(path_).ok());
  TinyGpt2().Write(path_, 3);
  ASSERT_TRUE(Open().ok());
  const std::string shard = File("model-00002-of-00003.safetensors");
  absl::StatusOr<std::string> bytes = ReadFile(shard);
  ASSERT_TRUE(bytes.ok());
  bytes->pop_back();
  ASSERT_TRUE(WriteFile(shard, *bytes).ok());
  EXPECT_THAT(std::string(Open().message()), HasSubstr(shard));
  ASSERT_TRUE(RemoveAll(shard).ok());
  EXPECT_THAT(std::string(Open().message()),
              HasSubstr("lacks model-00002-of-00003.safetensors"));
}

}  // namespace
}  // namespace delink::testing::model_folder_test
