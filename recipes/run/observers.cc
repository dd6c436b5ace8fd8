#include "recipes/run/observers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "recipes/record/environment.h"
#include "recipes/record/run_peak.h"
#include "recipes/record/stage_text.h"
#include "recipes/run/validation.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

std::string Parameters(const StageDescription& d) {
  return ParametersText(d.unique_parameters, d.virtual_parameters);
}

void LogLines(const std::string& lines) {
  for (const auto line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    DELINK_LOG(kInfo) << std::string(line);
  }
}

double FlopsPerToken(const Executor& executor) {
  return executor.flops_per_micro_batch() /
         static_cast<double>(executor.memory().batch.tokens());
}

void AddNorms(const NormsByLayer& norms, Json& row, Scalars& scalars) {
  row["norms"] = {{"layers", norms.layers},
                  {"gradient", norms.gradient},
                  {"weight", norms.weight}};
  for (size_t i = 0; i < norms.layers.size(); ++i) {
    scalars.emplace_back("norms/gradient/" + norms.layers[i],
                         norms.gradient[i]);
    scalars.emplace_back("norms/weight/" + norms.layers[i], norms.weight[i]);
  }
}

void AddSources(const Validation& validation, Json& row, Scalars& scalars) {
  std::string text;
  for (const auto& [name, loss] : validation.of) {
    row["validation_loss_of"][name] = loss;
    scalars.emplace_back("validation/loss_" + name, loss);
    absl::StrAppendFormat(&text, "%s%s %.4f", text.empty() ? "" : ", ", name,
                          loss);
  }
  if (!text.empty()) DELINK_LOG(kInfo) << "  by source: " << text;
}

// What an unmeasured run is taken to reach of the matmul peak.
constexpr double kTypicalPeakFraction = 0.5;

}  // namespace

absl::StatusOr<Observers> Observers::Create(RunSetup& run) {
  Observers o(run);
  DELINK_ASSIGN_OR_RETURN(
      RunPeak peak, RunPeak::Measure(run.world(), *run.env().device,
                                     run.recipe().run.dtype(), run.threads()));
  o.peak_.emplace(std::move(peak));
  o.progress_ = std::make_unique<Progress>(run.recipe().run.log_every);
  if (run.first()) {
    DELINK_ASSIGN_OR_RETURN(
        Metrics metrics,
        Metrics::Open(RunFolder::Metrics(run.out()), run.Position().step()));
    o.metrics_.emplace(std::move(metrics));
    DELINK_ASSIGN_OR_RETURN(
        EventFile events, EventFile::Create(run.out(), run.Position().step()));
    o.events_.emplace(std::move(events));
    o.source_log_.emplace(
        run.sources(), run.Position().blend(),
        run.resumed() ? run.resumed()->Counts() : std::vector<SourceCount>());
  }
  return o;
}

double Observers::Seconds() const {
  return run_->seconds() + std::chrono::duration<double>(
                               std::chrono::steady_clock::now() - start_)
                               .count();
}

absl::StatusOr<StageDescription> Observers::Describe(StageRun& stage) {
  StageDescription d{.unique_parameters = stage.store().unique_parameters(),
                     .virtual_parameters = stage.store().virtual_parameters(),
                     .account = stage.account(),
                     .flops_per_token = FlopsPerToken(stage.executor())};
  DELINK_ASSIGN_OR_RETURN(const Validation validation,
                          Validate(run_->sources(), run_->recipe().data.batch,
                                   stage, run_->world().comm()));
  d.loss = validation.loss;
  return d;
}

