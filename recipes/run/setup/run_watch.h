// Watches a run while it trains: signals, on which all ranks agree, and the
// watchdog.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "framework/step/engine/step_watch.h"
#include "parallel/launch/launch.h"
#include "parallel/watch/signals.h"
#include "parallel/watch/watchdog.h"

namespace delink {

// What signals request from a run: the same on all ranks, in the same step.
struct Asked {
  bool stop = false;  // save, and end
  bool save = false;  // save, and continue
};

class RunWatch final : public StepWatch {
 public:
  struct Options {
    std::string folder;     // ranks report their progress there
    int64_t patience = 0;   // of the watchdog, in seconds; 0: none
    bool pipeline = false;  // ranks run programs that differ
  };
  // Collective. The world outlives the watch.
  static absl::StatusOr<std::unique_ptr<RunWatch>> Start(World& world,
                                                         Options options);

  // Watches while a run is set up and has no folder yet. The ranks of one
  // machine use a temporary folder; ranks of several machines are not watched.
  // Reports a rank that dies, and nothing else. Null if nothing is watched.
  // Collective.
  static std::unique_ptr<Watchdog> StartEarly(World& world);

  void Begin(Lane lane, int64_t step, std::string_view what) override;
  void Wait(int64_t step, std::string_view what) override;
  double Vote() override;

  // The request that the votes of a step add up to.
  static Asked AskedBy(double votes);
  // The requested checkpoint was written.
  void Saved(const Asked& asked);

  // This rank ends, either normally or with an error that it will report.
  void Leave() {
    watchdog_->heartbeat().Leave();
    signals_.reset();
  }

 private:
  explicit RunWatch(std::unique_ptr<Watchdog> watchdog)
      : watchdog_(std::move(watchdog)) {}

  // With several ranks: mpirun signals the others when one dies, but they first
  // report which one.
  std::optional<SignalCatcher> signals_;
  std::unique_ptr<Watchdog> watchdog_;
  int64_t saves_ = 0;  // SIGUSR1s that have been answered
};

}  // namespace delink
