#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "data/commands/commands.h"
#include "data/commands/progress_line.h"
#include "data/commands/sides.h"
#include "data/corpus/check.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr double kShares[] = {0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1};

std::string ShareName(double share) {
  if (share == 0) return "least";
  if (share == 1) return "most";
  return absl::StrFormat("%.0f %%", 100 * share);
}

struct Checked {
  std::string name;
  Corpus corpus;
  CorpusCheck check;
};

absl::StatusOr<std::vector<Checked>> CheckAll(const std::string& dir,
                                              ProgressLine& progress) {
  std::vector<Checked> all;
  // Opening verifies the digests.
  DELINK_ASSIGN_OR_RETURN(std::vector<Side> sides, OpenSides(SidesOf(dir), {}));
  for (Side& side : sides) {
    const int64_t width = side.corpus.vocab_size() <= 65'536 ? 2 : 4;
    CorpusProgress now = {.phase = side.name.c_str(),
                          .total = side.corpus.tokens() * width};
    DELINK_ASSIGN_OR_RETURN(CorpusCheck check,
                            CheckCorpus(side.corpus, [&](int64_t tokens) {
                              now.done = tokens * width;
                              now.tokens = tokens;
                              progress(now);
                            }));
    progress.EndPhase();
    all.push_back({.name = side.name,
                   .corpus = std::move(side.corpus),
                   .check = std::move(check)});
  }
  return all;
}

// How many documents of `side` the first side has too; 0 for the first side.
int64_t InFirst(const std::vector<Checked>& all, const Checked& side) {
  if (&side == &all.front()) return 0;
  return CountShared(side.check.document_keys, all.front().check.document_keys);
}

nlohmann::ordered_json JsonOf(const std::vector<Checked>& all,
                              const Checked& side) {
  nlohmann::ordered_json lengths;
  for (const double share : kShares) {
    lengths[absl::StrFormat("%g", share)] = side.check.Quantile(share);
  }
  return {{"documents", side.corpus.documents()},
          {"tokens", side.corpus.tokens()},
          {"tokens_per_document", lengths},
          {"vocab", side.corpus.vocab_size()},
          {"vocab_used", side.check.ids_used},
          {"largest_id", side.check.largest_id},
          {"repeated_documents", side.check.repeated_documents},
          {"repeated_tokens", side.check.repeated_tokens},
          {"documents_in_train", InFirst(all, side)},
          {"digest", side.corpus.digest()}};
}

void PrintTable(const std::vector<Checked>& all, std::ostream& out) {
  const auto row = [&](const std::string& title, auto value) {
    out << absl::StrFormat("%-20s", title);
    for (const Checked& side : all) {
      out << absl::StrFormat("  %18s", value(side));
    }
    out << "\n";
  };
  row("", [](const Checked& s) { return s.name; });
  row("documents",
      [](const Checked& s) { return Grouped(s.corpus.documents()); });
  row("  repeated",
      [](const Checked& s) { return Grouped(s.check.repeated_documents); });
  if (all.size() > 1) {
    row("  also in train",
        [&](const Checked& s) { return Grouped(InFirst(all, s)); });
  }
  row("tokens", [](const Checked& s) { return Grouped(s.corpus.tokens()); });
  row("  in repeated ones",
      [](const Checked& s) { return Grouped(s.check.repeated_tokens); });
  out << "tokens a document\n";
  for (const double share : kShares) {
    row("  " + ShareName(share),
        [share](const Checked& s) { return Grouped(s.check.Quantile(share)); });
  }
  row("vocabulary",
      [](const Checked& s) { return Grouped(s.corpus.vocab_size()); });
  row("  used", [](const Checked& s) { return Grouped(s.check.ids_used); });
  row("  largest id",
      [](const Checked& s) { return Grouped(s.check.largest_id); });
  out << "\nEvery file matches its digest, every token is in the vocabulary, "
         "and every document ends.\n";
}

}  // namespace

absl::Status DataCheck(const std::string& dir, bool json, std::ostream& out,
                       std::ostream& live, bool live_is_terminal) {
  ProgressLine progress(live, live_is_terminal);
  absl::StatusOr<std::vector<Checked>> all = CheckAll(dir, progress);
  progress.EndPhase();
  if (!all.ok()) return all.status();
  if (!json) {
    PrintTable(*all, out);
    return absl::OkStatus();
  }
  nlohmann::ordered_json object;
  for (const Checked& side : *all) object[side.name] = JsonOf(*all, side);
  out << JsonText(object, 2) << "\n";
  return absl::OkStatus();
}

}  // namespace delink