absl::Status Observers::OnStart(StageRun& stage, const RunPosition& at) {
  if (!run_->first()) return absl::OkStatus();
  const Recipe& recipe = run_->recipe();
  const StageDescription d{
      .unique_parameters = stage.store().unique_parameters(),
      .virtual_parameters = stage.store().virtual_parameters()};
  const double flops = FlopsPerToken(stage.executor());
  const auto tokens_left = static_cast<double>(
      std::max<int64_t>(0, recipe.PlannedTokens() - at.tokens()));
  DELINK_LOG(kInfo) << "stage " << stage.stage().name << ": " << Parameters(d);
  LogLines(AccountTable("memory of a rank",
                        {{stage.stage().name, stage.account()}}));
  DELINK_LOG(kInfo) << "computing on " << run_->env().device->name();
  DELINK_LOG(kInfo) << absl::StrFormat(
      "%sFLOP a token; matmul peak %sFLOP/s on %d rank(s) of %d thread(s)",
      FormatCount(flops) + (flops < 1000 ? " " : ""),
      FormatCount(peak_->flops()), run_->world().size(), run_->threads());
  DELINK_LOG(kInfo) << FormatCount(tokens_left) << " tokens to go: about "
                    << FormatSeconds(flops * tokens_left /
                                     (kTypicalPeakFraction * peak_->flops()))
                    << " at half the peak";
  if (run_->resumed()) {
    DELINK_LOG(kInfo) << "resuming after step " << at.step();
  }
  source_log_->Begin();
  DELINK_RETURN_IF_ERROR(events_->WriteText(
      at.step(), "recipe", absl::StrCat("```\n", ToToml(recipe), "```\n")));
  last_seconds_ = Seconds();
  return metrics_->Write(
      Json{{"event", "start"},
           {"step", at.step()},
           {"tokens", at.tokens()},
           {"stage", stage.stage().name},
           {"time", UtcNow()},
           {"command", CommandWords()},
           {"version", DelinkVersion()},
           {"commit", DelinkCommit()},
           {"features", DelinkFeatures()},
           {"device", run_->env().device->name()},
           {"processor", ProcessorName()},
           {"cores", std::thread::hardware_concurrency()},
           {"ranks", run_->world().size()},
           {"threads", run_->threads()},
           {"peak_flops", peak_->flops()},
           {"flops_per_token", flops},
           {"unique_parameters", d.unique_parameters},
           {"virtual_parameters", d.virtual_parameters},
           {"bytes", ToJson(stage.account())},
           {"sources", SourcesJson(run_->sources(), at.blend())},
           {"seconds", last_seconds_}});
}

absl::StatusOr<std::optional<NormsByLayer>> Observers::MaybeMeasureNorms(
    StageRun& stage, const RunPosition& at) {
  const int64_t every = run_->recipe().run.norms_every;
  if (every == 0 || at.step() % every != 0) return std::nullopt;
  run_->watch().Begin(Lane::kCompute, at.step(), "measuring norms");
  return MeasureNorms(stage);
}

absl::Status Observers::OnStep(StageRun& stage, const RunPosition& at,
                               double lr, const StepResult& result) {
  const double now = Seconds();
  DELINK_ASSIGN_OR_RETURN(const std::optional<NormsByLayer> norms,
                          MaybeMeasureNorms(stage, at));
  if (!run_->first()) return absl::OkStatus();
  untold_ = DoneStep{.step = at.step(),
                     .tokens = at.tokens(),
                     .stage = stage.stage().name,
                     .stage_index = at.stage(),
                     .flops_per_token = FlopsPerToken(stage.executor()),
                     .lr = lr,
                     .result = result,
                     .now = now,
                     .took = now - last_seconds_,
                     .step_tokens = run_->recipe().StepTokens(at.stage()),
                     .blend = at.blend(),
                     .norms = norms};
  // What is measured besides is not the next step's time either.
  last_seconds_ = norms.has_value() ? Seconds() : now;
  // On the CPU the next step takes this thread: now is the time.
  return IsCuda(run_->env().device->kind()) ? absl::OkStatus() : Flush();
}

