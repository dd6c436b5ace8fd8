// What plans of a recipe begin with.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "recipes/plan/plan.h"
#include "recipes/run/dry_run/planned_machine.h"
#include "recipes/schema/recipe.h"

namespace delink {

// The number of ranks, if any stage of the recipe says it; else one.
int64_t RanksOf(const Recipe& recipe);

// With the vocabulary of its corpus, if it gives none.
absl::StatusOr<Recipe> WithVocab(const Recipe& recipe);

// The number of threads of each rank.
int ThreadsOf(const RunConfig& run, const PlanOptions& options,
              const std::optional<PlannedMachine>& machine, int64_t ranks);

// Sets the number of this process's threads for its life: the CPU's kernels
// have scratch for each thread that they may use.
class WithThreads {
 public:
  explicit WithThreads(int threads);
  ~WithThreads();
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  const int before_;
};

}  // namespace delink
