// [data]: the training data of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace delink {

// One corpus of a blend.
struct DataSource {
  std::string name;
  std::string train;           // absolute path of a corpus folder
  std::string validation;      // the same; empty: `validation` beside train
  double weight = 1;           // relative to the other sources
  std::optional<bool> repeat;  // none: data.repeat
};

struct DataConfig {
  // How a row that holds several documents is read: as one text, or each
  // document by itself (data/loader/documents.h).
  enum class Documents { kPacked, kMasked };
  // Either these two or `sources`.
  std::string train;       // absolute path of a corpus folder
  std::string validation;  // the same; by default `validation` beside train
  std::vector<DataSource> sources;
  bool repeat = true;  // begin again at the end of a corpus
  int64_t seq = 1024;  // tokens a sequence
  int64_t batch = 0;   // sequences an optimizer step, over all ranks
  int64_t validation_batches = 16;  // batches a validation
  bool shuffle = true;
  Documents documents = Documents::kPacked;

  bool masked() const { return documents == Documents::kMasked; }

  // The training corpora, at least one, from `sources` or from `train`.
  std::vector<DataSource> Sources() const;
};

}  // namespace delink
