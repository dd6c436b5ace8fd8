#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "framework/base/check.h"

namespace delink {

void AddedTokens::Add(std::string content, int32_t id) {
  DELINK_CHECK(!content.empty());
  std::vector<Entry>& entries =
      entries_[static_cast<unsigned char>(content.front())];
  const auto shorter =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
        return entry.content.size() < content.size();
      });
  entries.insert(shorter, {.content = std::move(content), .id = id});
  any_ = true;
}

std::optional<AddedTokens::Found> AddedTokens::Find(std::string_view text,
                                                    size_t from) const {
  if (!any_) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    for (const Entry& entry : entries_[static_cast<unsigned char>(text[at])]) {
      if (text.compare(at, entry.content.size(), entry.content) != 0) continue;
      return Found{
          .begin = at, .end = at + entry.content.size(), .id = entry.id};
    }
  }
  return std::nullopt;
}

}  // namespace delink
