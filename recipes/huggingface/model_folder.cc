#include "recipes/huggingface/model_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "framework/base/strict_json.h"
#include "framework/checkpoint/holds_checkpoints.h"
#include "recipes/huggingface/as_recipe.h"
#include "recipes/huggingface/config_reader.h"

namespace delink::huggingface {
namespace {

constexpr char kConfigName[] = "config.json";
constexpr const char* kOldForms[] = {"pytorch_model.bin",
                                     "pytorch_model.bin.index.json"};

bool Has(const std::string& folder, const char* name) {
  return PathExists(JoinPath(folder, name));
}

bool HasOldForm(const std::string& folder) {
  return std::ranges::any_of(
      kOldForms, [&](const char* name) { return Has(folder, name); });
}

bool HasSafetensors(const std::string& folder) {
  return Has(folder, safetensors::kSingleName) ||
         Has(folder, safetensors::kIndexName);
}

absl::Status CheckFiles(const std::string& path) {
  if (!IsDirectory(path)) {
    return absl::NotFoundError(
        absl::StrCat(path,
                     ": is not a folder; give the folder of a Hugging Face "
                     "model, which has a config.json"));
  }
  if (!Has(path, kConfigName)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": has no config.json, which describes the model; put the "
                     "model's config.json beside its weights"));
  }
  if (HasSafetensors(path)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": has neither ", safetensors::kSingleName, " nor ",
      safetensors::kIndexName,
      HasOldForm(path)
          ? "; only torch can read pytorch_model.bin: load the model in "
            "transformers and save it with save_pretrained"
          : "; fetch the model's weights as safetensors"));
}

absl::Status CheckConfigSize(const std::string& name) {
  constexpr int64_t kLargest = 1 << 20;
  DELINK_ASSIGN_OR_RETURN(const int64_t size, FileSize(name));
  if (size <= kLargest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": is larger than 1 MiB, too large for a config; fetch it again"));
}

absl::StatusOr<nlohmann::json> ReadConfig(const std::string& name) {
  DELINK_RETURN_IF_ERROR(CheckConfigSize(name));
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(name));
  absl::StatusOr<nlohmann::json> config = ParseStrictJson(text);
  if (!config.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": ", config.status().message(), "; fetch the file again"));
  }
  if (config->is_object()) return config;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": is no JSON object; fetch the file again"));
}

absl::StatusOr<const Family*> FindFamily(
    const std::string& name, const nlohmann::json& config,
    std::span<const Family* const> families) {
  const auto type = config.find("model_type");
  const bool named = type != config.end() && type->is_string();
  std::vector<std::string> known;
  for (const Family* family : families) {
    if (named && *type == family->model_type) return family;
    known.push_back(family->model_type);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": model_type ",
      named ? absl::StrCat("is ", JsonText(*type), ", an unknown family")
            : std::string("is missing"),
      "; known families: ", absl::StrJoin(known, ", ")));
}

int32_t EndOfText(const nlohmann::json& config, int64_t vocab) {
  const auto said = config.find("eos_token_id");
  if (said == config.end() || said->empty()) return -1;
  const nlohmann::json& first = said->is_array() ? said->front() : *said;
  if (!first.is_number_integer()) return -1;
  // A number too large for 64 bits reads as a negative one.
  const auto id = first.get<int64_t>();
  return id >= 0 && id < vocab ? static_cast<int32_t>(id) : -1;
}

}  // namespace

bool IsModelFolder(const std::string& path) {
  return IsDirectory(path) &&
         (Has(path, kConfigName) || HasSafetensors(path) || HasOldForm(path)) &&
         !HoldsCheckpoints(path);
}

absl::StatusOr<ModelFolder> OpenModelFolder(
    const std::string& path, std::span<const Family* const> families) {
  DELINK_RETURN_IF_ERROR(CheckFiles(path));
  const std::string name = JoinPath(path, kConfigName);
  DELINK_ASSIGN_OR_RETURN(const nlohmann::json json, ReadConfig(name));
  DELINK_ASSIGN_OR_RETURN(const Family* const family,
                          FindFamily(name, json, families));
  ConfigReader reader(name, json);
  std::unique_ptr<ModelConfig> config = family->read(reader);
  reader.MustBe("is_encoder_decoder", false, "Delink's models have no encoder");
  reader.MustBe("is_causal", true, "attention in Delink's models is causal");
  if (reader.Has("quantization_config")) {
    reader.Error(
        "quantization_config",
        "the weights are quantised; give the model in bf16, fp16 or fp32");
    reader.PassOver("quantization_config");
  }
  DELINK_RETURN_IF_ERROR(reader.Finish());
  DELINK_RETURN_IF_ERROR(AsRecipe(*config, name).status());
  DELINK_ASSIGN_OR_RETURN(safetensors::Folder tensors,
                          safetensors::Folder::Open(path));
  // Checked before anything is allocated for a config of absurd size.
  if (config->layers > static_cast<int64_t>(tensors.tensors().size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": has ", config->layers, " layers, but ", path,
                     " has only ", tensors.tensors().size(),
                     " tensors; config and weights are of different models"));
  }
  const int32_t end = EndOfText(json, config->vocab);
  return ModelFolder{.path = path,
                     .family = family,
                     .config = std::move(config),
                     .tensors = std::move(tensors),
                     .end_of_text = end};
}

}  // namespace delink::huggingface
