// The tokenizer files of a Hugging Face folder. Corpora and checkpoints store
// them packed into one text:
//
//   delink tokenizer: files
//   tokenizer.json 2114
//   tokenizer_config.json 96
//   (an empty line, then the bytes of the files in this order)
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace delink {

inline constexpr char kTokenizerJson[] = "tokenizer.json";
inline constexpr char kTokenizerModel[] = "tokenizer.model";
inline constexpr char kTokenizerConfig[] = "tokenizer_config.json";
inline constexpr char kSpecialTokensMap[] = "special_tokens_map.json";

using TokenizerFiles = std::map<std::string, std::string>;  // by name

// Reads the known files that are there. NotFound if there is neither
// tokenizer.json nor tokenizer.model.
absl::StatusOr<TokenizerFiles> ReadTokenizerFiles(const std::string& folder);

std::string PackFiles(const TokenizerFiles& files);
bool IsPacked(std::string_view bytes);
// If `bytes` are damaged, the error is InvalidArgument and begins with `name`.
absl::StatusOr<TokenizerFiles> UnpackFiles(std::string_view bytes,
                                           const std::string& name);

}  // namespace delink
