// Where a rank is, in a small file that others can read when the rank itself no
// longer answers: killed, stopped, or in an endless loop.
//
// folder/rank-00002 holds three lines of text of fixed width: how often the
// rank's watchdog thread has beaten, and what each lane has begun last, or what
// compute waits for. A rank holds a lock on its file, which the system gives up
// when the process dies, however it dies. A rank that ends as it should removes
// the file, the last one the folder; what a dead one leaves is there to be
// read.
//
// Lines are written without being synced: for ranks of one machine they are
// exact at any moment, for those of others as fresh as the file system lets
// them be. File systems without locks are found out; there a death shows in
// beats that cease.
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
#include "framework/step/instruction.h"

namespace delink {

class Heartbeat {
 public:
  // Creates the file, or takes over a dead rank's. `folder` exists.
  static absl::StatusOr<std::unique_ptr<Heartbeat>> Create(
      const std::string& folder, int rank);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  ~Heartbeat();  // Leave()

  // A lane begins something; those that exchange go as one, the network lane.
  // One thread for compute and one for all others, or one for all, which then
  // does one thing at a time.
  void Begin(Lane lane, int64_t step, std::string_view what);
  // Compute waits for this; empty: no longer. On compute's thread.
  void Wait(int64_t step, std::string_view what);
  // Things begun so far, by all lanes.
  int64_t begun() const { return begun_; }

  // Still there. One thread.
  void Beat();
  // The rank ends, well or with an error that it tells by itself: its death is
  // no surprise from here on.
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
  // Of compute's thread: what it does when it does not wait.
  std::string doing_;
  bool waits_ = false;
  std::atomic<std::thread::id> compute_thread_;
  std::atomic<int64_t> begun_ = 0;
  std::atomic<bool> left_ = false;
};

// What can be seen of a rank.
struct Sighting {
  struct Doing {
    int64_t count = 0;  // things the lane has begun
    int64_t step = 0;
    std::string what;    // empty: nothing yet
    bool waits = false;  // for that
  };
  bool left = false;  // it has ended, and not by accident
  bool dead = false;  // it has ended by accident
  int64_t beats = 0;
  Doing compute, network;
};
Sighting ReadHeartbeat(const std::string& folder, int rank);

// An error that names the process if any rank, of whichever run, lives in
// `folder`, which need not exist.
absl::Status CheckNobodyLives(const std::string& folder);

}  // namespace delink
