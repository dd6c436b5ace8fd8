// One side of a corpus (DIR/train or DIR/validation), open for reading.
//
// Immutable and thread-safe; copies share the open files. A shard is opened
// when it is first read. At most 256 shards stay open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/tokenizer/tokenizer.h"

namespace delink {

struct CorpusOpening {
  // The share of the files whose digests are verified here, so that ranks can
  // divide the work. The names and sizes of all files are always verified.
  int verify_index = 0;
  int verify_count = 1;

  // Verifies only the digest of the index, which is enough for statistics but
  // not for reading tokens.
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

  // Tokens of a document, its end included; 0 if the corpus does not record it.
  double median_document() const;
  int64_t greatest_document() const;

  const std::string& tokenizer_kind() const;
  const std::string& tokenizer_bytes() const;  // for LoadTokenizer

  // SHA-256 over tokens, document boundaries and tokenizer. It is equal exactly
  // for equal corpora and does not depend on the sharding.
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
