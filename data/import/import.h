// Converts token files to a corpus: OUT/train and OUT/validation
// (data/corpus/format.h).
//
// Reads files of Megatron, llm.c, NumPy and raw ids (layout.h), one after the
// other. The same files and options give the same corpus. Memory is bounded by
// the shard size, the index of a Megatron pair and about 50 bytes a document.
// The folders are written under temporary names and renamed when they are
// complete; a failure leaves OUT as it was.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/corpus/build.h"
#include "data/import/layout.h"

namespace delink {

struct TokenImportOptions {
  std::vector<std::string> inputs;  // as ExpandInput takes them
  LayoutOptions layout;
  std::string out;

  // The tokenizer that made the ids (a file or a folder), or the number of ids.
  // Ids stay as they are: no token is put in front of documents.
  std::string tokenizer_file;
  int64_t vocab = 0;
  // The id that ends documents in the files; -1: the tokenizer's. Without a
  // tokenizer -1 means that the files have none; the vocabulary then grows by
  // one id for it.
  int64_t end_of_document = -1;

  // Share of the tokens for validation, in [0, 1); 0: no validation side.
  double validation = 0.01;
  uint64_t seed = 0;       // of the split
  bool overwrite = false;  // replace an existing corpus
  int64_t shard_tokens = int64_t{32} << 20;
};

// `progress` receives the phases "checking" and "importing", in bytes.
absl::StatusOr<CorpusReport> ImportCorpus(
    const TokenImportOptions& options,
    const std::function<void(const CorpusProgress&)>& progress = {});

}  // namespace delink
