// Writes one side of a corpus (format.h), token by token, holding one shard in
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/corpus/corpus_digest.h"
#include "data/corpus/format.h"
#include "data/tokenizer/tokenizer.h"

namespace delink {

class CorpusWriter {
 public:
  // Into `dir`, an existing empty folder. `tokenizer` outlives the writer.
  CorpusWriter(std::string dir, const Tokenizer& tokenizer,
               int64_t shard_tokens);

  // A document is any number of Append calls, then EndDocument. `bytes` is the
  // size of the text.
  absl::Status Append(std::span<const int32_t> ids, int64_t bytes);
  absl::Status EndDocument();

  // Writes the last shard, the index, the tokenizer and finally SHA256SUMS.
  absl::Status Finish();

  bool in_document() const { return in_document_; }
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  int64_t bytes() const { return bytes_; }

 private:
  absl::Status Push(int32_t id);
  absl::Status WriteShard();
  absl::Status WriteIndex();
  double Entropy() const;

  // The middle length, or the mean of the two middle ones. Reorders lengths_.
  double MedianLength();

  const std::string dir_;
  const Tokenizer& tokenizer_;
  const int64_t shard_tokens_;

  // The shard being filled. Its tokens are in one of the two vectors.
  const bool narrow_;
  std::vector<uint16_t> narrow_tokens_;
  std::vector<uint32_t> wide_tokens_;
  std::vector<int64_t> starts_;

  // The shards written.
  std::vector<int64_t> shard_sizes_;
  std::vector<int64_t> shard_documents_;

  std::vector<int64_t> counts_;  // [vocab]
  int64_t tokens_ = 0;
  int64_t documents_ = 0;
  int64_t bytes_ = 0;
  bool in_document_ = false;
  std::vector<int64_t> lengths_;  // tokens of each document
  CorpusDigest digest_;
};

}  // namespace delink
