// The watchdog of a rank: notices that the rank makes no progress, finds out
// which rank it waits for, and ends the run with a message that names that rank
// and what it was doing.
//
// - A rank that died is found within about a second, as soon as another waits
//   for it.
// - A rank that is stopped, or in an endless loop, is found when others have
//   waited for `patience`. A rank that is slow for longer counts as stuck.
//
// Each living rank reaches the same verdict from the heartbeats
// (parallel/watch/heartbeat.h); the lowest of them ends the run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/comm/communicator.h"
#include "parallel/watch/heartbeat.h"

namespace delink {

// A rank as the judge sees it.
struct Suspect {
  Sighting seen;
  bool silent = false;  // no beat for a while
};

struct Verdict {
  std::vector<int> culprits;  // ascending; empty: nobody in particular
  std::string message;        // empty: nothing is wrong so far
  int speaker = 0;            // the lowest rank that can be counted on
};

// Finds the culprits from the heartbeats alone. Before `waited` reaches
// `patience` (0: never) only dead ranks are. After that, culprits are the first
// of these that exist: silent ranks; ranks that ended some time ago; ranks that
// do not wait for others (all ranks, if all wait). In the last case, if
// `alike`, only those that have begun least are: ranks run equal programs, so
// these are behind. A pure function.
Verdict Judge(const std::vector<Suspect>& ranks,
              std::chrono::milliseconds waited,
              std::chrono::milliseconds patience, bool alike = true);

class Watchdog {
 public:
  struct Options {
    std::string folder;                     // of the heartbeats
    std::chrono::milliseconds patience{0};  // 0: only deaths are noticed
    bool alike = true;  // ranks run equal programs: none has a pipeline
    // Ends the run; called once, on the watchdog's thread.
    std::function<void(std::string_view message)> end;
  };

  // A collective of `comm`; makes the folder anew. A single rank has no other
  // to wait for: it keeps a heartbeat, but starts no thread.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Start(Communicator& comm,
                                                         Options options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  Heartbeat& heartbeat() { return *heartbeat_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Pulse {
    int64_t beats = -1;
    Clock::time_point since;  // when these were first seen
  };

  Watchdog(int rank, int ranks, Options options,
           std::unique_ptr<Heartbeat> heartbeat)
      : rank_(rank),
        ranks_(ranks),
        options_(std::move(options)),
        heartbeat_(std::move(heartbeat)) {}
  void Loop();
  std::vector<Suspect> Look(Clock::time_point now);
  bool Tick(Clock::time_point now);

  const int rank_;
  const int ranks_;
  const Options options_;
  const std::unique_ptr<Heartbeat> heartbeat_;

  // Used by the watchdog's thread only.
  int64_t begun_ = 0;           // as last seen
  Clock::time_point progress_;  // when that changed
  Clock::time_point last_tick_, last_look_;
  std::vector<Pulse> pulses_;       // by rank
  Clock::time_point guilty_since_;  // when a verdict was first reached

  Mutex mutex_;
  std::condition_variable changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace delink
