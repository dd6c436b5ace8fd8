#include "data/commands.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/corpus/corpus.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

using Clock = std::chrono::steady_clock;

// 1234567 as "1 234 567".
std::string Grouped(int64_t value) {
  std::string digits = absl::StrCat(value);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ' ');
  }
  return digits;
}

class ProgressLine {
 public:
  ProgressLine(std::ostream& live, bool terminal)
      : live_(live), terminal_(terminal) {}

  void operator()(const CorpusProgress& p) {
    if (phase_ != p.phase) {
      EndPhase();
      phase_ = p.phase;
      start_ = Clock::now();
    }
    text_ = Describe(p);
    if (!terminal_) return;
    live_ << "\r" << text_ << "\x1b[K" << std::flush;
  }

  void EndPhase() {
    if (phase_.empty()) return;
    live_ << (terminal_ ? "\r" : "") << text_ << (terminal_ ? "\x1b[K" : "")
          << "\n"
          << std::flush;
    phase_.clear();
  }

 private:
  std::string Describe(const CorpusProgress& p) const {
    if (p.total == 0) return absl::StrCat(p.phase, " ...");
    const double share = std::min(
        1.0, static_cast<double>(p.done) / static_cast<double>(p.total));
    const double seconds =
        std::chrono::duration<double>(Clock::now() - start_).count();
    const int filled = static_cast<int>(share * kBar);
    std::string text = absl::StrFormat(
        "%s [%s%s] %3.0f%%  %.1f of %.1f MB", p.phase,
        std::string(static_cast<size_t>(filled), '#'),
        std::string(static_cast<size_t>(kBar - filled), '.'), 100 * share,
        static_cast<double>(p.done) / 1e6, static_cast<double>(p.total) / 1e6);
    if (p.tokens > 0)
      absl::StrAppend(&text, "  ", Grouped(p.tokens), " tokens");
    if (seconds > 0.5 && share > 0 && share < 1) {
      absl::StrAppendFormat(&text, "  %.0f s left",
                            seconds * (1 - share) / share);
    }
    return text;
  }

  static constexpr int kBar = 24;

  std::ostream& live_;
  const bool terminal_;
  std::string phase_;
  std::string text_;
  Clock::time_point start_;
};

using Folders = std::vector<std::pair<std::string, std::string>>;  // by name

// What a build writes into `dir`.
Folders BuiltIn(const std::string& dir) {
  Folders sides;
  for (const char* side : {"train", "validation"}) {
    const std::string path = JoinPath(dir, side);
    if (IsDirectory(path)) sides.emplace_back(side, path);
  }
  return sides;
}

// The sides of the corpus at `dir`, which may be one side itself.
Folders SidesOf(const std::string& dir) {
  if (!PathExists(JoinPath(dir, kSumsName))) {
    Folders sides = BuiltIn(dir);
    if (!sides.empty()) return sides;
  }
  return {{"corpus", dir}};
}

struct Side {
  std::string name;
  Corpus corpus;
};

// Statistics alone: digests of shards are not looked at.
absl::StatusOr<std::vector<Side>> OpenSides(const Folders& folders) {
  std::vector<Side> sides;
  for (const auto& [name, path] : folders) {
    DELINK_ASSIGN_OR_RETURN(Corpus corpus,
                            Corpus::Open(path, {.statistics_only = true}));
    sides.push_back({.name = name, .corpus = std::move(corpus)});
  }
  return sides;
}

double BytesPerToken(const Corpus& corpus) {
  return static_cast<double>(corpus.bytes()) /
         static_cast<double>(std::max<int64_t>(corpus.tokens(), 1));
}

double MeanDocument(const Corpus& corpus) {
  return static_cast<double>(corpus.tokens()) /
         static_cast<double>(std::max<int64_t>(corpus.documents(), 1));
}

nlohmann::ordered_json JsonOf(const Corpus& corpus) {
  return {
      {"dir", corpus.dir()},
      {"tokens", corpus.tokens()},
      {"documents", corpus.documents()},
      {"bytes", corpus.bytes()},
      {"bytes_per_token", BytesPerToken(corpus)},
      {"tokens_per_document",
       {{"mean", MeanDocument(corpus)},
        {"median", corpus.median_document()},
        {"max", corpus.greatest_document()}}},
      {"entropy", corpus.entropy()},
      {"vocab", corpus.vocab_size()},
      {"end_of_document", corpus.end_of_document()},
      {"tokenizer", corpus.tokenizer_kind()},
      {"shards", corpus.shards()},
      {"digest", corpus.digest()},
  };
}

