#include "data/commands/commands.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "data/commands/progress_line.h"
#include "data/commands/sides.h"
#include "data/corpus/corpus.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/base/json.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

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
  // Corpora of early builds do not record the lengths of their documents.
  const auto length = [](const Corpus& corpus, std::string text) {
    return corpus.greatest_document() > 0 ? text : std::string("not known");
  };
  // Ids alone have no known text.
  const auto text = [](const Corpus& corpus, std::string value) {
    return corpus.bytes() > 0 ? value : std::string("not known");
  };
  row("", [](const Side& side) { return side.name; });
  row("documents", [](const Side& s) { return Grouped(s.corpus.documents()); });
  row("tokens", [](const Side& s) { return Grouped(s.corpus.tokens()); });
  row("bytes",
      [&](const Side& s) { return text(s.corpus, Grouped(s.corpus.bytes())); });
  row("bytes a token", [&](const Side& s) {
    return text(s.corpus, absl::StrFormat("%.2f", BytesPerToken(s.corpus)));
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

// "left out     3 files that are not text, 1 hidden"; empty if nothing was.
std::string LeftOut(const CorpusReport& report) {
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const char* one, const char* many) {
    if (count == 0) return;
    parts.push_back(absl::StrCat(Grouped(count), count == 1 ? one : many));
  };
  add(report.not_text, " file that is not text", " files that are not text");
  add(report.hidden, " hidden", " hidden");
  add(report.empty_documents, " document without text",
      " documents without text");
  if (parts.empty()) return "";
  return absl::StrCat("left out     ", absl::StrJoin(parts, ", "), "\n");
}

// A remark on the tokenizer that a corpus was built with. It reads the corpus's
// copy, because the given file may have been a pipe or be gone by now.
absl::StatusOr<std::string> Advice(const CorpusOptions& options,
                                   const Corpus& corpus) {
  if (options.train_vocab != 0) return "";
  if (options.tokenizer_file.empty()) {
    return " (--train-tokenizer makes fewer tokens)";
  }
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          corpus.MakeTokenizer());
  const int32_t begin = tokenizer->begin_of_sequence();
  return begin < 0 || begin == corpus.end_of_document()
             ? ""
             : absl::StrCat(", token ", begin, " in front of documents");
}

// Prints the summary of a command that made a corpus. `built` is null unless
// the corpus was built from text.
absl::Status SumUp(const std::string& dir, const CorpusReport& report,
                   const CorpusOptions* built, std::ostream& out) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<Side> sides,
                          OpenSides(BuiltIn(dir), {.statistics_only = true}));
  const Corpus& train = sides.front().corpus;
  std::string advice;
  if (built != nullptr) {
    DELINK_ASSIGN_OR_RETURN(advice, Advice(*built, train));
  }
  out << "inputs       " << Grouped(report.files) << " file"
      << (report.files == 1 ? "" : "s") << "\n"
      << LeftOut(report) << "tokenizer    " << train.tokenizer_kind()
      << ", vocabulary " << Grouped(train.vocab_size()) << advice << "\n\n";
  PrintTable(sides, out);
  return absl::OkStatus();
}

}  // namespace

absl::Status DataBuild(const CorpusOptions& options, std::ostream& out,
                       std::ostream& live, bool live_is_terminal) {
  ProgressLine progress(live, live_is_terminal);
  const absl::StatusOr<CorpusReport> report =
      BuildCorpus(options, [&](const CorpusProgress& p) { progress(p); });
  progress.EndPhase();
  if (!report.ok()) return report.status();
  return SumUp(options.out, *report, &options, out);
}

absl::Status DataImport(const TokenImportOptions& options, std::ostream& out,
                        std::ostream& live, bool live_is_terminal) {
  ProgressLine progress(live, live_is_terminal);
  const absl::StatusOr<CorpusReport> report =
      ImportCorpus(options, [&](const CorpusProgress& p) { progress(p); });
  progress.EndPhase();
  if (!report.ok()) return report.status();
  return SumUp(options.out, *report, nullptr, out);
}

absl::Status DataInfo(const std::string& dir, bool json, std::ostream& out) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<Side> sides,
                          OpenSides(SidesOf(dir), {.statistics_only = true}));
  if (json) {
    nlohmann::ordered_json object;
    for (const Side& side : sides) object[side.name] = JsonOf(side.corpus);
    out << JsonText(object, 2) << "\n";
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
    out << path << ": " << sums.size() << " files intact, digest "
        << corpus.digest() << "\n";
  }
  return absl::OkStatus();
}

}  // namespace delink
