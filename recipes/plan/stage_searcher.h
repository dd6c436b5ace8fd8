// The search for one stage (search.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recipes/plan/form_planner.h"
#include "recipes/plan/search.h"
#include "recipes/plan/step_bound.h"

namespace delink {

class StageSearcher {
 public:
  // env.recipe is the recipe up to stage `index`, whose form is open;
  // env.homes has the places of the stages before. All are used by reference.
  StageSearcher(const RunEnv& env, size_t index, const PlannedMachine& machine,
                const KnownRates& rates, const SearchOptions& options);

  // `own`: planned before all others if it is a candidate, which gives the
  // tenth a time early and never misses it in a large search.
  absl::StatusOr<StageSearch> Run(const std::optional<StageForm>& own);

 private:
  // A core with all that its candidates have in common.
  struct Core {
    StageForm form;
    int64_t micro_batches = 0;
    // StepBound::Of, without and with recompute of blocks.
    std::optional<double> least[2];
  };
  struct Candidate {
    size_t core = 0, mesh = 0;
    int64_t zero = 0, shard = 0;
    Recompute recompute = Recompute::kNone;
    double least = 0;    // seconds: StepBound
    bool exact = false;  // StepBound::Of, not only OfWork
    int64_t bytes = 0;   // that it takes if it does not fit
    bool done = false;
  };
  // Candidates [first, last) of a mesh.
  struct Mesh {
    size_t first = 0, last = 0;
    bool tried = false;   // its leanest candidates
    bool closed = false;  // none of these fits
    // Of the quickest that is simulated: its seconds beyond its bound.
    double beyond = 0;
  };

  void Enumerate();
  void AddForms(const StageForm& core, bool whole);
  StageForm FormOf(const Candidate& of) const;
  absl::StatusOr<double> Least(const Candidate& of, StepBound& bound);
  double Tenth() const;
  bool NotNeeded(const Candidate& of) const;
  bool large() const;
  absl::Status TryLeanest(Mesh& mesh, FormPlanner& planner);
  absl::Status Plan(Candidate& of, FormPlanner& planner);
  absl::Status PlanOwn(StageForm own, StepBound& bound, FormPlanner& planner);
  absl::Status SearchResident(StepBound& bound, FormPlanner& planner);
  absl::Status SearchOffload(FormPlanner& planner);
  void Take(Candidate& of, PlannedForm planned);
  void Progress(const char* what, size_t done, size_t all) const;

  const RunEnv& env_;
  const size_t index_;
  const PlannedMachine& machine_;
  const KnownRates& rates_;
  const SearchOptions& options_;
  StageSearch result_;
  std::vector<Core> cores_;
  // Of a core, zero and shard, all recomputes follow each other.
  std::vector<Candidate> candidates_;
  std::vector<Mesh> meshes_;
  int64_t planned_ = 0;  // resident ones
  // By core, zero and shard: the least recompute that fits.
  std::map<std::tuple<size_t, int64_t, int64_t>, Recompute> fits_;
};

}  // namespace delink
