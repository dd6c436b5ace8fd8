#include "data/tokenizer/special_tokens.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Gives an empty object if the file is missing.
absl::Status ReadObject(const TokenizerFiles& files, const char* file,
                        const std::string& name, nlohmann::json* to) {
  const auto found = files.find(file);
  *to = found == files.end() ? nlohmann::json::object()
                             : ParseJson(found->second);
  if (to->is_object()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", file,
                   " is no JSON object; the file is damaged: fetch it again"));
}

std::string TextOf(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>()
                                                     : std::string();
}

// A token is given by its name or as an object with its name; null: none.
void ReadName(const nlohmann::json& object, const char* key, std::string* to) {
  const auto found = object.find(key);
  if (!to->empty() || found == object.end()) return;
  *to = found->is_object() ? TextOf(*found, "content") : TextOf(object, key);
}

}  // namespace

absl::StatusOr<SpecialTokens> ReadSpecialTokens(const TokenizerFiles& files,
                                                const std::string& name) {
  nlohmann::json config, map;
  DELINK_RETURN_IF_ERROR(ReadObject(files, kTokenizerConfig, name, &config));
  DELINK_RETURN_IF_ERROR(ReadObject(files, kSpecialTokensMap, name, &map));
  SpecialTokens special{.tokenizer_class = TextOf(config, "tokenizer_class")};
  for (const nlohmann::json* json : {&config, &map}) {
    ReadName(*json, "bos_token", &special.begin);
    ReadName(*json, "eos_token", &special.end);
  }
  const auto add = config.find("add_bos_token");
  if (add != config.end() && add->is_boolean()) {
    special.add_begin = add->get<bool>();
  }
  return special;
}

}  // namespace delink
