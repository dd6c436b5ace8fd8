#include "data/tokenizer/tokenizer_files.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr std::string_view kFirstLine = "delink tokenizer: files\n";

// Without vocab.json and merges.txt, because tokenizer.json has their contents.
constexpr const char* kNames[] = {kTokenizerJson,      kTokenizerModel,
                                  kTokenizerConfig,    kSpecialTokensMap,
                                  "added_tokens.json", "chat_template.jinja"};

bool IsKnown(std::string_view name) {
  for (const char* known : kNames) {
    if (name == known) return true;
  }
  return false;
}

absl::Status Damaged(const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat(name,
                   ": begins like the files of a tokenizer, but is damaged; "
                   "give the folder that it was made from"));
}

}  // namespace

absl::StatusOr<TokenizerFiles> ReadTokenizerFiles(const std::string& folder) {
  TokenizerFiles files;
  for (const char* name : kNames) {
    const std::string path = JoinPath(folder, name);
    if (!PathExists(path)) continue;
    DELINK_ASSIGN_OR_RETURN(files[name], ReadFile(path));
  }
  if (files.contains(kTokenizerJson) || files.contains(kTokenizerModel)) {
    return files;
  }
  return absl::NotFoundError(absl::StrCat(
      folder,
      ": has neither tokenizer.json nor tokenizer.model; name a folder with "
      "one, or write one with save_pretrained() of transformers"));
}

std::string PackFiles(const TokenizerFiles& files) {
  std::string packed(kFirstLine);
  for (const auto& [name, bytes] : files) {
    absl::StrAppend(&packed, name, " ", bytes.size(), "\n");
  }
  packed += '\n';
  for (const auto& [name, bytes] : files) packed += bytes;
  return packed;
}

bool IsPacked(std::string_view bytes) { return bytes.starts_with(kFirstLine); }

absl::StatusOr<TokenizerFiles> UnpackFiles(std::string_view bytes,
                                           const std::string& name) {
  if (!IsPacked(bytes)) return Damaged(name);
  bytes.remove_prefix(kFirstLine.size());
  std::vector<std::pair<std::string, size_t>> sizes;
  while (true) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) return Damaged(name);
    const std::string line(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
    if (line.empty()) break;
    const size_t space = line.find(' ');
    size_t size = 0;
    if (space == std::string::npos || !IsKnown(line.substr(0, space)) ||
        !absl::SimpleAtoi(line.substr(space + 1), &size)) {
      return Damaged(name);
    }
    sizes.emplace_back(line.substr(0, space), size);
  }
  TokenizerFiles files;
  for (const auto& [file, size] : sizes) {
    if (size > bytes.size() || files.contains(file)) return Damaged(name);
    files[file] = bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  if (!bytes.empty()) return Damaged(name);
  return files;
}

}  // namespace delink
