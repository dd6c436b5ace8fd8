#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "recipes/record/event_file.h"
#include "recipes/record/sink.h"

namespace delink {
namespace {

void AddRouting(const RoutingByLayer& routing, Scalars& scalars) {
  for (size_t i = 0; i < routing.layers.size(); ++i) {
    const std::string& layer = routing.layers[i];
    scalars.emplace_back("routing/largest_load/" + layer,
                         routing.load[i].back());
    scalars.emplace_back("routing/least_load/" + layer,
                         routing.load[i].front());
    scalars.emplace_back("routing/max_violation/" + layer,
                         routing.max_violation[i]);
    scalars.emplace_back("routing/dropped/" + layer, routing.dropped[i]);
    scalars.emplace_back("routing/entropy/" + layer, routing.entropy[i]);
    scalars.emplace_back("routing/z/" + layer, routing.z[i]);
    scalars.emplace_back("routing/aux_loss/" + layer, routing.aux_loss[i]);
  }
}

Scalars ScalarsOf(const StepDone& step) {
  Scalars scalars = {
      {"train/loss", step.loss},
      {"train/learning_rate", step.lr},
      {"train/gradient_norm", step.grad_norm},
      {"train/tokens", static_cast<double>(step.at.tokens)},
      {"train/flops", step.at.flops},
      {"train/stage", static_cast<double>(step.stage_index)},
      {"train/depth", static_cast<double>(step.depth)},
      {"speed/tokens_per_second", step.speed.tokens_per_s},
      {"speed/percent_of_peak", 100 * step.speed.peak_fraction},
      {"memory/resident_bytes", static_cast<double>(step.memory)},
      {"memory/peak_bytes", static_cast<double>(step.peak_memory)}};
  if (step.routing.has_value()) AddRouting(*step.routing, scalars);
  if (!step.norms.has_value()) return scalars;
  for (size_t i = 0; i < step.norms->layers.size(); ++i) {
    const std::string& layer = step.norms->layers[i];
    scalars.emplace_back("norms/gradient/" + layer, step.norms->gradient[i]);
    scalars.emplace_back("norms/weight/" + layer, step.norms->weight[i]);
  }
  return scalars;
}

class ScalarsSink final : public Sink {
 public:
  explicit ScalarsSink(EventFile file) : file_(std::move(file)) {}

  absl::Status Record(const RunEvent& event) override {
    return std::visit([this](const auto& of) { return Write(of); }, event);
  }

 private:
  absl::Status Write(const RunBegan& run) {
    return file_.WriteText(run.at.step, "recipe",
                           absl::StrCat("```\n", run.recipe, "```\n"));
  }
  absl::Status Write(const StepDone& step) {
    return file_.Write(step.at.step, ScalarsOf(step));
  }
  absl::Status Write(const GradientsProbed& probe) {
    Scalars scalars = {{"agreement/rho", probe.rho}};
    for (const auto& [part, rho] : probe.rho_of) {
      scalars.emplace_back("agreement/rho_" + part, rho);
    }
    return file_.Write(probe.at.step, scalars);
  }
  absl::Status Write(const StageSwitched& change) {
    return file_.WriteText(change.at.step, "switch",
                           absl::StrCat("from ", change.before.name, " to ",
                                        change.after.name, ", ", change.why));
  }
  absl::Status Write(const RunValidated& validation) {
    Scalars scalars = {{"validation/loss", validation.loss}};
    for (const auto& [name, loss] : validation.loss_of) {
      scalars.emplace_back("validation/loss_" + name, loss);
    }
    return file_.Write(validation.at.step, scalars);
  }
  // Other events have nothing to draw.
  template <typename Other>
  absl::Status Write(const Other&) {
    return absl::OkStatus();
  }

  EventFile file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Sink>> OpenScalarsSink(const std::string& folder,
                                                      int64_t step) {
  DELINK_ASSIGN_OR_RETURN(EventFile file, EventFile::Create(folder, step));
  return std::make_unique<ScalarsSink>(std::move(file));
}

}  // namespace delink
