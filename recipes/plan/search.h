// `delink plan --search`: which layout, schedule, micro-batch, recompute,
// sharding and offload makes a stage fastest on a machine.
//
// The candidates of a stage are those of search_space.h. Each is counted once,
// by the first that is true:
//   not possible   the recipe's own checks refuse it
//   not needed     a rule below says that another candidate is at least as fast
//   cannot be faster than the tenth   StepBound is not below its time
//   does not fit   the plan's account for the heaviest rank exceeds the memory
//                  of the device or of the node's host, or the switch does
//   simulated      it fits, and SimulateStep (machine_step.h) gave its time
// Candidates are taken in the order of their least seconds, so that the search
// can stop when the next cannot be faster than the tenth.
//
// Rules. Candidates of a rule differ in nothing else; F fits.
//   1. recompute: F recomputes less. More recompute is the same work and more.
//   2. zero: F has zero = 1. Then 2 has no use: it sends the same bytes. 0 is
//      tried only for updates that need whole tensors, because with others it
//      sends the same bytes too, and every rank updates everything.
//   3. offload: F has no offload and recomputes blocks. With budgets, "auto"
//      keeps everything on the device while it fits; otherwise it may recompute
//      blocks itself.
//   4. With fewer micro-batches of the same size no more memory is needed. If a
//      candidate does not fit with as many as it has pipeline stages (2 at
//      least), it does not fit.
//   5. Planes (weights, gradients, state), one copy of each class of sharded
//      ones, and one of each class of whole gradients are the same with all
//      micro-batches, recomputes, dispatches and schedules of as many chunks.
//      Activations are the same with all ways to shard. A candidate does not
//      fit if either exceeds the memory.
// Large searches. If a stage has more than SearchOptions::exhaustive
// candidates, it may leave some of them out, and counts these as not tried: all
// of a mesh if, for each way to shard it, the first with the smallest
// micro-batch and blocks recomputed does not fit; and those beyond
// SearchOptions::plans. Candidates are then ordered by their least seconds and
// what a candidate of the same mesh took beyond its own.
//
// Candidates with offload are tried last, those with the fewest bytes too much
// first, and only `placements` of them, because each is a search of its own
// (find_homes.h).
//
// The recipe's own form is planned first. The result is deterministic: of equal
// times the one that was planned first wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "recipes/models/model_list.h"
#include "recipes/plan/form_planner.h"
#include "recipes/plan/plan.h"
#include "recipes/plan/search_space.h"
#include "recipes/run/dry_run/planned_machine.h"

namespace delink {

struct SearchOptions {
  PlanOptions plan;   // ranks 0: all devices of the machine
  std::string stage;  // name; empty: all, one after the other
  size_t best = 10;
  int64_t placements = 4;  // by offload, of a stage
  // Of a stage of more candidates than `exhaustive`, besides leanest ones, at
  // most `plans` are planned without offload.
  int64_t exhaustive = 20'000, plans = 1000;
  bool rules = true;  // false: every candidate is planned, for tests
  // Called now and then with a line about the progress; optional.
  std::function<void(const std::string&)> progress;
};

// Of those that do not fit, the one that takes least.
struct NearestForm {
  StageForm form;
  int64_t bytes = 0;
  bool at_least = false;  // `bytes` is a lower bound
};

struct StageSearch {
  std::string name;
  int64_t layouts = 0;          // meshes
  int64_t refused_layouts = 0;  // without a possible candidate
  int64_t candidates = 0;       // of all layouts
  int64_t refused = 0, not_needed = 0, slower = 0, unfit = 0, simulated = 0;
  int64_t untried = 0;  // beyond the limits
  // Of `refused`: by key, how many, and the first error.
  std::map<std::string, std::pair<int64_t, std::string>> reasons;
  std::vector<FoundForm> best;  // the fastest first
  std::optional<NearestForm> nearest;
};

struct RunSearch {
  PlannedMachine machine;
  std::string rates;  // their source
  std::vector<StageSearch> stages;
  Recipe recipe;  // with the best form of each
};

// Errors: those of plans; NotFound if there is no such stage;
// FailedPrecondition if no candidate of a stage fits, with the nearest, or none
// is possible.
absl::StatusOr<RunSearch> SearchRun(const SearchOptions& options,
                                    const ModelList& models);

std::string ToText(const RunSearch& search);
std::string ToJson(const RunSearch& search);

}  // namespace delink
