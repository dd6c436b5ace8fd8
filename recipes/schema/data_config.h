// [data]: what a run is trained on.
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
  double weight = 1;           // against those of the others
  std::optional<bool> repeat;  // none: data.repeat
};

struct DataConfig {
  // What a row holds where it holds several documents: one text, or each by
  // itself (data/loader/documents.h).
  enum class Documents { kPacked, kMasked };
  // Either these two or `sources`.
  std::string train;       // absolute path of a corpus folder
  std::string validation;  // the same; by default `validation` beside train
  std::vector<DataSource> sources;
  bool repeat = true;  // read on from the start where a corpus has ended
  int64_t seq = 1024;  // tokens a sequence
  int64_t batch = 0;   // sequences an optimizer step, over all ranks
  int64_t validation_batches = 16;  // batches a validation
  bool shuffle = true;
  Documents documents = Documents::kPacked;

  bool masked() const { return documents == Documents::kMasked; }

  // What is trained on, one or more, whichever way it was given.
  std::vector<DataSource> Sources() const;
};

}  // namespace delink
