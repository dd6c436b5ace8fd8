// The files of a tokenizer in a folder of Hugging Face, and all of them as one
// text, in which they travel in corpora and checkpoints:
//
//   delink tokenizer: files
//   tokenizer.json 2114
//   tokenizer_config.json 96
//   (an empty line, and then the bytes of the files in this order)
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

// Those that are there of the names that are known. NotFound where neither
// tokenizer.json nor tokenizer.model is.
absl::StatusOr<TokenizerFiles> ReadTokenizerFiles(const std::string& folder);

std::string PackFiles(const TokenizerFiles& files);
bool IsPacked(std::string_view bytes);
// InvalidArgument, beginning with `name`: damaged.
absl::StatusOr<TokenizerFiles> UnpackFiles(std::string_view bytes,
                                           const std::string& name);

}  // namespace delink
