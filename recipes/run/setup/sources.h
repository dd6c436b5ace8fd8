// The corpora of a run, and the run's position in them.
//
// A source is identified by its corpus's digest, not by its name or path. Its
// count of consumed samples survives when it is renamed, moved, or removed from
// the recipe and added back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/corpus/corpus.h"
#include "data/loader/blend.h"
#include "data/loader/loader.h"
#include "recipes/record/run_event.h"
#include "recipes/run/position/saved_run.h"
#include "recipes/schema/recipe.h"

namespace delink {

class Sources {
 public:
  // In the order of the recipe. InvalidArgument: two sources are the same
  // corpus, or their tokenizers differ.
  static absl::StatusOr<Sources> Open(const Recipe& recipe);

  size_t size() const { return train_.size(); }
  const std::string& name(size_t i) const { return configs_[i].name; }
  const Corpus& corpus(size_t i) const { return train_[i].corpus(); }
  const std::vector<Loader>& train() const { return train_; }
  // None: the source is not used for validation. At least one is.
  const std::optional<Loader>& validation(size_t i) const {
    return validation_[i];
  }

  const std::string& tokenizer_bytes() const {
    return corpus(0).tokenizer_bytes();
  }
  // The digests of all sources, separated by commas.
  std::string digests() const;
  // Identifies the data of a validation on `sequences` of each corpus: "16
  // DIGEST", separated by commas, independent of the order of sources.
  std::string ValidatedOn(int64_t sequences) const;

  // The position at a run's start or, with `saved`, at a checkpoint, with these
  // weights. Sources that the checkpoint does not know begin at 0.
  // InvalidArgument: the checkpoint has another corpus under the name of a
  // source.
  absl::StatusOr<Blend> Place(const std::vector<double>& weights,
                              const SavedRun* saved) const;

  // The states to report for a run at `blend`.
  std::vector<SourceState> StatesAt(const Blend& blend) const;
  // For a checkpoint of a run at `blend`. `before` has the counts of the
  // checkpoint that the run was resumed from; those of removed corpora are
  // kept.
  std::vector<SourceCount> Counts(const Blend& blend,
                                  const std::vector<SourceCount>& before) const;

 private:
  Sources() = default;
  absl::Status OpenOne(const DataSource& config, const Recipe& recipe);
  absl::Status CheckAlike() const;

  std::vector<DataSource> configs_;
  std::vector<Loader> train_;
  std::vector<std::optional<Loader>> validation_;
};

}  // namespace delink
