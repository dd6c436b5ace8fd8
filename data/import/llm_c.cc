// Files of llm.c: a header of 256 int32, which begins with magic, version and
// number of tokens; then the tokens.
#include "absl/strings/str_cat.h"
#include "data/import/layout.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr int64_t kLlmcHeaderBytes = 1024;

struct Version {
  int64_t magic, version;
  TokenElement type;
};
// For tokens of GPT-2 and of Llama 3.
constexpr Version kVersions[] = {{20'240'520, 1, TokenElement::kU16},
                                 {20'240'801, 7, TokenElement::kU32}};

int64_t Number(std::string_view head, size_t at) {
  return NumberAt(TokenElement::kI32, head, 4 * at);
}

}  // namespace

// Looks at the magic alone, so that another version gives an error and its
// header is not read as ids.
bool LooksLikeLlmC(std::string_view head) {
  if (head.size() < 4) return false;
  for (const Version& known : kVersions) {
    if (Number(head, 0) == known.magic) return true;
  }
  return false;
}

absl::StatusOr<TokenLayout> ReadLlmCLayout(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::string head,
                          ReadHead(path, kLlmcHeaderBytes));
  if (static_cast<int64_t>(head.size()) < kLlmcHeaderBytes) {
    return BadTokenFile(
        path, absl::StrCat("its ", head.size(), " bytes are less than the ",
                           kLlmcHeaderBytes,
                           " of a header of llm.c; fetch it again"));
  }
  for (const Version& known : kVersions) {
    if (Number(head, 0) != known.magic || Number(head, 1) != known.version)
      continue;
    DELINK_RETURN_IF_ERROR(
        CheckFileSize(path, kLlmcHeaderBytes, known.type, Number(head, 2)));
    return TokenLayout{
        .path = path,
        .type = known.type,
        .stretches = {{.offset = kLlmcHeaderBytes, .count = Number(head, 2)}}};
  }
  return BadTokenFile(
      path,
      absl::StrCat("magic ", Number(head, 0), ", version ", Number(head, 1),
                   " is no token file of llm.c: those have 20240520, 1 or "
                   "20240801, 7; give one of them"));
}

}  // namespace delink
