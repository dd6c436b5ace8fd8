// The emulated device: its memory, its streams and when their work is done.
//
// The CUDA runtime that it stands for has one state in a process, and so has
// it. Every function may be called from any thread of the host.
#pragma once

#include <driver_types.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "framework/base/mutex.h"
#include "tests/testing/simt/memory.h"
#include "tests/testing/simt/pools.h"
#include "tests/testing/simt/simt.h"

namespace delink::simt {

// How much of each stream's work, by the stream's slot, comes before something.
using StreamClock = std::vector<uint64_t>;

// A point in a stream's work.
struct Mark {
  int slot = 0;
  uint64_t number = 0;  // of the work in its stream
  StreamClock clock;
  int64_t time = 0;  // when it was reached, in nanoseconds
};

struct Work {
  std::string name;
  std::function<void()> run;
  bool by_host = false;  // may not touch the device's memory
  // Other streams' work that must be done before.
  std::vector<std::shared_ptr<const Mark>> after;
  int64_t blocks = 0, bytes = 0;  // as Operation's
  Way way = Way::kNone;
  std::shared_ptr<Mark> end{};
  // By the device's own clock: not before, and for how long.
  int64_t given = 0, takes = 0;
};

}  // namespace delink::simt

struct CUstream_st {
  int slot;
  bool blocking;  // waits for the null stream, and the null stream for it
  int64_t made;   // number of the stream, over all of the process
  std::deque<delink::simt::Work> queue;
  uint64_t issued = 0;
  uint64_t done = 0;
  delink::simt::StreamClock clock;
  std::shared_ptr<delink::simt::Mark> last;  // behind all that it was given
  int64_t time = 0;                          // when the last of `done` ended
  // When each piece of work began that is not known to be over, the first being
  // of number `forgotten` + 1.
  std::vector<uint64_t> begun;
  uint64_t forgotten = 0;
};

struct CUevent_st {
  bool timing;
  std::shared_ptr<delink::simt::Mark> mark;  // null: not recorded
};

namespace delink::simt {

class Machine {
 public:
  Machine();

  // Memory may be asked about only while the lock is held, which it is while
  // kernels run.
  Memory& memory() { return memory_; }
  Pools& pools() { return pools_; }
  Mutex& mutex() { return mutex_; }
  Options& options() { return options_; }
  int64_t& kernels_run() { return kernels_run_; }
  int64_t& resources_made() { return resources_made_; }
  uint64_t Random() { return random_(); }
  void Restart(const Options& options);

  // What follows is called with the lock held.

  CUstream_st* NewStream(bool blocking);
  // Does the stream's work first.
  void Destroy(CUstream_st* stream);
  // Null where `stream` is no stream; the null stream by each of its names.
  CUstream_st* Find(cudaStream_t stream);

  std::shared_ptr<Mark> Enqueue(CUstream_st* stream, Work work);
  bool IsDone(const Mark& mark) const;
  // Does work, in a legal order, until this is done, or until all is.
  void WaitFor(const Mark& mark);
  void WaitFor(CUstream_st* stream);
  void WaitForAll();
  // What is given from here on begins no earlier, by the device's own clock.
  void HostIsAt(int64_t time) { host_time_ = std::max(host_time_, time); }
  // One piece of work of any stream; for those who only ask.
  void DoSome();

  // Of the work that runs now: whether what happened at `time` comes before it.
  bool IsOrdered(uint64_t time) const;

 private:
  struct Past {
    uint64_t time;
    int slot;
    uint64_t number;
  };

  bool CanRun(const CUstream_st& stream) const;
  bool IsIdle() const;
  // Until `done`; false where there was nothing to do.
  void RunUntil(const std::function<bool()>& done);
  void RunOne();
  int64_t ReadyAt(const CUstream_st& stream) const;
  void Run(CUstream_st& stream);
  uint64_t Known(const StreamClock& clock) const;
  void ForgetPast();

  Mutex mutex_;
  Options options_;
  Memory memory_;
  Pools pools_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;  // by slot
  std::vector<int> free_slots_;
  StreamClock host_clock_;  // what the host has waited for
  std::vector<Past> past_;
  StreamClock running_;  // of the work that runs now
  int64_t host_time_ = 0;
  std::array<int64_t, 3> free_ = {};  // by way
  bool given_ = false;                // since the host has asked
  int64_t streams_made_ = 0;
  int64_t kernels_run_ = 0;
  int64_t resources_made_ = 0;
};

Machine& TheMachine();

// For shadow.cc.
bool IsOrderedByStreams(uint64_t time);

}  // namespace delink::simt
