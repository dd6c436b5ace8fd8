// What watches over a run while it trains: signals, on which all ranks agree,
// and the watchdog.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "framework/step/step_watch.h"
#include "parallel/launch/launch.h"
#include "parallel/watch/signals.h"
#include "parallel/watch/watchdog.h"

namespace delink {

// What signals ask of a run: the same on all ranks, in the same step.
struct Asked {
  bool stop = false;  // save, and end
  bool save = false;  // save, and go on
};

class RunWatch final : public StepWatch {
 public:
  struct Options {
    std::string folder;     // where ranks tell what they do
    int64_t patience = 0;   // of the watchdog, in seconds; 0: none
    bool pipeline = false;  // ranks run programs that differ
  };
  // Collective. The world outlives the watch.
  static absl::StatusOr<std::unique_ptr<RunWatch>> Start(World& world,
                                                         Options options);

  // Watches while a run is set up and has no folder yet: ranks of one machine
  // meet in one for temporary files, those of several go without. A rank that
  // dies is named; nothing else is noticed. Null where there is nobody to
  // watch. Collective.
  static std::unique_ptr<Watchdog> StartEarly(World& world);

  void Begin(Lane lane, int64_t step, std::string_view what) override;
  void Wait(int64_t step, std::string_view what) override;
  double Vote() override;

  // What the votes of a step say.
  static Asked AskedBy(double votes);
  // A checkpoint was written for what was asked.
  void Saved(const Asked& asked);

  // This rank ends, well or with an error that it is about to tell.
  void Leave() {
    watchdog_->heartbeat().Leave();
    signals_.reset();
  }

 private:
  explicit RunWatch(std::unique_ptr<Watchdog> watchdog)
      : watchdog_(std::move(watchdog)) {}

  // Of several ranks: mpirun asks the others to end when one has died, but not
  // before they have told which.
  std::optional<SignalCatcher> signals_;
  std::unique_ptr<Watchdog> watchdog_;
  int64_t saves_ = 0;  // SIGUSR1s that have been answered
};

}  // namespace delink
