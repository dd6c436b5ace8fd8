#include "recipes/run/position/best_validation.h"

#include "absl/strings/str_format.h"

namespace delink {

BestValidation::BestValidation(const std::vector<double>& saved) {
  if (saved.size() != 4) return;
  loss_ = saved[0];
  step_ = static_cast<int64_t>(saved[1]);
  counted_ = saved[2];
  since_ = static_cast<int64_t>(saved[3]);
}

bool BestValidation::Add(int64_t step, double loss, bool counts, double delta) {
  if (counts) {
    ++since_;
    if (loss < counted_ - delta) {
      counted_ = loss;
      since_ = 0;
    }
  }
  if (!(loss < loss_)) return false;
  loss_ = loss;
  step_ = step;
  return true;
}

void BestValidation::CountAnew() {
  counted_ = kNone;
  since_ = 0;
}

std::string BestValidation::Over(const StopAfter& stop) const {
  if (stop.validations == 0 || since_ < stop.validations) return "";
  return absl::StrFormat(
      "%d validations in a row did not improve on %.4f nats by more than %g "
      "(run.stop_after)",
      since_, counted_, stop.delta);
}

std::vector<double> BestValidation::saved() const {
  if (step_ < 0 && since_ == 0) return {};
  return {loss_, static_cast<double>(step_), counted_,
          static_cast<double>(since_)};
}

}  // namespace delink
