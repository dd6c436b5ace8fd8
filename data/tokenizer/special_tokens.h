// The settings of a Hugging Face folder for the tokens around a text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "data/tokenizer/tokenizer_files.h"

namespace delink {

struct SpecialTokens {
  std::string begin;  // bos_token; empty: none is named
  std::string end;    // eos_token
  // Whether `begin` precedes each text; not set: the main file decides.
  std::optional<bool> add_begin;
  std::string tokenizer_class;
};

// Reads tokenizer_config.json and, for names that it lacks,
// special_tokens_map.json. An error is InvalidArgument and begins with `name`.
absl::StatusOr<SpecialTokens> ReadSpecialTokens(const TokenizerFiles& files,
                                                const std::string& name);

}  // namespace delink
