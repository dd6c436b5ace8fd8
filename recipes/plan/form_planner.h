// Plans a stage in one form on a machine: its memory, and if it fits, the
// simulated step (machine_step.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/plan/find_place.h"
#include "recipes/plan/search_space.h"
#include "recipes/run/dry_run/imagined_stage.h"
#include "recipes/run/dry_run/known_rates.h"
#include "recipes/run/dry_run/machine_step.h"
#include "recipes/run/dry_run/planned_machine.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// A form that fits.
struct FoundForm {
  StageForm form;
  AutoPlace place;  // with offload
  int64_t micro_batches = 0;
  int64_t device = 0;        // bytes of the heaviest rank
  int64_t host = 0;          // of the heaviest node, with offload
  int64_t switch_bytes = 0;  // 0: the first stage
  double least = 0;          // seconds: the bound by which it was ordered
  MachineStep step;
};

// Bytes and the form alone, if it does not fit.
struct PlannedForm {
  bool fits = false;
  int64_t bytes = 0;
  bool at_least = false;  // `bytes` is a lower bound
  FoundForm found;
};

class FormPlanner {
 public:
  // For stage `index`. env.recipe is the recipe up to it, whose form is open;
  // env.homes has the places of the stages before. Keeps a copy of `env` and
  // references to the rest.
  static absl::StatusOr<FormPlanner> Create(const RunEnv& env, size_t index,
                                            const PlannedMachine& machine,
                                            const KnownRates& rates);

  // Without offload. `rules`: whether rules 4 and 5 of search.h may say that it
  // does not fit.
  absl::StatusOr<PlannedForm> Resident(const StageForm& form,
                                       int64_t micro_batches, bool rules);
  // Only whether it does not fit, by these rules.
  absl::StatusOr<PlannedForm> FewResident(const StageForm& form,
                                          int64_t micro_batches);
  // With the machine's memory as budgets, placed by the shortest step that is
  // foreseen (find_homes.h).
  absl::StatusOr<PlannedForm> Offloaded(const StageForm& form,
                                        int64_t micro_batches);

 private:
  FormPlanner(const RunEnv& env, size_t index, const PlannedMachine& machine,
              const KnownRates& rates);
  // Bytes of a heaviest rank, of which no form needs less that has the same
  // key (search.h, rule 5).
  struct Floors {
    int64_t planes = 0, activations = 0;
  };
  using Key = std::vector<int64_t>;
  // What decides planes, and activations.
  static Key PlanesKey(const StageForm& form);
  static Key ActivationsKey(const StageForm& form);

  // Of the heaviest rank, and with few micro-batches (rule 4).
  struct Few {
    int64_t bytes = 0;
    Floors floors;
  };
  absl::StatusOr<Few> WithFew(const StageForm& form, bool offloaded);
  absl::StatusOr<PlannedForm> Plan(const RunEnv& env, FoundForm found);
  absl::StatusOr<bool> SwitchFits(ImaginedStage& stage, FoundForm& found) const;

  RunEnv env_;
  size_t index_;
  const PlannedMachine* machine_;
  const KnownRates* rates_;
  std::vector<PlaneBytes> before_;  // by rank, of the stage before
  std::map<Key, int64_t> floors_;
};

}  // namespace delink
