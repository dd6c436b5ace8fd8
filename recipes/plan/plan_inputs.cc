#include "recipes/plan/plan_inputs.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "data/corpus/corpus.h"
#include "layers/kernels/cpu/threads.h"
#include "recipes/run/setup/prepare.h"

namespace delink {

int64_t RanksOf(const Recipe& recipe) {
  int64_t ranks = 1;
  for (const Stage& stage : recipe.stages) {
    ParallelConfig parallel = stage.parallel;
    parallel.data = std::max<int64_t>(1, parallel.data);
    ranks = std::max(ranks, parallel.ranks());
  }
  return ranks;
}

absl::StatusOr<Recipe> WithVocab(const Recipe& recipe) {
  if (recipe.model->vocab > 0) return recipe;
  const absl::StatusOr<Corpus> corpus = Corpus::Open(
      recipe.data.Sources().front().train, {.statistics_only = true});
  if (!corpus.ok()) {
    return absl::Status(
        corpus.status().code(),
        absl::StrCat(std::string(corpus.status().message()),
                     "; a plan needs only the corpus's vocabulary size: to "
                     "plan without the corpus, add --set model.vocab=N"));
  }
  return FitVocab(recipe, *corpus);
}

int ThreadsOf(const RunConfig& run, const PlanOptions& options,
              const std::optional<PlannedMachine>& machine, int64_t ranks) {
  if (run.threads > 0) return static_cast<int>(run.threads);
  if (machine.has_value()) {
    return static_cast<int>(std::max<int64_t>(
        1, machine->machine.threads / machine->ranks_per_node));
  }
  if (options.threads > 0) return static_cast<int>(options.threads);
  return static_cast<int>(std::max<int64_t>(1, cpu::MaxThreads() / ranks));
}

WithThreads::WithThreads(int threads) : before_(cpu::MaxThreads()) {
  cpu::SetThreads(threads);
}

WithThreads::~WithThreads() { cpu::SetThreads(before_); }

}  // namespace delink
