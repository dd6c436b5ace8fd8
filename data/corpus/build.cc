#include "data/corpus/build.h"

#include <algorithm>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "data/corpus/corpus_writer.h"
#include "data/corpus/document_reader.h"
#include "data/corpus/document_scan.h"
#include "data/corpus/encoder.h"
#include "data/corpus/line_sampler.h"
#include "data/corpus/reporter.h"
#include "data/corpus/staging.h"
#include "data/corpus/text_inputs.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

absl::Status CheckOptions(const CorpusOptions& options) {
  if (options.inputs.empty()) {
    return absl::InvalidArgumentError(
        "no input: name the files of text, or folders of them, to build the "
        "corpus from");
  }
  if (!(options.validation >= 0 && options.validation < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--validation ", options.validation,
                     ": give a share of at least 0 and below 1, such as 0.01"));
  }
  if (!options.tokenizer_file.empty() && options.train_vocab != 0) {
    return absl::InvalidArgumentError(
        "--tokenizer and --train-tokenizer exclude each other; give one");
  }
  return absl::OkStatus();
}

// More text lengthens the training of a tokenizer, but not its tokens.
int64_t SampleBytes(const CorpusOptions& options) {
  if (options.training_bytes > 0) return options.training_bytes;
  return std::clamp<int64_t>(int64_t{1024} * options.train_vocab, 2 << 20,
                             128 << 20);
}

int Threads(const CorpusOptions& options) {
  constexpr int kMost = 256;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(options.threads > 0 ? options.threads : cores, 1, kMost);
}

std::string SpoolPath(const std::string& out) {
  return JoinPath(out, "standard-input.partial");
}

// Lists the inputs. Standard input can be read only once, so it is copied to a
// file.
absl::StatusOr<TextInputs> Receive(const CorpusOptions& options,
                                   Reporter& reporter) {
  DELINK_ASSIGN_OR_RETURN(TextInputs inputs,
                          ListInputs(options.inputs, options.format));
  for (TextInput& input : inputs.files) {
    if (!input.path.empty()) continue;
    reporter.Start("receiving", 0);
    input.path = SpoolPath(options.out);
    DELINK_RETURN_IF_ERROR(SpoolDescriptor(options.standard_input, input.path));
    reporter.Finish();
  }
  return inputs;
}

absl::StatusOr<DocumentScan> Check(const CorpusOptions& options,
                                   const std::vector<TextInput>& inputs,
                                   Reporter& reporter) {
  int64_t total = 0;
  for (const TextInput& input : inputs) {
    DELINK_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(input.path));
    total += bytes;
  }
  reporter.Start("checking", total);
  DELINK_ASSIGN_OR_RETURN(
      DocumentScan scan,
      ScanDocuments(*ReadAllDocuments(inputs, options.text_field),
                    options.validation, options.seed,
                    [&](int64_t done) { reporter.Set(done, 0); }));
  reporter.Finish();
  if (scan.documents.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.inputs.front(), ": the corpus is empty: none of ",
        inputs.size(), " input files has any text; name files with text"));
  }
  return scan;
}

// Null if one is to be trained.
absl::StatusOr<std::unique_ptr<Tokenizer>> GivenTokenizer(
    const CorpusOptions& options) {
  if (!options.tokenizer_file.empty()) {
    return LoadTokenizerFile(options.tokenizer_file);
  }
  if (options.train_vocab == 0) return MakeByteTokenizer();
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TrainOnText(
    const CorpusOptions& options, const std::vector<TextInput>& inputs,
    const DocumentScan& scan, Reporter& reporter) {
  reporter.Start("sampling", scan.training_bytes);
  const auto reader = ReadAllDocuments(inputs, options.text_field);
  LineSampler sampler(*reader, scan, SampleBytes(options), options.seed,
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

absl::StatusOr<CorpusReport> Write(const CorpusOptions& options,
                                   const CorpusStaging& staging,
                                   Reporter& reporter) {
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                          GivenTokenizer(options));
  DELINK_ASSIGN_OR_RETURN(const TextInputs received,
                          Receive(options, reporter));
  const std::vector<TextInput>& inputs = received.files;
  DELINK_ASSIGN_OR_RETURN(const DocumentScan scan,
                          Check(options, inputs, reporter));
  if (tokenizer == nullptr) {
    DELINK_ASSIGN_OR_RETURN(tokenizer,
                            TrainOnText(options, inputs, scan, reporter));
  }
  CorpusWriter train(staging.dir(0), *tokenizer, options.shard_tokens);
  CorpusWriter validation(staging.dir(1), *tokenizer, options.shard_tokens);
  reporter.Start("encoding", scan.bytes);
  Encoder encoder(*tokenizer, scan, {train, validation}, reporter);
  DELINK_RETURN_IF_ERROR(encoder.Run(
      *ReadAllDocuments(inputs, options.text_field), Threads(options)));
  reporter.Finish();
  if (train.documents() == 0 ||
      (options.validation > 0 && validation.documents() == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.inputs.front(), ": the corpus is too small to split: ",
        train.bytes() + validation.bytes(), " bytes; give more text"));
  }
  DELINK_RETURN_IF_ERROR(train.Finish());
  if (options.validation > 0) {
    DELINK_RETURN_IF_ERROR(validation.Finish());
  }
  return CorpusReport{.files = static_cast<int64_t>(inputs.size()),
                      .not_text = received.not_text,
                      .hidden = received.hidden,
                      .empty_documents = scan.empty};
}

}  // namespace

absl::StatusOr<CorpusReport> BuildCorpus(
    const CorpusOptions& options,
    const std::function<void(const CorpusProgress&)>& progress) {
  DELINK_RETURN_IF_ERROR(CheckOptions(options));
  DELINK_ASSIGN_OR_RETURN(
      CorpusStaging staging,
      CorpusStaging::Create(options.out, options.overwrite));
  Reporter reporter(progress);
  absl::StatusOr<CorpusReport> report = Write(options, staging, reporter);
  RemoveAll(SpoolPath(options.out)).IgnoreError();
  if (report.ok()) {
    DELINK_RETURN_IF_ERROR(staging.Publish(options.validation > 0 ? 2 : 1));
  }
  return report;
}

}  // namespace delink
