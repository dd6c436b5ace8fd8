#include "tests/testing/simt/clock.h"

#include <algorithm>
#include <cstdint>

namespace delink::simt {
namespace {

struct Clock {
  // Time 0 is for what was never recorded and 1 for what the host did.
  uint64_t time = 16;
  bool fenced = false;  // this block, since its last atomic operation
  Record released = 0;  // the last time that a block of this kernel did both
};
Clock g_clock;

}  // namespace

Record NextTime() { return ++g_clock.time << kTimeShift; }

uint64_t BeginWork(uint64_t known) {
  const Record now = NextTime();
  g_now.known = std::min(known << kTimeShift, now);
  g_now.kernel = g_now.block = g_now.barrier = now;
  g_now.acquired = 0;
  g_clock.released = 0;
  BeginThread(0, 0, nullptr);
  return g_clock.time;
}

void BeginBlock() {
  g_now.block = g_now.barrier = NextTime();
  g_now.acquired = 0;
  g_clock.fenced = false;
}

void BeginThread(int thread, Record warp, const Record* lanes) {
  g_now.self = g_clock.time << kTimeShift | static_cast<Record>(thread);
  g_now.warp = warp;
  g_now.lanes = lanes;
}

void Fence() { g_clock.fenced = true; }

void AtomicDone() {
  g_now.acquired = g_clock.released;
  if (!g_clock.fenced) return;
  g_clock.fenced = false;
  g_clock.released = NextTime();
  g_now.self = g_clock.released | (g_now.self & kThread);
}

}  // namespace delink::simt
