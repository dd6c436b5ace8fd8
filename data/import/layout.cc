#include "data/import/layout.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr std::string_view kMegatronMagic = "MMIDIDX";

bool EndsWith(const std::string& path, std::string_view suffix) {
  return absl::EndsWith(path, {suffix.data(), suffix.size()});
}

bool IsMegatron(const std::string& path, std::string_view head) {
  if (head.substr(0, kMegatronMagic.size()) == kMegatronMagic) return true;
  return EndsWith(path, ".idx") ||
         (EndsWith(path, ".bin") && PathExists(WithSuffix(path, ".idx")));
}

absl::StatusOr<TokenFormat> FormatOf(const std::string& path,
                                     const LayoutOptions& options) {
  if (options.format != TokenFormat::kByContent) return options.format;
  DELINK_ASSIGN_OR_RETURN(const std::string head, ReadHead(path, 8));
  if (IsMegatron(path, head)) return TokenFormat::kMegatron;
  if (head.substr(0, kNumpyMagic.size()) == kNumpyMagic) {
    return TokenFormat::kNumpy;
  }
  if (LooksLikeLlmC(head)) return TokenFormat::kLlmC;
  if (!options.dtype.empty()) return TokenFormat::kRaw;
  return BadTokenFile(
      path,
      "wrong magic: not a token file of Megatron (.bin beside its .idx), llm.c "
      "or NumPy (.npy); if it holds nothing but ids, give their type with "
      "--dtype");
}

absl::StatusOr<TokenLayout> ReadRawLayout(const std::string& path,
                                          const std::string& dtype) {
  const auto type = TokenElementByName(dtype);
  if (!type.has_value()) {
    return BadTokenFile(path,
                        absl::StrCat("raw ids need --dtype, one of ",
                                     absl::StrJoin(TokenElementNames(), ", ")));
  }
  DELINK_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(path));
  if (bytes % ByteSize(*type) != 0) {
    return BadTokenFile(
        path, absl::StrCat("its ", bytes, " bytes are no whole number of ",
                           dtype, "; it is cut short, or of another --dtype"));
  }
  return TokenLayout{
      .path = path,
      .type = *type,
      .stretches = {{.offset = 0, .count = bytes / ByteSize(*type)}}};
}

}  // namespace

absl::StatusOr<TokenLayout> ReadLayout(const std::string& path,
                                       const LayoutOptions& options) {
  DELINK_ASSIGN_OR_RETURN(const TokenFormat format, FormatOf(path, options));
  switch (format) {
    case TokenFormat::kMegatron:
      return ReadMegatronLayout(path);
    case TokenFormat::kLlmC:
      return ReadLlmCLayout(path);
    case TokenFormat::kNumpy:
      return ReadNumpyLayout(path, options.rows);
    case TokenFormat::kByContent:
    case TokenFormat::kRaw:
      break;
  }
  return ReadRawLayout(path, options.dtype);
}

std::string WithSuffix(const std::string& path, std::string_view suffix) {
  const std::string stem = EndsWith(path, ".bin") || EndsWith(path, ".idx")
                               ? path.substr(0, path.size() - 4)
                               : path;
  return stem + std::string(suffix);
}

absl::StatusOr<std::string> ReadHead(const std::string& path, int64_t size) {
  DELINK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::string head(static_cast<size_t>(size), '\0');
  DELINK_ASSIGN_OR_RETURN(const int64_t got, file.Read(head.data(), size));
  head.resize(static_cast<size_t>(got));
  return head;
}

absl::Status CheckFileSize(const std::string& path, int64_t begin,
                           TokenElement type, int64_t count) {
  DELINK_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(path));
  const int64_t room = (bytes - begin) / ByteSize(type);
  if (count == room && (bytes - begin) % ByteSize(type) == 0) {
    return absl::OkStatus();
  }
  return BadTokenFile(
      path, absl::StrCat("its header says ", count, " tokens of ",
                         ByteSize(type), " bytes, but ", bytes - begin,
                         " bytes follow it; the file is ",
                         count > room ? "cut short" : "not what it was",
                         ": fetch or write it again"));
}

absl::Status BadTokenFile(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", std::string(what)));
}

}  // namespace delink
