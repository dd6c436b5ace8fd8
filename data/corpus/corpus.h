// A corpus, open for reading: one side (DIR/train or DIR/validation) of what
// BuildCorpus wrote.
//
// Immutable and thread-safe; copies share one opening. Shards are opened when
// first read and kept open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/tokenizer/tokenizer.h"

namespace delink {

struct CorpusOpening {
  // The share of the files whose digests are verified here: with several ranks
  // each verifies its own. All files' names and sizes always are.
  int verify_index = 0;
  int verify_count = 1;

  // Verifies the digest of the index alone: enough for the statistics, not for
  // reading tokens.
  bool statistics_only = false;
};

class Corpus {
 public:
  // Verifies SHA256SUMS, then opens. The error names the file that is missing,
  // truncated or damaged.
  static absl::StatusOr<Corpus> Open(const std::string& dir,
                                     const CorpusOpening& opening = {});

  const std::string& dir() const;
  int64_t tokens() const;
  int64_t documents() const;
  int64_t bytes() const;  // of text
  int64_t shards() const;
  int32_t vocab_size() const;
  int32_t end_of_document() const;
  double entropy() const;  // of the unigrams, nats a token

  // Tokens of a document, its end included; 0 where a corpus does not say.
  double median_document() const;
  int64_t greatest_document() const;

  const std::string& tokenizer_kind() const;
  const std::string& tokenizer_bytes() const;  // for LoadTokenizer

  // SHA-256 over tokens, document boundaries and tokenizer: equal exactly for
  // equal corpora, however they are sharded.
  const std::string& digest() const;

  absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer() const;

  // Tokens [begin, begin + count) to `ids`.
  absl::Status Read(int64_t begin, int64_t count, int32_t* ids) const;

  // The first tokens of documents [begin, begin + count).
  absl::Status ReadDocumentStarts(int64_t begin, int64_t count,
                                  int64_t* starts) const;

 private:
  struct State;
  explicit Corpus(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

}  // namespace delink
