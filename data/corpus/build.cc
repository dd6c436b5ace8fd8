#include "data/corpus/build.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/corpus/corpus_writer.h"
#include "data/corpus/line_sampler.h"
#include "data/corpus/split.h"
#include "data/corpus/text_reader.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr const char* kSides[] = {"train", "validation"};

// Calls the user back, at most ten times a second and at the end of a phase.
class Reporter {
 public:
  explicit Reporter(const std::function<void(const CorpusProgress&)>& callback)
      : callback_(callback) {}

  void Start(const char* phase, int64_t total) {
    now_ = {.phase = phase, .total = total};
    Send();
  }
  void Set(int64_t done, int64_t tokens) {
    now_.done = done;
    now_.tokens = tokens;
    if (Clock::now() - last_ > std::chrono::milliseconds(100)) Send();
  }
  void Finish() {
    now_.done = now_.total;
    Send();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Send() {
    last_ = Clock::now();
    if (callback_) callback_(now_);
  }

  const std::function<void(const CorpusProgress&)>& callback_;
  CorpusProgress now_;
  Clock::time_point last_;
};

// A document and how many of its first bytes are for training.
struct Document {
  std::string path;
  int64_t bytes = 0;
  int64_t training = 0;
};

absl::Status CheckOptions(const CorpusOptions& options) {
  if (options.inputs.empty()) {
    return absl::InvalidArgumentError(
        "no input: name the text files, or folders of them, to build the "
        "corpus from");
  }
  if (!(options.validation > 0 && options.validation < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--validation ", options.validation,
                     ": give a share between 0 and 1, such as 0.01"));
  }
  if (!options.tokenizer_file.empty() && options.train_vocab != 0) {
    return absl::InvalidArgumentError(
        "--tokenizer and --train-tokenizer exclude each other; give one");
  }
  for (const char* side : kSides) {
    const std::string path = JoinPath(options.out, side);
    if (PathExists(path) && !options.overwrite) {
      return absl::AlreadyExistsError(absl::StrCat(
          path, ": exists; give --overwrite to replace it, or another --out"));
    }
  }
  return absl::OkStatus();
}

// Sizes of gzipped files are what their trailers say; the one that gets cut is
// read to be sure.
absl::StatusOr<std::vector<Document>> SplitDocuments(
    const CorpusOptions& options, int64_t* empty_files) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<TextFile> files,
                          ListTextFiles(options.inputs));
  std::vector<Document> documents;
  std::vector<DocumentSize> sizes;
  for (const TextFile& file : files) {
    if (file.bytes == 0) {
      ++*empty_files;
      continue;
    }
    const std::string name =
        std::filesystem::path(file.path).filename().string();
    documents.push_back({.path = file.path, .bytes = file.bytes});
    sizes.push_back({.name = name, .bytes = file.bytes});
  }
  if (documents.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.inputs.front(), ": the corpus is empty: of ", files.size(),
        " input files none has any text; name files that have"));
  }
  const std::vector<int64_t> training =
      TrainingBytes(sizes, options.validation, options.seed);
  for (size_t i = 0; i < documents.size(); ++i) {
    Document& document = documents[i];
    document.training = training[i];
    if (document.training == 0 || document.training == document.bytes) continue;
    const int64_t held_out = document.bytes - document.training;
    DELINK_ASSIGN_OR_RETURN(document.bytes, CountTextBytes(document.path));
    document.training =
        std::max<int64_t>(document.bytes - held_out, document.bytes / 2);
  }
  return documents;
}

