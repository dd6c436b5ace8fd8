#include "recipes/run/observers/recorder.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>

#include "framework/base/status_macros.h"
#include "recipes/record/progress.h"
#include "recipes/record/run_folder.h"
#include "recipes/run/observers/norms_by_layer.h"
#include "recipes/run/observers/routing_by_layer.h"
#include "recipes/run/stage/pipeline_rows.h"
#include "recipes/schema/recipe_io.h"

namespace delink {

namespace {

// The account of the rank that has most, the first of equals; the same on every
// rank. Collective.
absl::StatusOr<MemoryAccount> LargestAccount(MemoryAccount account,
                                             Communicator& world) {
  const int64_t ranks = world.size();
  DELINK_ASSIGN_OR_RETURN(
      const int64_t largest,
      AllReduceScalar(world, account.total() * ranks + ranks - 1 - world.rank(),
                      ReduceOp::kMax));
  const auto root = static_cast<int>(ranks - 1 - largest % ranks);
  static_assert(std::is_trivially_copyable_v<MemoryAccount> &&
                sizeof(account) % sizeof(int64_t) == 0);
  DELINK_RETURN_IF_ERROR(world
                             .Broadcast(&account,
                                        sizeof(account) / sizeof(int64_t),
                                        DType::kI64, root)
                             ->Wait());
  return account;
}

}  // namespace

absl::StatusOr<Recorder> Recorder::Create(const RunSetup& run) {
  const Recipe& recipe = run.recipe();
  const Meter::Clock::time_point start = Meter::Clock::now();
  DELINK_ASSIGN_OR_RETURN(
      RunPeak peak, RunPeak::Measure(run.world(), *run.env().device,
                                     recipe.run.precision, run.threads()));
  Recorder recorder(run,
                    Meter(std::move(peak), run.beginning().seconds(), start));
  std::vector<std::unique_ptr<Sink>>& sinks = recorder.sinks_;
  if (run.first()) {
    const int64_t step = run.beginning().Position().step();
    sinks.push_back(NewLogSink());
    DELINK_ASSIGN_OR_RETURN(
        sinks.emplace_back(),
        OpenMetricsSink(RunFolder::Metrics(run.out()), step));
    DELINK_ASSIGN_OR_RETURN(sinks.emplace_back(),
                            OpenScalarsSink(run.out(), step));
  }
  sinks.push_back(NewProgressSink(recipe.run.log_every));
  return recorder;
}

RunMoment Recorder::Now(const RunPosition& at) const {
  return {.step = at.step(),
          .tokens = at.tokens(),
          .flops = flops_,
          .stage = run_->recipe().stages[at.stage()].name,
          .seconds = Seconds()};
}

absl::Status Recorder::Begin(StageRun& stage, const RunPosition& at) {
  const Recipe& recipe = run_->recipe();
  DELINK_ASSIGN_OR_RETURN(StageFacts facts,
                          FactsOf(stage, run_->world().comm()));
  if (run_->first()) check_.Begin(at.stage(), at.step());
  return Tell(RunBegan{
      .at = Now(at),
      .resumed = run_->beginning().resumed().has_value(),
      .recipe = ToToml(recipe),
      .stage = std::move(facts),
      .device = run_->env().device->name(),
      .ranks = run_->world().size(),
      .threads = run_->threads(),
      .peak_flops = meter_.peak_flops(),
      .tokens_left = std::max<int64_t>(0, recipe.PlannedTokens() - at.tokens()),
      .grows = recipe.Depth(recipe.stages.size() - 1) > stage.depth(),
      .sources = run_->sources().StatesAt(at.blend()),
      .counts = run_->beginning().counts()});
}

absl::StatusOr<std::optional<PipelineWait>> Recorder::MaybeAddWaits(
    StageRun& stage, int64_t step, const WaitedSeconds& waited,
    double seconds) {
  if (stage.store().layout().mesh().pipeline == 1) return std::nullopt;
  Communicator& world = run_->world().comm();
  double sums[] = {waited.stages, waited.all};
  run_->watch().Wait(step, "the waits of all ranks");
  DELINK_RETURN_IF_ERROR(
      world.AllReduce(sums, std::size(sums), DType::kF64, ReduceOp::kSum)
          ->Wait());
  run_->watch().Wait(step, "");
  // If a rank was late, others waited longer than its own step takes.
  return PipelineWait{
      .bubble = std::min(sums[0] / (world.size() * seconds), 1.0),
      .seconds = sums[1] / world.size()};
}

absl::StatusOr<std::optional<NormsByLayer>> Recorder::MaybeMeasureNorms(
    StageRun& stage, const RunPosition& at) {
  const int64_t every = run_->recipe().run.norms_every;
  if (every == 0 || at.step() % every != 0) return std::nullopt;
  run_->watch().Begin(Lane::kCompute, at.step(), "measuring norms");
  return MeasureNorms(stage);
}

absl::Status Recorder::Step(StageRun& stage, const RunPosition& at, double lr,
                            const StepResult& result) {
  const Recipe& recipe = run_->recipe();
  const int64_t tokens = recipe.StepTokens(at.stage());
  flops_ += static_cast<double>(tokens) * stage.flops_per_token();
  const RunMoment now = Now(at);
  const double took = meter_.Lap();
  DELINK_ASSIGN_OR_RETURN(const std::optional<PipelineWait> wait,
                          MaybeAddWaits(stage, at.step(), result.waited, took));
  DELINK_ASSIGN_OR_RETURN(std::optional<NormsByLayer> norms,
                          MaybeMeasureNorms(stage, at));
  // The measurement counts for no step.
  if (norms.has_value()) meter_.Lap();
  if (!run_->first()) return absl::OkStatus();
  untold_ =
      StepDone{.at = now,
               .stage_index = at.stage(),
               .depth = stage.depth(),
               .steps = recipe.schedule.steps,
               .loss = result.loss,
               .lr = lr,
               .grad_norm = result.grad_norm,
               .skipped = result.skipped,
               .speed = meter_.Step(took, tokens, stage.flops_per_token()),
               .wait = wait,
               .norms = std::move(norms),
               .routing = at.step() % recipe.run.log_every == 0
                              ? RoutingOf(stage, result)
                              : std::nullopt,
               .sources = run_->sources().StatesAt(at.blend())};
  DELINK_ASSIGN_OR_RETURN(timed_, check_.Step(stage, now, took));
  // On the CPU the next step occupies this thread, so record now.
  return IsCuda(run_->env().device->kind()) ? absl::OkStatus() : Flush();
}

absl::Status Recorder::Flush() {
  if (!untold_.has_value()) return absl::OkStatus();
  StepDone step = *std::exchange(untold_, std::nullopt);
  step.memory = ResidentBytes();
  step.peak_memory = PeakResidentBytes();
  DELINK_RETURN_IF_ERROR(TellSinks(step));
  if (!timed_.has_value()) return absl::OkStatus();
  return TellSinks(*std::exchange(timed_, std::nullopt));
}

absl::Status Recorder::Tell(const RunEvent& event) {
  if (!run_->first()) return absl::OkStatus();
  DELINK_RETURN_IF_ERROR(Flush());
  DELINK_RETURN_IF_ERROR(TellSinks(event));
  if (const auto* const to = std::get_if<StageSwitched>(&event)) {
    meter_.ForgetSteps();
    check_.Begin(to->stage_index, to->at.step);
  }
  meter_.Lap();
  return absl::OkStatus();
}

absl::Status Recorder::TellSinks(const RunEvent& event) {
  for (const std::unique_ptr<Sink>& sink : sinks_) {
    DELINK_RETURN_IF_ERROR(sink->Record(event));
  }
  return absl::OkStatus();
}

absl::StatusOr<StageFacts> FactsOf(StageRun& stage, Communicator& world) {
  DELINK_ASSIGN_OR_RETURN(const MemoryAccount account,
                          LargestAccount(stage.account(), world));
  const Layout& layout = stage.store().layout();
  StageFacts facts{.name = stage.stage().name,
                   .depth = stage.depth(),
                   .unique_parameters = stage.store().unique_parameters(),
                   .virtual_parameters = stage.store().virtual_parameters(),
                   .active_parameters = stage.store().active_parameters(),
                   .account = account,
                   .flops_per_token = stage.flops_per_token()};
  if (layout.ranks() > 1) facts.ranks = stage.RanksText();
  if (layout.mesh().pipeline > 1) {
    facts.pipeline = PipelineRows(layout, stage.model());
  }
  return facts;
}

}  // namespace delink
