#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "framework/base/log.h"
#include "recipes/record/progress.h"
#include "recipes/record/sink.h"
#include "recipes/record/source_log.h"
#include "recipes/record/stage_text.h"

namespace delink {
namespace {

// The log warns of steps that are slower or faster than planned by this factor.
constexpr double kSurprise = 1.25;

// The assumed fraction of the matmul peak before a run is measured.
constexpr double kTypicalPeakFraction = 0.5;

std::string Parameters(const StageFacts& stage) {
  return ParametersText(stage.unique_parameters, stage.virtual_parameters,
                        stage.active_parameters);
}

void LogLines(const std::string& lines) {
  for (const auto line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    DELINK_LOG(kInfo) << std::string(line);
  }
}

void LogRanks(const StageFacts& stage) {
  if (!stage.ranks.empty()) DELINK_LOG(kInfo) << "ranks: " << stage.ranks;
  if (!stage.pipeline.empty()) LogLines(PipelineTable(stage.pipeline));
}

void LogSide(const StageFacts& stage) {
  DELINK_LOG(kInfo) << "  " << stage.name << ": " << Parameters(stage)
                    << ", loss " << absl::StrFormat("%.17g", stage.loss)
                    << " on one fixed batch";
}

class LogSink final : public Sink {
 public:
  absl::Status Record(const RunEvent& event) override {
    std::visit([this](const auto& of) { Say(of); }, event);
    return absl::OkStatus();
  }

 private:
  void Say(const RunBegan& run);
  void Say(const StepDone& step);
  void Say(const StepsTimed& timed);
  void Say(const GradientsProbed& probe);
  void Say(const StageSwitched& change);
  void Say(const RunValidated& validation);
  void Say(const CheckpointSaved& saved) {
    DELINK_LOG(kInfo) << "saved " << saved.path;
  }
  void Say(const RunEndsEarly& end) {
    DELINK_LOG(kInfo) << "the run ends early, after step " << end.at.step
                      << ": " << end.why;
  }
  void Say(const RunEnded& end);

  SourceLog sources_;
};

void LogSink::Say(const RunBegan& run) {
  const StageFacts& stage = run.stage;
  const double flops = stage.flops_per_token;
  const auto tokens = static_cast<double>(run.tokens_left);
  DELINK_LOG(kInfo) << "stage " << stage.name << ": " << Parameters(stage);
  LogRanks(stage);
  LogLines(AccountTable("memory of a rank", {{stage.name, stage.account}}));
  DELINK_LOG(kInfo) << "computing on " << run.device;
  DELINK_LOG(kInfo) << absl::StrFormat(
      "%s a token; matmul peak %s/s on %d rank(s) of %d thread(s)",
      FormatFlops(flops), FormatFlops(run.peak_flops), run.ranks, run.threads);
  DELINK_LOG(kInfo) << FormatCount(tokens) << " tokens to go: about "
                    << FormatSeconds(flops * tokens /
                                     (kTypicalPeakFraction * run.peak_flops))
                    << " at half the peak"
                    << (run.grows ? ", and longer once it has grown" : "");
  if (run.resumed) DELINK_LOG(kInfo) << "resuming after step " << run.at.step;
  sources_.Begin(run.sources, run.counts);
}

// The progress sink shows the step itself.
void LogSink::Say(const StepDone& step) {
  if (step.speed.new_peak_flops.has_value()) {
    DELINK_LOG(kInfo) << "matmul peak, measured again: "
                      << FormatFlops(*step.speed.new_peak_flops) << "/s";
  }
  sources_.OnStep(step.sources);
}

void LogSink::Say(const StepsTimed& timed) {
  const double times = timed.measured / timed.planned;
  DELINK_LOG(kInfo) << absl::StrFormat(
      "stage %s: a step takes %.4g s, %.2f times the planned %.4g s",
      timed.at.stage, timed.measured, times, timed.planned);
  const bool as_planned = times < kSurprise && times > 1 / kSurprise;
  if (as_planned || timed.lanes.empty()) return;
  using LaneTime = StepsTimed::LaneTime;
  const auto off = [](const LaneTime& of) {
    return std::abs(of.measured - of.planned);
  };
  const LaneTime& worst = *std::ranges::max_element(timed.lanes, {}, off);
  DELINK_LOG(kWarning) << absl::StrFormat(
      "the plan and the steps differ most in lane %s: %.4g s a step for %.4g s "
      "as planned; if the machine was idle, measure its rates anew (delink "
      "bench --suite machine)",
      worst.lane, worst.measured, worst.planned);
}

void LogSink::Say(const GradientsProbed& probe) {
  std::string parts;
  for (const auto& [part, rho] : probe.rho_of) {
    absl::StrAppendFormat(&parts, ", %s %.3f", part, rho);
  }
  DELINK_LOG(kInfo) << absl::StrFormat(
      "step %d  gradients of layers that share agree: rho %.3f%s; %.2f times "
      "unrelated",
      probe.at.step, probe.rho, parts, probe.times_unrelated);
}

void LogSink::Say(const StageSwitched& change) {
  const StageFacts& before = change.before;
  const StageFacts& after = change.after;
  const bool grows = after.depth > before.depth;
  DELINK_LOG(kInfo) << (grows ? absl::StrCat("growing from ", before.depth,
                                             " to ", after.depth, " blocks")
                              : "delinking")
                    << " after step " << change.at.step << ", " << change.why;
  LogSide(before);
  LogSide(after);
  if (grows) {
    DELINK_LOG(kInfo) << "  FLOP a token: "
                      << FormatCount(before.flops_per_token) << " before, "
                      << FormatCount(after.flops_per_token) << " after";
  }
  LogRanks(after);
  LogLines(AccountTable("memory of a rank", {{before.name, before.account},
                                             {after.name, after.account}}));
}

void LogSink::Say(const RunValidated& validation) {
  DELINK_LOG(kInfo) << absl::StrFormat(
      "step %d  validation loss %.4f (perplexity %.2f)", validation.at.step,
      validation.loss, std::exp(validation.loss));
  std::string text;
  for (const auto& [name, loss] : validation.loss_of) {
    absl::StrAppendFormat(&text, "%s%s %.4f", text.empty() ? "" : ", ", name,
                          loss);
  }
  if (!text.empty()) DELINK_LOG(kInfo) << "  by source: " << text;
}

void LogSink::Say(const RunEnded& end) {
  const bool counted = !std::isnan(end.at.flops);
  DELINK_LOG(kInfo) << "done: " << end.at.step << " steps, "
                    << FormatCount(static_cast<double>(end.at.tokens))
                    << " tokens, "
                    << (counted ? FormatFlops(end.at.flops) + ", " : "")
                    << FormatSeconds(end.at.seconds) << ", peak memory "
                    << FormatBytes(end.peak_memory);
  if (end.sources.size() > 1) {
    DELINK_LOG(kInfo) << "read: " << ConsumedText(end.sources);
  }
}

}  // namespace

std::unique_ptr<Sink> NewLogSink() { return std::make_unique<LogSink>(); }

}  // namespace delink
