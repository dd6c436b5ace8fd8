// Builds a corpus from text: OUT/train and OUT/validation (format.h).
//
// A text file is one document, and so is each line of a JSONL file; both may be
// compressed. The tokens depend only on the documents, their order and the
// options, not on the file format or the number of threads.
// Memory is bounded by the shard size, the tokenizer's training sample, the
// longest document of a JSONL file and about 100 bytes a document. The folders
// are written under temporary names and renamed when they are complete; a
// failure leaves OUT as it was.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/corpus/text_inputs.h"

namespace delink {

struct CorpusOptions {
  std::vector<std::string> inputs;  // as ExpandInput takes them, or "-"
  TextFormat format = TextFormat::kByName;
  std::string text_field = "text";  // of JSONL
  int standard_input = 0;           // the file descriptor of "-"
  std::string out;

  // At most one of the two; neither: bytes.
  std::string tokenizer_file;  // or a folder, for LoadTokenizerFile
  int32_t train_vocab = 0;

  // Share of the text for validation, in [0, 1); 0: no validation side.
  double validation = 0.01;
  uint64_t seed = 0;       // of the split and of the tokenizer's sample
  bool overwrite = false;  // replace an existing corpus
  int threads = 0;         // that tokenise; 0: one a core

  int64_t shard_tokens = int64_t{32} << 20;
  int64_t training_bytes = 0;  // of text to train a tokenizer; 0: by its size
};

struct CorpusProgress {
  // In this order: "receiving" (standard input), "checking", "sampling" and
  // "training the tokenizer" (if one is trained), "encoding".
  const char* phase = "";
  int64_t done = 0;   // bytes of text; checking: of files
  int64_t total = 0;  // 0: not known
  int64_t tokens = 0;
};

struct CorpusReport {
  int64_t files = 0;
  // Left out.
  int64_t not_text = 0;  // files below folders
  int64_t hidden = 0;    // files and folders below folders
  int64_t empty_documents = 0;
};

// `progress` is called a few times a second at most; it may be empty.
absl::StatusOr<CorpusReport> BuildCorpus(
    const CorpusOptions& options,
    const std::function<void(const CorpusProgress&)>& progress = {});

}  // namespace delink