// More text makes the training of a tokenizer longer, but not its tokens.
int64_t SampleBytes(const CorpusOptions& options) {
  if (options.training_bytes > 0) return options.training_bytes;
  return std::clamp<int64_t>(int64_t{1024} * options.train_vocab, 2 << 20,
                             128 << 20);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ChooseTokenizer(
    const CorpusOptions& options, const std::vector<Document>& documents,
    Reporter& reporter) {
  if (!options.tokenizer_file.empty()) {
    return LoadTokenizerFile(options.tokenizer_file);
  }
  if (options.train_vocab == 0) return MakeByteTokenizer();
  std::vector<TextPart> parts;
  int64_t total = 0;
  for (const Document& document : documents) {
    if (document.training == 0) continue;
    parts.push_back({.path = document.path, .bytes = document.training});
    total += document.training;
  }
  reporter.Start("reading", total);
  LineSampler sampler(std::move(parts), SampleBytes(options), options.seed,
                      [&](int64_t done) { reporter.Set(done, 0); });
  bool training = false;
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      TrainTokenizer({.vocab = options.train_vocab}, [&](std::string* line) {
        if (sampler.Next(line)) return true;
        if (!training) {
          reporter.Finish();
          reporter.Start("training the tokenizer", 0);
        }
        training = true;
        return false;
      });
  DELINK_RETURN_IF_ERROR(sampler.status());
  return tokenizer;
}

// Tokenises documents into the two sides.
class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, CorpusWriter& train,
          CorpusWriter& validation, Reporter& reporter)
      : tokenizer_(tokenizer),
        sides_{&train, &validation},
        reporter_(reporter) {}

  absl::Status Add(const Document& document) {
    DELINK_ASSIGN_OR_RETURN(TextReader reader, TextReader::Open(document.path));
    // Only a document that is cut changes sides.
    const bool cut =
        0 < document.training && document.training < document.bytes;
    int side = document.training > 0 ? 0 : 1;
    int64_t before_cut = document.training;
    bool begun = false;
    while (true) {
      DELINK_ASSIGN_OR_RETURN(const std::string piece, reader.Next());
      if (piece.empty()) break;
      std::string_view rest = piece;
      const int64_t size = static_cast<int64_t>(piece.size());
      if (cut && side == 0 && before_cut < size) {
        const size_t at =
            CutAt(piece, static_cast<size_t>(std::max<int64_t>(before_cut, 0)),
                  (document.bytes - document.training) / 4, begun);
        if (at > 0) DELINK_RETURN_IF_ERROR(Encode(0, rest.substr(0, at)));
        if (at < piece.size()) {
          DELINK_RETURN_IF_ERROR(sides_[0]->EndDocument());
          rest.remove_prefix(at);
          side = 1;
        } else {
          rest = {};
        }
      }
      before_cut -= size;
      begun = true;
      if (!rest.empty()) DELINK_RETURN_IF_ERROR(Encode(side, rest));
    }
    // A gzipped file whose trailer lies may turn out empty.
    return begun ? sides_[side]->EndDocument() : absl::OkStatus();
  }

 private:
  // At `at` or, if a line ends up to `slack` bytes after it within the piece,
  // after that line; never at the very start of a document.
  static size_t CutAt(const std::string& piece, size_t at, int64_t slack,
                      bool begun) {
    const size_t newline = piece.find('\n', at);
    if (newline != std::string::npos && newline + 1 < piece.size() &&
        static_cast<int64_t>(newline - at) <= slack) {
      return newline + 1;
    }
    at = CharacterBoundary(piece, at);
    if (at == 0 && !begun) {
      at = 1;
      while (at < piece.size() && CharacterBoundary(piece, at) != at) ++at;
    }
    return at;
  }

  absl::Status Encode(int side, std::string_view text) {
    ids_.clear();
    DELINK_RETURN_IF_ERROR(tokenizer_.Encode(text, &ids_));
    const int64_t bytes = static_cast<int64_t>(text.size());
    DELINK_RETURN_IF_ERROR(sides_[side]->Append(ids_, bytes));
    done_ += bytes;
    reporter_.Set(done_, sides_[0]->tokens() + sides_[1]->tokens());
    return absl::OkStatus();
  }

  const Tokenizer& tokenizer_;
  CorpusWriter* sides_[2];
  Reporter& reporter_;
  std::vector<int32_t> ids_;
  int64_t done_ = 0;
};

CorpusSide SideOf(const CorpusWriter& writer) {
  return {.tokens = writer.tokens(),
          .documents = writer.documents(),
          .bytes = writer.bytes(),
          .entropy = writer.Entropy()};
}

std::string PartialPath(const std::string& out, const char* side) {
  return JoinPath(out, absl::StrCat(side, ".partial"));
}

absl::StatusOr<CorpusReport> Write(const CorpusOptions& options,
                                   Reporter& reporter) {
  CorpusReport report;
  DELINK_ASSIGN_OR_RETURN(const std::vector<Document> documents,
                          SplitDocuments(options, &report.empty_files));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          ChooseTokenizer(options, documents, reporter));
  for (const char* side : kSides) {
    const std::string partial = PartialPath(options.out, side);
    DELINK_RETURN_IF_ERROR(RemoveAll(partial));
    DELINK_RETURN_IF_ERROR(MakeDirectories(partial));
  }
  CorpusWriter train(PartialPath(options.out, kSides[0]), *tokenizer,
                     options.shard_tokens);
  CorpusWriter validation(PartialPath(options.out, kSides[1]), *tokenizer,
                          options.shard_tokens);
  int64_t total = 0;
  for (const Document& document : documents) total += document.bytes;
  reporter.Start("encoding", total);
  Encoder encoder(*tokenizer, train, validation, reporter);
  for (const Document& document : documents) {
    DELINK_RETURN_IF_ERROR(encoder.Add(document));
  }
  reporter.Finish();
  if (train.documents() == 0 || validation.documents() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.inputs.front(), ": the corpus is too small to split: ",
        train.bytes() + validation.bytes(), " bytes; give more text"));
  }
  DELINK_RETURN_IF_ERROR(train.Finish());
  DELINK_RETURN_IF_ERROR(validation.Finish());
  report.tokenizer_kind = tokenizer->kind();
  report.vocab = tokenizer->vocab_size();
  report.train = SideOf(train);
  report.validation = SideOf(validation);
  return report;
}

// Puts the new folders in the places of the old.
absl::Status Publish(const std::string& out) {
  for (const char* side : kSides) {
    const std::string path = JoinPath(out, side);
    const std::string old = JoinPath(out, absl::StrCat(side, ".old"));
    DELINK_RETURN_IF_ERROR(RemoveAll(old));
    if (PathExists(path)) DELINK_RETURN_IF_ERROR(Rename(path, old));
    DELINK_RETURN_IF_ERROR(SyncDirectory(PartialPath(out, side)));
    DELINK_RETURN_IF_ERROR(Rename(PartialPath(out, side), path));
    DELINK_RETURN_IF_ERROR(RemoveAll(old));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CorpusReport> BuildCorpus(
    const CorpusOptions& options,
    const std::function<void(const CorpusProgress&)>& progress) {
  DELINK_RETURN_IF_ERROR(CheckOptions(options));
  const bool existed = PathExists(options.out);
  DELINK_RETURN_IF_ERROR(MakeDirectories(options.out));
  Reporter reporter(progress);
  absl::StatusOr<CorpusReport> report = Write(options, reporter);
  if (report.ok()) {
    DELINK_RETURN_IF_ERROR(Publish(options.out));
    return report;
  }
  for (const char* side : kSides) {
    RemoveAll(PartialPath(options.out, side)).IgnoreError();
  }
  if (!existed) RemoveAll(options.out).IgnoreError();
  return report;
}

}  // namespace delink