absl::Status Observers::Flush() {
  if (!untold_.has_value()) return absl::OkStatus();
  const DoneStep done = *std::exchange(untold_, std::nullopt);
  // Long enough to be calm, short enough to follow a change of stage.
  constexpr double kKeep = 0.9;
  smooth_step_seconds_ =
      smooth_step_seconds_ == 0
          ? done.took
          : kKeep * smooth_step_seconds_ + (1 - kKeep) * done.took;
  const auto tokens = static_cast<double>(done.step_tokens);
  const StepResult& result = done.result;
  Json row = {{"step", done.step},
              {"tokens", done.tokens},
              {"stage", done.stage},
              {"loss", result.loss},
              {"lr", done.lr},
              {"grad_norm", result.grad_norm},
              {"seconds", done.now},
              {"tokens_per_s", tokens / done.took},
              {"peak_memory", PeakResidentBytes()}};
  Scalars scalars = {
      {"train/loss", result.loss},
      {"train/learning_rate", done.lr},
      {"train/gradient_norm", result.grad_norm},
      {"train/tokens", static_cast<double>(done.tokens)},
      {"train/stage", static_cast<double>(done.stage_index)},
      {"speed/tokens_per_second", tokens / done.took},
      {"speed/percent_of_peak",
       100 * tokens / done.took * done.flops_per_token / peak_->flops()},
      {"memory/resident_bytes", static_cast<double>(ResidentBytes())},
      {"memory/peak_bytes", static_cast<double>(PeakResidentBytes())}};
  if (result.skipped) row["skipped"] = true;
  const double rate = tokens / smooth_step_seconds_;
  const double measuring = Seconds();
  if (peak_->Reached(rate * done.flops_per_token)) {
    row["peak_flops"] = peak_->flops();
    DELINK_LOG(kInfo) << "matmul peak, measured again: "
                      << FormatCount(peak_->flops()) << "FLOP/s";
  }
  last_seconds_ += Seconds() - measuring;
  if (done.norms.has_value()) AddNorms(*done.norms, row, scalars);
  if (run_->sources().size() > 1) {
    row["sources"] = ConsumedJson(run_->sources(), done.blend);
  }
  source_log_->OnStep(done.blend);
  DELINK_RETURN_IF_ERROR(metrics_->Write(row));
  DELINK_RETURN_IF_ERROR(events_->Write(done.step, scalars));
  const int64_t steps = run_->recipe().schedule.steps;
  progress_->Show(
      {.step = done.step,
       .steps = steps,
       .loss = result.loss,
       .tokens_per_s = rate,
       .peak_fraction = rate * done.flops_per_token / peak_->flops(),
       .lr = done.lr,
       .grad_norm = result.grad_norm,
       .memory = ResidentBytes(),
       .seconds_left =
           smooth_step_seconds_ * static_cast<double>(steps - done.step),
       .stage = done.stage});
  return absl::OkStatus();
}

absl::Status Observers::OnProbe(StageRun& stage, const RunPosition& at,
                                const std::vector<SlabAgreement>& slabs) {
  if (!run_->first()) return absl::OkStatus();
  DELINK_RETURN_IF_ERROR(Flush());
  // By part: what people compare is attention with the MLP.
  std::map<std::string, std::vector<SlabAgreement>> parts;
  for (const SlabAgreement& slab : slabs) {
    parts[stage.store().slabs()[static_cast<size_t>(slab.slab)].part].push_back(
        slab);
  }
  Json by_part;
  std::string text;
  for (const auto& [part, some] : parts) {
    by_part[part] = Rho(some);
    absl::StrAppendFormat(&text, ", %s %.3f", part, Rho(some));
  }
  const Agreement all = Sum(slabs);
  const double agreement = all.apart > 0 ? all.together / all.apart : 0;
  DELINK_LOG(kInfo) << absl::StrFormat(
      "step %d  gradients of layers that share agree: rho %.3f%s; %.2f times "
      "unrelated",
      at.step(), Rho(slabs), text, agreement);
  Scalars scalars = {{"agreement/rho", Rho(slabs)}};
  for (const auto& [part, some] : parts) {
    scalars.emplace_back("agreement/rho_" + part, Rho(some));
  }
  DELINK_RETURN_IF_ERROR(events_->Write(at.step(), scalars));
  last_seconds_ = Seconds();
  return metrics_->Write(Json{{"event", "agreement"},
                              {"step", at.step()},
                              {"tokens", at.tokens()},
                              {"stage", stage.stage().name},
                              {"agreement", agreement},
                              {"rho", Rho(slabs)},
                              {"rho_of", by_part},
                              {"seconds", last_seconds_}});
}

absl::Status Observers::OnSwitch(const SwitchEvent& event) {
  if (!run_->first()) return absl::OkStatus();
  DELINK_RETURN_IF_ERROR(Flush());
  const auto tell = [](const std::string& name, const StageDescription& d) {
    DELINK_LOG(kInfo) << "  " << name << ": " << Parameters(d) << ", loss "
                      << absl::StrFormat("%.17g", d.loss)
                      << " on one fixed batch";
  };
  DELINK_LOG(kInfo) << "delinking after step " << event.step << ", "
                    << event.why;
  tell(event.from, event.before);
  tell(event.to, event.after);
  LogLines(AccountTable("memory of a rank", {{event.from, event.before.account},
                                             {event.to, event.after.account}}));
  DELINK_RETURN_IF_ERROR(events_->WriteText(
      event.step, "switch",
      absl::StrCat("from ", event.from, " to ", event.to, ", ", event.why)));
  last_seconds_ = Seconds();
  smooth_step_seconds_ = 0;
  return metrics_->Write(
      Json{{"event", "delink"},
           {"step", event.step},
           {"from", event.from},
           {"to", event.to},
           {"why", event.why},
           {"loss_before", event.before.loss},
           {"loss_after", event.after.loss},
           {"unique_parameters", event.after.unique_parameters},
           {"virtual_parameters", event.after.virtual_parameters},
           {"unique_parameters_before", event.before.unique_parameters},
           {"flops_per_token", event.after.flops_per_token},
           {"bytes_before", ToJson(event.before.account)},
           {"bytes_after", ToJson(event.after.account)},
           {"seconds", last_seconds_}});
}

