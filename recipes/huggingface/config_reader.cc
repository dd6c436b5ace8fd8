#include "recipes/huggingface/config_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/json.h"

namespace delink::huggingface {
namespace {

// Keys of a config's origin, of initialization, training, generation and the
// form of outputs: they do not affect what the model computes. From the configs
// of `transformers` 4.31 to 5, and files of the hub.
constexpr auto kNoMatter = std::to_array<std::string_view>({
    "architectures",
    "attention_dropout",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "generation_config",
    "gradient_checkpointing",
    "head_mask",
    "id2label",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
});

bool IsEmpty(const nlohmann::json& value) {
  return value.is_null() || value == false ||
         ((value.is_object() || value.is_array()) && value.empty());
}

// "the text "yarn"", cut short.
std::string Shown(const nlohmann::json& value) {
  constexpr size_t kMost = 60;
  std::string text = JsonText(value);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace

struct ConfigReader::State {
  std::string name;
  std::string prefix;  // "rope_scaling." in a table
  const nlohmann::json* config;
  std::set<std::string, std::less<>> read;
  std::vector<std::string> problems;
  std::map<std::string, std::unique_ptr<ConfigReader>, std::less<>> tables;

  // Null if the key is missing.
  const nlohmann::json* Take(std::string_view key) {
    read.emplace(key);
    const auto found = config->find(std::string(key));
    return found == config->end() || found->is_null() ? nullptr : &*found;
  }
};

ConfigReader::ConfigReader(std::string name, const nlohmann::json& config)
    : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->config = &config;
}

ConfigReader::~ConfigReader() = default;

bool ConfigReader::Has(std::string_view key) const {
  const auto found = state_->config->find(std::string(key));
  return found != state_->config->end() && !found->is_null();
}

bool ConfigReader::Given(std::string_view key) const {
  return state_->config->contains(std::string(key));
}

void ConfigReader::Error(std::string_view key, std::string_view message) {
  state_->problems.push_back(absl::StrCat(state_->name, ": ", state_->prefix,
                                          std::string(key), ": ",
                                          std::string(message)));
}

int64_t ConfigReader::Int(std::string_view key,
                          std::optional<int64_t> otherwise, int64_t min,
                          int64_t max) {
  const nlohmann::json* const value = state_->Take(key);
  if (value == nullptr) {
    if (!otherwise) Error(key, "is missing; the model needs it");
    return otherwise.value_or(min);
  }
  // A number too large for 64 bits is no integer of the library's, or negative
  // once it is one of ours.
  const bool whole = value->is_number_integer();
  const int64_t number = whole ? value->get<int64_t>() : min;
  if (!whole || number < min || number > max) {
    Error(key, absl::StrCat("is ", Shown(*value), ", but must be an integer, ",
                            "at least ", min, ", at most ", max));
    return min;
  }
  return number;
}

double ConfigReader::Float(std::string_view key,
                           std::optional<double> otherwise) {
  const nlohmann::json* const value = state_->Take(key);
  if (value == nullptr) {
    if (!otherwise) Error(key, "is missing; the model needs it");
    return otherwise.value_or(0);
  }
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    Error(key, absl::StrCat("is ", Shown(*value), ", but must be a number"));
    return otherwise.value_or(0);
  }
  return value->get<double>();
}

bool ConfigReader::Bool(std::string_view key, std::optional<bool> otherwise) {
  const nlohmann::json* const value = state_->Take(key);
  if (value == nullptr) {
    if (!otherwise) Error(key, "is missing; the model needs it");
    return otherwise.value_or(false);
  }
  if (!value->is_boolean()) {
    Error(key,
          absl::StrCat("is ", Shown(*value), ", but must be true or false"));
    return otherwise.value_or(false);
  }
  return value->get<bool>();
}

std::string ConfigReader::Text(std::string_view key,
                               std::optional<std::string> otherwise) {
  const nlohmann::json* const value = state_->Take(key);
  if (value == nullptr) {
    if (!otherwise) Error(key, "is missing; the model needs it");
    return otherwise.value_or("");
  }
  if (!value->is_string()) {
    Error(key, absl::StrCat("is ", Shown(*value), ", but must be a text"));
    return otherwise.value_or("");
  }
  return value->get<std::string>();
}

void ConfigReader::MustBe(std::string_view key, bool value,
                          std::string_view why) {
  if (Bool(key, value) != value) {
    Error(key, absl::StrCat("is ", value ? "false" : "true", ": ",
                            std::string(why)));
  }
}

void ConfigReader::MustBe(std::string_view key, double value,
                          std::string_view why) {
  const double given = Float(key, value);
  if (given != value) {
    Error(key, absl::StrCat("is ", given, ": ", std::string(why)));
  }
}

bool ConfigReader::AllAre(std::string_view key, std::string_view value) {
  const nlohmann::json* const list = state_->Take(key);
  if (list == nullptr) return true;
  return list->is_array() && std::ranges::all_of(*list, [&](const auto& one) {
           return one.is_string() &&
                  one.template get_ref<const std::string&>() == value;
         });
}

std::vector<int64_t> ConfigReader::Ints(std::string_view key) {
  const nlohmann::json* const list = state_->Take(key);
  if (list == nullptr) return {};
  std::vector<int64_t> numbers;
  bool valid = list->is_array();
  for (size_t i = 0; valid && i < list->size(); ++i) {
    valid = (*list)[i].is_number_integer();
    if (valid) numbers.push_back((*list)[i]);
  }
  if (valid) return numbers;
  Error(key, absl::StrCat("is ", Shown(*list), ", but must list integers"));
  return {};
}

void ConfigReader::PassOver(std::string_view key) { state_->Take(key); }

void ConfigReader::PassOverAll() {
  for (const auto& [key, value] : state_->config->items()) {
    state_->read.insert(key);
  }
}

ConfigReader& ConfigReader::Table(std::string_view key) {
  static const nlohmann::json kNone = nlohmann::json::object();
  const auto known = state_->tables.find(key);
  if (known != state_->tables.end()) return *known->second;
  const nlohmann::json* value = state_->Take(key);
  if (value != nullptr && !value->is_object()) {
    Error(key, absl::StrCat("is ", Shown(*value), ", but must be an object"));
    value = nullptr;
  }
  auto table = std::make_unique<ConfigReader>(
      state_->name, value == nullptr ? kNone : *value);
  table->state_->prefix = absl::StrCat(state_->prefix, std::string(key), ".");
  return *state_->tables.emplace(key, std::move(table)).first->second;
}

absl::Status ConfigReader::Finish() {
  std::vector<std::string> problems = state_->problems;
  const auto known = [&](const std::string& key) {
    return state_->read.contains(key) || key.starts_with('_') ||
           std::ranges::find(kNoMatter, key) != kNoMatter.end();
  };
  for (const auto& [key, value] : state_->config->items()) {
    if (IsEmpty(value) || known(key)) continue;
    problems.push_back(absl::StrCat(
        state_->name, ": ", state_->prefix, key, ": is ", Shown(value),
        ", but Delink does not know this key in a model of this family; if it "
        "does not change what the model computes, remove it"));
  }
  for (auto& [key, table] : state_->tables) {
    const absl::Status status = table->Finish();
    if (!status.ok()) problems.emplace_back(status.message());
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

}  // namespace delink::huggingface
