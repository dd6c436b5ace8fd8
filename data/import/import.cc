#include "data/import/import.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/corpus/corpus_writer.h"
#include "data/corpus/reporter.h"
#include "data/corpus/split.h"
#include "data/corpus/staging.h"
#include "data/corpus/text_inputs.h"
#include "data/import/token_reader.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr int64_t kLargestVocab = 1 << 24;

absl::StatusOr<std::unique_ptr<Tokenizer>> ChooseTokenizer(
    const TokenImportOptions& options) {
  const int64_t end = options.end_of_document;
  if (!options.tokenizer_file.empty()) {
    DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                            LoadTokenizerFile(options.tokenizer_file));
    if (end < 0 || end == tokenizer->end_of_document()) return tokenizer;
    return absl::InvalidArgumentError(absl::StrCat(
        "--eot ", end, ": ", options.tokenizer_file, " ends documents with ",
        tokenizer->end_of_document(),
        "; leave --eot out, or give --vocab instead of --tokenizer"));
  }
  if (options.vocab < 1 || options.vocab >= kLargestVocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("--vocab ", options.vocab,
                     ": without --tokenizer give the number of ids, from 1 to ",
                     kLargestVocab - 1));
  }
  if (end >= options.vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("--eot ", end, ": is beyond the ", options.vocab,
                     " ids of --vocab; raise --vocab, or leave --eot out"));
  }
  if (end < 0) {
    return MakeIdsTokenizer(static_cast<int32_t>(options.vocab + 1),
                            static_cast<int32_t>(options.vocab));
  }
  return MakeIdsTokenizer(static_cast<int32_t>(options.vocab),
                          static_cast<int32_t>(end));
}

// The files do not have the end-of-document id that we add.
int32_t IdsOfFiles(const TokenImportOptions& options,
                   const Tokenizer& tokenizer) {
  return options.tokenizer_file.empty() ? static_cast<int32_t>(options.vocab)
                                        : tokenizer.vocab_size();
}

absl::StatusOr<std::vector<TokenLayout>> ReadLayouts(
    const TokenImportOptions& options) {
  std::vector<std::string> paths;
  for (const std::string& input : options.inputs) {
    DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> some,
                            ExpandInput(input));
    paths.insert(paths.end(), some.begin(), some.end());
  }
  std::vector<TokenLayout> layouts;
  for (const std::string& path : paths) {
    // If both files of a Megatron pair are named, the .bin stands for both.
    if (absl::EndsWith(path, ".idx") &&
        std::find(paths.begin(), paths.end(), WithSuffix(path, ".bin")) !=
            paths.end()) {
      continue;
    }
    DELINK_ASSIGN_OR_RETURN(TokenLayout layout,
                            ReadLayout(path, options.layout));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

int64_t TotalBytes(std::span<const TokenLayout> layouts) {
  int64_t bytes = 0;
  for (const TokenLayout& layout : layouts) {
    for (const TokenStretch& stretch : layout.stretches) {
      bytes += stretch.count * ByteSize(layout.type);
    }
  }
  return bytes;
}

// The first pass: the sizes of the documents, in tokens, and how many of each
// are for training.
struct TokenScan {
  std::vector<DocumentSize> documents;
  std::vector<int64_t> training;
  int64_t empty = 0;
};

absl::StatusOr<TokenScan> Scan(TokenReader reader,
                               const TokenImportOptions& options,
                               Reporter& reporter) {
  TokenScan scan;
  std::optional<Sha256> digest;
  while (true) {
    DELINK_ASSIGN_OR_RETURN(const TokenRun run, reader.Next());
    if (run.ids.empty() && !run.ends) break;
    if (run.begins) {
      scan.documents.push_back({});
      digest.emplace();
    }
    scan.documents.back().bytes += static_cast<int64_t>(run.ids.size());
    digest->Update(run.ids.data(), run.ids.size() * sizeof(int32_t));
    if (run.ends) scan.documents.back().key = DocumentKey(*digest);
    reporter.Set(reader.stored_bytes(), 0);
  }
  scan.training =
      TrainingBytes(scan.documents, options.validation, options.seed);
  scan.empty = reader.empty_documents();
  return scan;
}

// The size of each id's text in bytes; 0 if only ids are known.
std::vector<int64_t> TokenBytes(const TokenImportOptions& options,
                                const Tokenizer& tokenizer) {
  std::vector<int64_t> bytes(static_cast<size_t>(tokenizer.vocab_size()), 0);
  if (options.tokenizer_file.empty()) return bytes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    At(bytes, id) = static_cast<int64_t>(tokenizer.TokenBytes(id).size());
  }
  return bytes;
}

// The second pass, which writes both sides.
class Importer {
 public:
  struct Sides {
    CorpusWriter& train;
    CorpusWriter& validation;
  };
  // `token_bytes`: the size of each id's text.
  Importer(std::vector<int64_t> token_bytes, const TokenScan& scan, Sides sides)
      : token_bytes_(std::move(token_bytes)),
        scan_(scan),
        sides_{&sides.train, &sides.validation} {}