absl::StatusOr<std::optional<double>> Observers::MaybeValidate(
    StageRun& stage, const RunPosition& at, bool force) {
  const Recipe& recipe = run_->recipe();
  const int64_t every = recipe.run.validate_every;
  const bool due = at.step() == recipe.schedule.steps ||
                   (every > 0 && at.step() % every == 0) || at.DataOver();
  if (!due && !force) return std::nullopt;
  DELINK_RETURN_IF_ERROR(Flush());
  DELINK_ASSIGN_OR_RETURN(
      const Validation validation,
      Validate(run_->sources(),
               recipe.data.validation_batches * recipe.data.batch, stage,
               run_->world().comm()));
  const double loss = validation.loss;
  const std::optional<double> told =
      due ? std::optional<double>(loss) : std::nullopt;
  if (!run_->first()) return told;
  DELINK_LOG(kInfo) << absl::StrFormat(
      "step %d  validation loss %.4f (perplexity %.2f)", at.step(), loss,
      std::exp(loss));
  last_seconds_ = Seconds();
  Json row = {{"step", at.step()},
              {"tokens", at.tokens()},
              {"stage", stage.stage().name},
              {"validation_loss", loss},
              {"seconds", last_seconds_}};
  Scalars scalars = {{"validation/loss", loss}};
  AddSources(validation, row, scalars);
  DELINK_RETURN_IF_ERROR(events_->Write(at.step(), scalars));
  DELINK_RETURN_IF_ERROR(metrics_->Write(row));
  return told;
}

absl::Status Observers::MaybeSave(StageRun& stage, const RunPosition& at,
                                  bool force) {
  const RunConfig& config = run_->recipe().run;
  const int64_t every = config.checkpoint_every;
  if (!force && (every == 0 || at.step() % every != 0)) return absl::OkStatus();
  DELINK_RETURN_IF_ERROR(Flush());
  run_->watch().Begin(Lane::kCompute, at.step(), "saving a checkpoint");
  DELINK_RETURN_IF_ERROR(stage.executor().Drain());
  DELINK_ASSIGN_OR_RETURN(
      const std::string path,
      WriteCheckpoint(run_->world().comm(), RunFolder::Checkpoints(run_->out()),
                      run_->Header(at, Seconds()), stage.store(), run_->Files(),
                      config.keep, config.keep_best ? at.best().step() : -1));
  if (run_->first()) DELINK_LOG(kInfo) << "saved " << path;
  last_seconds_ = Seconds();
  return absl::OkStatus();
}

absl::Status Observers::OnEarlyEnd(const RunPosition& at) {
  if (!run_->first()) return absl::OkStatus();
  DELINK_RETURN_IF_ERROR(Flush());
  DELINK_LOG(kInfo) << "the run ends early, after step " << at.step() << ": "
                    << at.EndsEarly();
  return metrics_->Write(Json{{"event", "early_end"},
                              {"step", at.step()},
                              {"tokens", at.tokens()},
                              {"why", at.EndsEarly()},
                              {"best_validation_loss", at.best().loss()},
                              {"best_step", at.best().step()},
                              {"seconds", Seconds()}});
}

absl::Status Observers::OnEnd(StageRun& stage, const RunPosition& at) {
  DELINK_RETURN_IF_ERROR(stage.executor().Drain());
  if (!run_->first()) return absl::OkStatus();
  DELINK_RETURN_IF_ERROR(Flush());
  DELINK_LOG(kInfo) << "done: " << at.step() << " steps, "
                    << FormatCount(static_cast<double>(at.tokens()))
                    << " tokens, " << FormatSeconds(Seconds())
                    << ", peak memory " << FormatBytes(PeakResidentBytes());
  if (run_->sources().size() > 1) {
    DELINK_LOG(kInfo) << "read: " << source_log_->Consumed();
  }
  return absl::OkStatus();
}

}  // namespace delink
