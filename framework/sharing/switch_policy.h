// When a stage's sharing has done its work: from the losses of its steps, and
// from how far the layers that share agree in their gradients.
//
// Pure: every rank feeds it the same numbers and gets the same answer, and a
// policy made from another's history goes on as that one would. A loss or a
// probe that is not finite is left out, as the step it belongs to is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace delink {

struct SwitchPolicyConfig {
  // Nats a window: due when the loss falls by less, by the least-squares line
  // through a full window. 0: not asked.
  double plateau = 0;
  // |sum g_l|^2 / sum |g_l|^2, which is 1 for unrelated layers and n for n
  // layers that agree: due when its mean over the probes of a full window is at
  // most this. Every probe counts the same, so one with large gradients does
  // not decide. 0: not asked.
  double gradient = 0;
  int64_t window = 100;  // steps, 2 or more
};

// Of the layers that share, from one probe, summed over slabs and ranks.
struct Agreement {
  double together = 0;  // |sum of g_l|^2
  double apart = 0;     // sum of |g_l|^2
};

// All that the decision depends on; saved in checkpoints, where no bit of a
// number may be lost.
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
  // One probe is of one micro-batch, and noisy: fewer decide nothing.
  static constexpr size_t kMinProbes = 3;

  // A history longer than the window (the recipe changed at a resume) is cut.
  explicit SwitchPolicy(const SwitchPolicyConfig& config,
                        SwitchHistory history = {});

  // Whether it depends on anything measured.
  bool asked() const { return config_.plateau > 0 || config_.gradient > 0; }
  // Whether it wants probes.
  bool asks_probes() const { return config_.gradient > 0; }

  // Once a step of the stage.
  void AddLoss(double loss);
  // `step` counts the run's steps; ascending.
  void AddProbe(int64_t step, const Agreement& agreement);

  // Why the stage ends now ("the loss fell by 0.004 nats over the last 100
  // steps, less than 0.01"); empty: it goes on.
  std::optional<std::string> Due() const;

  // What Due compares with the thresholds; empty while there is too little.
  std::optional<double> Fall() const;
  std::optional<double> Ratio() const;

  const SwitchHistory& history() const { return history_; }

 private:
  void Trim();
  // Of steps with a loss.
  bool WindowIsFull() const;

  SwitchPolicyConfig config_;
  SwitchHistory history_;
};

}  // namespace delink
