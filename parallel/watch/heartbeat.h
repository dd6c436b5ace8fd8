// Shows what a rank is doing, in a small file that others can read even if the
// rank no longer answers: killed, stopped, or in an endless loop.
//
// folder/rank-00002 holds three lines of text of fixed width: how often the
// rank's watchdog thread has beaten, and what each lane has begun last, or what
// compute waits for. A rank holds a lock on its file, which the system releases
// when the process dies, however it dies. A rank that ends normally removes its
// file, and the last rank the folder. The file of a dead rank stays and can be
// read.
//
// Lines are not synced: ranks of the same machine always read the current
// state, other ranks what the file system shows them. File systems without
// locks are detected; there a death shows because the beats stop.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/step/program/instruction.h"

namespace delink {

class Heartbeat {
 public:
  // Creates the file, or takes over a dead rank's. `folder` exists.
  static absl::StatusOr<std::unique_ptr<Heartbeat>> Create(
      const std::string& folder, int rank);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  ~Heartbeat();  // Leave()

  // A lane begins something. All lanes that exchange count as one, the network
  // lane. Compute has one thread and the other lanes another; or one thread
  // runs all lanes, one thing at a time.
  void Begin(Lane lane, int64_t step, std::string_view what);
  // Compute waits for this; empty: no longer. On compute's thread.
  void Wait(int64_t step, std::string_view what);
  // Things begun so far, by all lanes.
  int64_t begun() const { return begun_; }

  // Still there. One thread.
  void Beat();
  // The rank ends, normally or with an error that it reports itself. From here
  // on its end is no accident.
  void Leave();

 private:
  Heartbeat(std::string path, int file, bool locked)
      : path_(std::move(path)), file_(file), locked_(locked) {}

  const std::string path_;
  const int file_;
  const bool locked_;
  int64_t beats_ = 0;
  void Write(Lane lane, const char* does, int64_t step,
             std::string_view what) const;

  std::array<int64_t, 2> counts_ = {};  // by lane
  // Used by compute's thread only: what it does when it does not wait.
  std::string doing_;
  bool waits_ = false;
  std::atomic<std::thread::id> compute_thread_;
  std::atomic<int64_t> begun_ = 0;
  std::atomic<bool> left_ = false;
};

// What a rank's file shows.
struct Sighting {
  struct Doing {
    int64_t count = 0;  // things the lane has begun
    int64_t step = 0;
    std::string what;    // empty: nothing yet
    bool waits = false;  // for `what`
  };
  bool left = false;  // it has ended, and not by accident
  bool dead = false;  // it has ended by accident
  int64_t beats = 0;
  Doing compute, network;
};
Sighting ReadHeartbeat(const std::string& folder, int rank);

// An error that names the process if a living rank of any run has a heartbeat
// in `folder`, which need not exist.
absl::Status CheckNobodyLives(const std::string& folder);

}  // namespace delink
