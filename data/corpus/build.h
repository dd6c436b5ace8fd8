// Text files to a corpus: OUT/train and OUT/validation, as format.h has them.
//
// Every input file is a document. The same inputs and options give the same
// tokens, whatever folder they lie in. Memory is bounded by the shard size and
// the tokenizer's training sample. The folders are written under temporary
// names and renamed when whole; a failure leaves OUT as it was.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

struct CorpusOptions {
  std::vector<std::string> inputs;  // files, or folders of files; .gz too
  std::string out;

  // At most one of the two; neither: bytes.
  std::string tokenizer_file;
  int32_t train_vocab = 0;

  double validation = 0.01;  // share of the text for validation, in (0, 1)
  uint64_t seed = 0;         // of the split and of the tokenizer's sample
  bool overwrite = false;    // replace a corpus that is there

  int64_t shard_tokens = int64_t{32} << 20;
  int64_t training_bytes = 0;  // of text to train a tokenizer; 0: by its size
};

struct CorpusProgress {
  const char* phase = "";  // "reading", "training the tokenizer", "encoding"
  int64_t done = 0;        // bytes of text
  int64_t total = 0;
  int64_t tokens = 0;
};

struct CorpusSide {
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t bytes = 0;
  double entropy = 0;  // unigram, nats a token
};

struct CorpusReport {
  std::string tokenizer_kind;
  int32_t vocab = 0;
  int64_t empty_files = 0;  // left out
  CorpusSide train;
  CorpusSide validation;
};

// `progress` is called a few times a second at most; it may be empty.
absl::StatusOr<CorpusReport> BuildCorpus(
    const CorpusOptions& options,
    const std::function<void(const CorpusProgress&)>& progress = {});

}  // namespace delink
