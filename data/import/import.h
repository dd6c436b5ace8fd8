// Token files that people have to a corpus: OUT/train and OUT/validation, as
// data/corpus/format.h has them.
//
// The files of Megatron, llm.c and NumPy and raw ids (layout.h), one after the
// other. The same files and options make the same corpus. Memory is bounded by
// the shard size, the index of a Megatron pair and about 50 bytes a document.
// The folders are written under temporary names and renamed when whole; a
// failure leaves OUT as it was.
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

  // The tokenizer that made the ids, a file or a folder, or else how many ids
  // there are. Nothing is put in front of documents: ids stay as they are.
  std::string tokenizer_file;
  int64_t vocab = 0;
  // The id at the end of documents; -1: the tokenizer's, else one past the last
  // (the files then have none, and their vocabulary becomes one larger).
  int64_t end_of_document = -1;

  double validation = 0.01;  // share of the tokens for validation, in (0, 1)
  uint64_t seed = 0;         // of the split
  bool overwrite = false;    // replace a corpus that is there
  int64_t shard_tokens = int64_t{32} << 20;
};

// `progress` is told of the phases "checking" and "importing", in bytes.
absl::StatusOr<CorpusReport> ImportCorpus(
    const TokenImportOptions& options,
    const std::function<void(const CorpusProgress&)>& progress = {});

}  // namespace delink
