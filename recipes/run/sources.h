// The corpora of a run, and where the run is in them.
//
// A source is known by its corpus's digest, not by its name or place: what has
// been consumed of it stays with it when it is renamed, moved, taken out of the
// recipe and put back.
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
#include "recipes/run/saved_run.h"
#include "recipes/schema/recipe.h"

namespace delink {

class Sources {
 public:
  // In the order of the recipe. InvalidArgument where two of them are the same
  // corpus, or not all are of one tokenizer.
  static absl::StatusOr<Sources> Open(const Recipe& recipe);

  size_t size() const { return train_.size(); }
  const std::string& name(size_t i) const { return configs_[i].name; }
  const Corpus& corpus(size_t i) const { return train_[i].corpus(); }
  const std::vector<Loader>& train() const { return train_; }
  // None: the source is not validated on. One at least is.
  const std::optional<Loader>& validation(size_t i) const {
    return validation_[i];
  }

  const std::string& tokenizer_bytes() const {
    return corpus(0).tokenizer_bytes();
  }
  // The digests of all, with commas.
  std::string digests() const;
  // What a validation on `sequences` of each corpus reads: "16 DIGEST", with
  // commas, whatever the order of the sources.
  std::string ValidatedOn(int64_t sequences) const;

  // Where a run begins, or where a checkpoint left it, with these weights. What
  // the checkpoint does not know begins at 0. InvalidArgument: it knows one by
  // this name that is another corpus.
  absl::StatusOr<Blend> Place(const std::vector<double>& weights,
                              const SavedRun* saved) const;

  // What is told of a run that is at `blend`.
  std::vector<SourceState> StatesAt(const Blend& blend) const;
  // For a checkpoint of a run that is at `blend`. Of `before`, the counts of
  // the checkpoint that it was resumed from, those of corpora that have gone
  // are kept.
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