// A column for each side.
void PrintTable(const std::vector<Side>& sides, std::ostream& out) {
  const auto row = [&](const char* title, auto value) {
    out << absl::StrFormat("%-17s", title);
    for (const Side& side : sides) {
      out << absl::StrFormat("  %18s", value(side));
    }
    out << "\n";
  };
  // Corpora of early builds do not say how long their documents are.
  const auto length = [](const Corpus& corpus, std::string text) {
    return corpus.greatest_document() > 0 ? text : std::string("not known");
  };
  row("", [](const Side& side) { return side.name; });
  row("documents", [](const Side& s) { return Grouped(s.corpus.documents()); });
  row("tokens", [](const Side& s) { return Grouped(s.corpus.tokens()); });
  row("bytes", [](const Side& s) { return Grouped(s.corpus.bytes()); });
  row("bytes a token", [](const Side& s) {
    return absl::StrFormat("%.2f", BytesPerToken(s.corpus));
  });
  out << "tokens a document\n";
  row("  mean", [](const Side& s) {
    return absl::StrFormat("%.1f", MeanDocument(s.corpus));
  });
  row("  median", [&](const Side& s) {
    return length(s.corpus,
                  absl::StrFormat("%.1f", s.corpus.median_document()));
  });
  row("  most", [&](const Side& s) {
    return length(s.corpus, Grouped(s.corpus.greatest_document()));
  });
  row("unigram entropy", [](const Side& s) {
    return absl::StrFormat("%.4f nats", s.corpus.entropy());
  });
}

}  // namespace

absl::Status DataBuild(const CorpusOptions& options, std::ostream& out,
                       std::ostream& live, bool live_is_terminal) {
  ProgressLine progress(live, live_is_terminal);
  absl::StatusOr<CorpusReport> report =
      BuildCorpus(options, [&](const CorpusProgress& p) { progress(p); });
  progress.EndPhase();
  if (!report.ok()) return report.status();
  DELINK_ASSIGN_OR_RETURN(const std::vector<Side> sides,
                          OpenSides(BuiltIn(options.out)));
  const Corpus& train = sides.front().corpus;
  out << "inputs       " << Grouped(report->files) << " file"
      << (report->files == 1 ? "" : "s");
  if (report->empty_documents > 0) {
    out << "; left out " << Grouped(report->empty_documents)
        << " documents without text";
  }
  out << "\ntokenizer    " << train.tokenizer_kind() << ", vocabulary "
      << Grouped(train.vocab_size());
  if (options.tokenizer_file.empty() && options.train_vocab == 0) {
    out << " (--train-tokenizer makes fewer tokens)";
  }
  out << "\n\n";
  PrintTable(sides, out);
  return absl::OkStatus();
}

absl::Status DataInfo(const std::string& dir, bool json, std::ostream& out) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<Side> sides,
                          OpenSides(SidesOf(dir)));
  if (json) {
    nlohmann::ordered_json object;
    for (const Side& side : sides) object[side.name] = JsonOf(side.corpus);
    // Names of folders may be anything; what is not UTF-8 is replaced.
    out << object.dump(2, ' ', false,
                       nlohmann::ordered_json::error_handler_t::replace)
        << "\n";
    return absl::OkStatus();
  }
  PrintTable(sides, out);
  for (const Side& side : sides) {
    const Corpus& corpus = side.corpus;
    out << absl::StrFormat(
        "\n%-10s  tokenizer %s, vocabulary %s; %s shard%s\n%-10s  digest %s\n",
        side.name, corpus.tokenizer_kind(), Grouped(corpus.vocab_size()),
        Grouped(corpus.shards()), corpus.shards() == 1 ? "" : "s", "",
        corpus.digest());
  }
  return absl::OkStatus();
}

absl::Status DataVerify(const std::string& dir, std::ostream& out) {
  for (const auto& [name, path] : SidesOf(dir)) {
    DELINK_ASSIGN_OR_RETURN(const Corpus corpus, Corpus::Open(path));
    DELINK_ASSIGN_OR_RETURN(const std::vector<FileSum> sums, ReadSums(path));
    out << path << ": " << sums.size() << " files whole, digest "
        << corpus.digest() << "\n";
  }
  return absl::OkStatus();
}

}  // namespace delink
