// Decides when a stage's sharing has done its work: from the losses of its
// steps, and from how far the gradients of layers that share agree.
//
// Pure: every rank gives it the same numbers and gets the same answer, and a
// policy made from another's history continues as that one would. A loss or a
// probe that is not finite is left out, like the step it belongs to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace delink {

struct SwitchPolicyConfig {
  // Nats a window: the switch is due when the least-squares line through a full
  // window of losses falls by less. 0: not used.
  double plateau = 0;
  // |sum g_l|^2 / sum |g_l|^2 is 1 for unrelated layers and n for n layers that
  // agree: the switch is due when its mean over the probes of a full window is
  // at most this. Every probe counts the same, so that one with large gradients
  // does not decide. 0: not used.
  double gradient = 0;
  int64_t window = 100;  // steps, 2 or more
};

// How far the gradients of layers that share agree in one probe, summed over
// slabs and ranks.
struct Agreement {
  double together = 0;  // |sum of g_l|^2
  double apart = 0;     // sum of |g_l|^2
};

// All that the decision depends on. Checkpoints save it, and must keep every
// bit.
struct SwitchHistory {
  struct Probe {
    int64_t step = 0;
    double together = 0, apart = 0;
    friend bool operator==(const Probe&, const Probe&) = default;
  };
  std::vector<double> losses;  // of the stage's last `window` steps, oldest
                               // first
  std::vector<Probe> probes;   // of the last `window` steps, and the last
                               // kMinProbes however old; oldest first
  friend bool operator==(const SwitchHistory&, const SwitchHistory&) = default;
};

class SwitchPolicy {
 public:
  // A probe is one micro-batch and noisy, so fewer probes do not decide.
  static constexpr size_t kMinProbes = 3;

  // A history longer than the window (the recipe changed at a resume) is cut.
  explicit SwitchPolicy(const SwitchPolicyConfig& config,
                        SwitchHistory history = {});

  // Whether any threshold is set.
  bool asked() const { return config_.plateau > 0 || config_.gradient > 0; }
  // Whether it needs probes.
  bool asks_probes() const { return config_.gradient > 0; }

  // Once a step of the stage.
  void AddLoss(double loss);
  // `step` counts the run's steps; ascending.
  void AddProbe(int64_t step, const Agreement& agreement);

  // Why the stage ends now ("the loss fell by 0.004 nats over the last 100
  // steps, less than 0.01"); empty: it continues.
  std::optional<std::string> Due() const;

  // The values that Due compares with the thresholds; empty while there are too
  // few losses or probes.
  std::optional<double> Fall() const;
  std::optional<double> Ratio() const;

  const SwitchHistory& history() const { return history_; }

 private:
  void Trim();
  // Counts only steps with a loss.
  bool WindowIsFull() const;

  SwitchPolicyConfig config_;
  SwitchHistory history_;
};

}  // namespace delink
