#include "recipes/schema/problems.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace delink {

void Positions::Set(std::string key, schema::Source source) {
  sources_[std::move(key)] = std::move(source);
}

schema::Source Positions::Find(std::string_view key) const {
  while (true) {
    if (const auto it = sources_.find(key); it != sources_.end()) {
      return it->second;
    }
    const size_t cut = key.find_last_of(".[");
    if (cut == std::string_view::npos) return {origin_};
    key = key.substr(0, cut);
  }
}

namespace schema {
namespace {

// Levenshtein's distance, with a swap of neighbours as one step.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1,
                                     std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  std::iota(d[0].begin(), d[0].end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

// Other programs' names of keys.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"learning_rate", "lr"}, {"hidden_size", "dim"},
    {"d_model", "dim"},      {"embedding_size", "dim"},
    {"block_size", "seq"},   {"context_length", "seq"},
    {"epsilon", "eps"},      {"dtype", "precision"},
};

std::string_view NameHere(std::string_view word,
                          const std::vector<std::string>& known) {
  for (const auto& [elsewhere, here] : kElsewhere) {
    if (word == elsewhere && std::ranges::count(known, here) > 0) return here;
  }
  return "";
}

std::string_view SpeltAlike(std::string_view word,
                            const std::vector<std::string>& known) {
  std::string_view best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < least && distance < candidate.size()) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

// Whether "weight_decay" has the word "decay".
bool HasWord(std::string_view key, std::string_view word) {
  return absl::StrFormat("_%s_", key).find(absl::StrFormat("_%s_", word)) !=
         std::string::npos;
}

std::string_view WithAWordOf(std::string_view word,
                             const std::vector<std::string>& known) {
  std::string_view best;
  for (const std::string& candidate : known) {
    if ((HasWord(word, candidate) || HasWord(candidate, word)) &&
        candidate.size() > best.size()) {
      best = candidate;
    }
  }
  return best;
}

}  // namespace

void Problems::Add(const Source& source, std::string_view key,
                   std::string_view message) {
  std::string text = source.ToString();
  if (!key.empty()) text.append(": ").append(key);
  text.append(": ").append(message);
  problems_.push_back({source, std::move(text)});
}

absl::Status Problems::ToStatus() const {
  if (problems_.empty()) return absl::OkStatus();
  std::vector<const Problem*> sorted;
  for (const Problem& problem : problems_) sorted.push_back(&problem);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Problem* a, const Problem* b) {
                     const auto key = [](const Problem* p) {
                       const bool set = p->source.origin.starts_with("--set ");
                       return std::tuple(set, p->source.line, p->source.column);
                     };
                     return key(a) < key(b);
                   });
  // A generated file may have a problem on every line.
  constexpr size_t kTold = 20;
  std::string message;
  for (size_t i = 0; i < std::min(sorted.size(), kTold); ++i) {
    absl::StrAppend(&message, i == 0 ? "" : "\n", sorted[i]->text);
  }
  if (sorted.size() > kTold) {
    absl::StrAppend(&message, "\nand ", sorted.size() - kTold, " more");
  }
  return absl::InvalidArgumentError(message);
}

std::string Suggestion(std::string_view word,
                       const std::vector<std::string>& known) {
  // A very long word is no typo, and the distance is quadratic.
  if (word.size() > 64) return "";
  for (const auto near : {NameHere, SpeltAlike, WithAWordOf}) {
    const std::string_view best = near(word, known);
    if (best.empty()) continue;
    return absl::StrFormat("; did you mean '%s'?", best);
  }
  return "";
}

}  // namespace schema
}  // namespace delink