  absl::Status Run(TokenReader reader, Reporter& reporter) {
    while (true) {
      DELINK_ASSIGN_OR_RETURN(const TokenRun run, reader.Next());
      if (run.ids.empty() && !run.ends) break;
      DELINK_RETURN_IF_ERROR(Add(run));
      reporter.Set(reader.stored_bytes(),
                   sides_[0]->tokens() + sides_[1]->tokens());
    }
    return document_ == scan_.documents.size() ? absl::OkStatus() : Changed();
  }

 private:
  static absl::Status Changed() {
    return absl::AbortedError(
        "the input changed while it was read; import it again once nothing "
        "writes to its files");
  }

  absl::Status Add(const TokenRun& run) {
    if (document_ == scan_.documents.size()) return Changed();
    const int64_t size = scan_.documents[document_].bytes;
    const int64_t training = scan_.training[document_];
    if (run.begins) at_ = 0;
    const int64_t count = static_cast<int64_t>(run.ids.size());
    if (at_ + count > size || (run.ends && at_ + count < size)) {
      return Changed();
    }
    const size_t cut =
        static_cast<size_t>(std::clamp<int64_t>(training - at_, 0, count));
    at_ += count;
    const std::span<const int32_t> ids(run.ids);
    DELINK_RETURN_IF_ERROR(Append(0, ids.first(cut)));
    // Only a document that is cut has tokens on both sides.
    if (cut > 0 && at_ >= training) {
      DELINK_RETURN_IF_ERROR(sides_[0]->EndDocument());
    }
    DELINK_RETURN_IF_ERROR(Append(1, ids.subspan(cut)));
    if (run.ends) {
      if (training < size) DELINK_RETURN_IF_ERROR(sides_[1]->EndDocument());
      ++document_;
    }
    return absl::OkStatus();
  }

  absl::Status Append(int side, std::span<const int32_t> ids) {
    if (ids.empty()) return absl::OkStatus();
    return sides_[side]->Append(ids, TextBytes(ids));
  }

  int64_t TextBytes(std::span<const int32_t> ids) const {
    int64_t bytes = 0;
    for (const int32_t id : ids) bytes += At(token_bytes_, id);
    return bytes;
  }

  const std::vector<int64_t> token_bytes_;
  const TokenScan& scan_;
  CorpusWriter* const sides_[2];
  size_t document_ = 0;  // the one being read
  int64_t at_ = 0;       // tokens of it that have been read
};

absl::StatusOr<CorpusReport> Import(const TokenImportOptions& options,
                                    const Tokenizer& tokenizer,
                                    const CorpusStaging& staging,
                                    Reporter& reporter) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<TokenLayout> layouts,
                          ReadLayouts(options));
  const TokenReader::Options reading = {
      .vocab = IdsOfFiles(options, tokenizer),
      .end_of_document = tokenizer.end_of_document()};
  const int64_t total = TotalBytes(layouts);
  reporter.Start("checking", total);
  DELINK_ASSIGN_OR_RETURN(
      const TokenScan scan,
      Scan(TokenReader(layouts, reading), options, reporter));
  reporter.Finish();
  CorpusWriter train(staging.dir(0), tokenizer, options.shard_tokens);
  CorpusWriter validation(staging.dir(1), tokenizer, options.shard_tokens);
  reporter.Start("importing", total);
  Importer importer(TokenBytes(options, tokenizer), scan, {train, validation});
  DELINK_RETURN_IF_ERROR(importer.Run(TokenReader(layouts, reading), reporter));
  reporter.Finish();
  if (train.documents() == 0 ||
      (options.validation > 0 && validation.documents() == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.inputs.front(), ": the corpus is too small to split: ",
        train.tokens() + validation.tokens(), " tokens; give more files"));
  }
  DELINK_RETURN_IF_ERROR(train.Finish());
  if (options.validation > 0) {
    DELINK_RETURN_IF_ERROR(validation.Finish());
  }
  return CorpusReport{.files = static_cast<int64_t>(layouts.size()),
                      .empty_documents = scan.empty};
}

}  // namespace

absl::StatusOr<CorpusReport> ImportCorpus(
    const TokenImportOptions& options,
    const std::function<void(const CorpusProgress&)>& progress) {
  if (options.inputs.empty()) {
    return absl::InvalidArgumentError(
        "no input: name the token files, or folders of them, to import");
  }
  if (!(options.validation >= 0 && options.validation < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--validation ", options.validation,
                     ": give a share of at least 0 and below 1, such as 0.01"));
  }
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          ChooseTokenizer(options));
  DELINK_ASSIGN_OR_RETURN(
      CorpusStaging staging,
      CorpusStaging::Create(options.out, options.overwrite));
  Reporter reporter(progress);
  DELINK_ASSIGN_OR_RETURN(const CorpusReport report,
                          Import(options, *tokenizer, staging, reporter));
  DELINK_RETURN_IF_ERROR(staging.Publish(options.validation > 0 ? 2 : 1));
  return report;
}

}  // namespace delink
