// Where in a file its tokens are, as the header of each format says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/element.h"

namespace delink {

enum class TokenFormat { kByContent, kMegatron, kLlmC, kNumpy, kRaw };

// Consecutive tokens of a file. A document ends after each stretch.
struct TokenStretch {
  int64_t offset = 0;  // bytes from the beginning of the file
  int64_t count = 0;   // tokens
};

// Stretches are in the order of the file and do not overlap; all lie within it.
struct TokenLayout {
  std::string path;  // of the tokens
  TokenElement type = TokenElement::kU16;
  std::vector<TokenStretch> stretches;
};

struct LayoutOptions {
  TokenFormat format = TokenFormat::kByContent;
  std::string dtype;  // of raw files; empty: not given
  bool rows = false;  // each row of a two-dimensional array is a document
};

// Reads the header of `path`, which may be either file of a Megatron pair. With
// kByContent, a file without a known header is raw if `dtype` is given. Errors
// name the file, what is wrong with it and what to do.
absl::StatusOr<TokenLayout> ReadLayout(const std::string& path,
                                       const LayoutOptions& options);

// The formats, one source file each.
absl::StatusOr<TokenLayout> ReadMegatronLayout(const std::string& path);
absl::StatusOr<TokenLayout> ReadLlmCLayout(const std::string& path);
bool LooksLikeLlmC(std::string_view head);
absl::StatusOr<TokenLayout> ReadNumpyLayout(const std::string& path, bool rows);

// The file of a Megatron pair that has `suffix`.
std::string WithSuffix(const std::string& path, std::string_view suffix);

// The first `size` bytes of a file, or all if it has fewer.
absl::StatusOr<std::string> ReadHead(const std::string& path, int64_t size);

// An error unless exactly `count` tokens follow from byte `begin` on.
absl::Status CheckFileSize(const std::string& path, int64_t begin,
                           TokenElement type, int64_t count);

// "PATH: what".
absl::Status BadTokenFile(const std::string& path, std::string_view what);

}  // namespace delink
