#include "recipes/plan/form_planner.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "framework/base/status_macros.h"
#include "layers/kernels/cpu/threads.h"
#include "recipes/run/dry_run/find_homes.h"
#include "recipes/run/dry_run/pipeline_plan.h"
#include "recipes/run/dry_run/switch_memory.h"
#include "recipes/run/setup/prepare.h"

namespace delink {
namespace {

// As many micro-batches as a pipeline needs to be full.
int64_t FewOf(const StageForm& form) {
  return std::max<int64_t>(2, form.parallel.pipeline);
}

// Bytes of pools, if each has one slot.
int64_t OneOfEach(const std::vector<StepMemory::SlotPool>& pools) {
  int64_t bytes = 0;
  for (const StepMemory::SlotPool& pool : pools) bytes += pool.bytes;
  return bytes;
}

// Everything host-resident that can be, and activations recomputed.
AutoPlace AllOnHost() {
  return {.state = 1,
          .gradients = 1,
          .weights = 1,
          .activations = 1,
          .recompute = 1,
          .ends = 1,
          .ahead = 0};
}

}  // namespace

FormPlanner::FormPlanner(const RunEnv& env, size_t index,
                         const PlannedMachine& machine, const KnownRates& rates)
    : env_(env), index_(index), machine_(&machine), rates_(&rates) {
  env_.homes.resize(index + 1);
}

absl::StatusOr<FormPlanner> FormPlanner::Create(const RunEnv& env, size_t index,
                                                const PlannedMachine& machine,
                                                const KnownRates& rates) {
  FormPlanner planner(env, index, machine, rates);
  if (index > 0) {
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> stage,
                            ImaginedStage::Create(env, index - 1, 0));
    DELINK_ASSIGN_OR_RETURN(planner.before_,
                            PlanesByRank(stage->stage().store()));
  }
  return planner;
}

FormPlanner::Key FormPlanner::PlanesKey(const StageForm& form) {
  const ParallelConfig& of = form.parallel;
  return {of.tensor, of.context, of.data, of.pipeline,
          of.expert, of.chunks,  of.zero, of.shard};
}

FormPlanner::Key FormPlanner::ActivationsKey(const StageForm& form) {
  const ParallelConfig& of = form.parallel;
  return {of.tensor,
          of.context,
          of.data,
          of.pipeline,
          of.expert,
          of.chunks,
          static_cast<int64_t>(*of.schedule),
          static_cast<int64_t>(*of.dispatch),
          static_cast<int64_t>(*of.sequence),
          form.micro_batch,
          static_cast<int64_t>(form.recompute)};
}

absl::StatusOr<FormPlanner::Few> FormPlanner::WithFew(const StageForm& form,
                                                      bool offloaded) {
  DELINK_ASSIGN_OR_RETURN(Recipe recipe, FitForm(env_, index_, form));
  Stage& stage = recipe.stages[index_];
  const int64_t micro_batches =
      std::min(FewOf(form), recipe.Accumulation(index_));
  stage.batch = micro_batches * form.micro_batch * form.parallel.data;
  RunEnv env = env_;
  env.recipe = &recipe;
  if (offloaded) {
    stage.offload = {.device = std::numeric_limits<int64_t>::max(),
                     .host = std::numeric_limits<int64_t>::max()};
    env.homes[index_] = AllOnHost();
    env.more_room = 2;
  }
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> first,
                          ImaginedStage::Create(env, index_, 0));
  Few few;
  DELINK_RETURN_IF_ERROR(
      ForEachHeaviest(*first, [&](const ImaginedStage& of, const auto&) {
        const MemoryAccount account = of.stage().account();
        const StepMemory& memory = of.stage().executor().memory();
        Floors& floors = few.floors;
        floors.planes =
            std::max(floors.planes, account.planes() + account.overhead +
                                        OneOfEach(memory.wholes) +
                                        OneOfEach(memory.fetched));
        floors.activations = std::max(floors.activations,
                                      account.activations() + account.overhead);
        few.bytes = std::max(few.bytes, account.total());
        return absl::OkStatus();
      }));
  return few;
}

