#include "recipes/schema/overrides.h"

#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "recipes/schema/toml.h"

namespace delink::schema {
namespace {

std::vector<std::string> Words(std::string_view key) {
  std::vector<std::string> words(1);
  for (const char c : key) {
    if (c == '.') {
      words.emplace_back();
    } else if (c != ' ') {
      words.back() += c;
    }
  }
  return words;
}

Member& FindOrAdd(Table& table, const std::string& key, const Source& source) {
  for (Member& member : table) {
    if (member.key == key) return member;
  }
  table.push_back({key, source, Value(Table{}, source)});
  return table.back();
}

// The element of a list that `word` names; null, with `why`, if there is none.
Value* Element(List& list, const std::string& word, std::string_view path,
               std::string* why) {
  size_t index = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, index);
  if (error != std::errc() || stop != end) {
    *why = absl::StrFormat(
        "%s is a list: name an element by its index, as in %s.0", path, path);
    return nullptr;
  }
  if (index >= list.size()) {
    *why = absl::StrFormat("%s has %d elements, counted from 0", path,
                           list.size());
    return nullptr;
  }
  return &list[index];
}

// Walks to the value that the last word names. Its key gets `source` as its
// position. New places hold empty tables.
Value* Walk(const std::vector<std::string>& words, Table* document,
            const Source& source, std::string* why) {
  Value* place = nullptr;
  std::string path;
  for (const std::string& word : words) {
    if (word.empty()) {
      *why = "a key is words with dots between them";
      return nullptr;
    }
    Table* table = place == nullptr ? document : place->As<Table>();
    if (table != nullptr) {
      if (Find(*table, word) == nullptr &&
          word.find_first_not_of("0123456789") == std::string::npos) {
        *why = absl::StrFormat("the recipe has no list %s, so no element %s",
                               path, word);
        return nullptr;
      }
      Member& member = FindOrAdd(*table, word, source);
      if (&word == &words.back()) member.source = source;
      place = &member.value;
    } else if (List* list = place->As<List>()) {
      place = Element(*list, word, path, why);
      if (place == nullptr) return nullptr;
    } else {
      *why = absl::StrFormat("%s is %s, which has no keys", path,
                             Describe(*place));
      return nullptr;
    }
    absl::StrAppend(&path, path.empty() ? "" : ".", word);
  }
  return place;
}

}  // namespace

void ApplySet(std::string_view set, Table* document, Problems* problems) {
  const Source source = {absl::StrFormat("--set %s", set)};
  const size_t equals = set.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    problems->Add(source, "", "expected key=value, as in optimizer.lr=3e-4");
    return;
  }
  const std::vector<std::string> words = Words(set.substr(0, equals));
  if (words.size() > 16) {
    problems->Add(source, "", "no key has that many dots");
    return;
  }
  std::string why;
  Value* place = Walk(words, document, source, &why);
  if (place == nullptr) {
    problems->Add(source, "", why);
    return;
  }
  *place = ParseSetValue(set.substr(equals + 1), source);
}

}  // namespace delink::schema
