#include "recipes/run/observers/meter.h"

namespace delink {

double Meter::Seconds() const {
  return before_ + std::chrono::duration<double>(Clock::now() - start_).count();
}

double Meter::Lap() {
  const double now = Seconds();
  return now - std::exchange(lap_, now);
}

Speed Meter::Step(double seconds, int64_t tokens, double flops_per_token) {
  // Long enough to be calm, short enough to follow a change of stage.
  constexpr double kKeep = 0.9;
  mean_seconds_ = mean_seconds_ == 0
                      ? seconds
                      : kKeep * mean_seconds_ + (1 - kKeep) * seconds;
  const auto count = static_cast<double>(tokens);
  Speed speed{
      .tokens_per_s = count / seconds,
      .peak_fraction = count / seconds * flops_per_token / peak_.flops(),
      .mean_seconds = mean_seconds_,
      .mean_tokens_per_s = count / mean_seconds_};
  const double flops = speed.mean_tokens_per_s * flops_per_token;
  const double measuring = Seconds();
  if (peak_.Reached(flops)) speed.new_peak_flops = peak_.flops();
  lap_ += Seconds() - measuring;
  speed.mean_peak_fraction = flops / peak_.flops();
  return speed;
}

}  // namespace delink