absl::StatusOr<bool> FormPlanner::SwitchFits(ImaginedStage& stage,
                                             FoundForm& found) const {
  if (index_ == 0) return true;
  DELINK_ASSIGN_OR_RETURN(const std::vector<SwitchMemory> by_rank,
                          SwitchByRank(stage, before_));
  for (const SwitchMemory& of : by_rank) {
    found.switch_bytes = std::max(found.switch_bytes, of.most().device);
  }
  return found.switch_bytes <= machine_->rank_memory();
}

// `env` has the place of the stage.
absl::StatusOr<PlannedForm> FormPlanner::Plan(const RunEnv& env,
                                              FoundForm found) {
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe,
                          FitForm(env_, index_, found.form));
  RunEnv own = env;
  own.recipe = &recipe;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> first,
                          ImaginedStage::Create(own, index_, 0));
  DELINK_ASSIGN_OR_RETURN(const PipelinePlan plan,
                          PlanPipeline(*first, rates_));
  for (const PipelineStagePlan& of : plan.stages) {
    found.device = std::max(found.device, of.account.total());
  }
  PlannedForm planned{.bytes = found.device};
  if (found.device <= machine_->rank_memory() &&
      found.host <= machine_->machine.host_bytes) {
    DELINK_ASSIGN_OR_RETURN(planned.fits, SwitchFits(*first, found));
    planned.bytes = std::max(planned.bytes, found.switch_bytes);
  }
  if (planned.fits) {
    DELINK_ASSIGN_OR_RETURN(
        found.step,
        SimulateStep({.plan = plan,
                      .layout = first->stage().store().layout(),
                      .machine = *machine_,
                      .nodes = env_.nodes,
                      .drains = !HasLaneThread(recipe, cpu::MaxThreads())},
                     /*switches=*/index_ > 0));
  }
  planned.found = std::move(found);
  return planned;
}

absl::StatusOr<PlannedForm> FormPlanner::FewResident(const StageForm& form,
                                                     int64_t micro_batches) {
  PlannedForm planned{.at_least = true,
                      .found = {.form = form, .micro_batches = micro_batches}};
  int64_t& planes = floors_[PlanesKey(form)];
  int64_t& activations = floors_[ActivationsKey(form)];
  planned.bytes = std::max(planes, activations);
  if (planned.bytes <= machine_->rank_memory()) {
    DELINK_ASSIGN_OR_RETURN(const Few few, WithFew(form, /*offloaded=*/false));
    planes = few.floors.planes;
    activations = few.floors.activations;
    planned.bytes = few.bytes;
  }
  planned.fits = planned.bytes <= machine_->rank_memory();
  return planned;
}

absl::StatusOr<PlannedForm> FormPlanner::Resident(const StageForm& form,
                                                  int64_t micro_batches,
                                                  bool rules) {
  if (rules) {
    DELINK_ASSIGN_OR_RETURN(PlannedForm few, FewResident(form, micro_batches));
    if (!few.fits) return few;
  }
  return Plan(env_, {.form = form, .micro_batches = micro_batches});
}

absl::StatusOr<PlannedForm> FormPlanner::Offloaded(const StageForm& form,
                                                   int64_t micro_batches) {
  FoundForm found{.form = form, .micro_batches = micro_batches};
  DELINK_ASSIGN_OR_RETURN(const Few few, WithFew(form, /*offloaded=*/true));
  const int64_t bytes = few.bytes;
  found.form.offload = {.device = machine_->rank_memory(),
                        .host = machine_->machine.host_bytes};
  const PlannedForm unfit{.bytes = bytes, .at_least = true, .found = found};
  if (bytes > machine_->rank_memory()) return unfit;
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe,
                          FitForm(env_, index_, found.form));
  RunEnv env = env_;
  env.recipe = &recipe;
  const absl::StatusOr<FoundPlace> placed = FindHomes(env, 0, index_, *rates_);
  if (absl::IsInvalidArgument(placed.status())) return unfit;
  DELINK_RETURN_IF_ERROR(placed.status());
  env.homes[index_] = found.place = placed->place;
  found.host = placed->cost.host;
  return Plan(env, std::move(found));
}

}  // namespace delink
