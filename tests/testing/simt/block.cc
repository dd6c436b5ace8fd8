#include "tests/testing/simt/block.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/testing/simt/clock.h"
#include "tests/testing/simt/report.h"
#include "tests/testing/simt/shadow.h"
#include "tests/testing/simt/stacks.h"
#include "tests/testing/simt/warp.h"

// What device code reads as constants, side by side: they are not its memory.
#define DELINK_SIMT_CONSTANT __attribute__((section("simt_constants")))
extern "C" {
DELINK_SIMT_CONSTANT uint3 threadIdx{};
DELINK_SIMT_CONSTANT uint3 blockIdx{};
DELINK_SIMT_CONSTANT dim3 blockDim;
DELINK_SIMT_CONSTANT dim3 gridDim;
DELINK_SIMT_CONSTANT int warpSize = 32;
alignas(256) unsigned char simt_dynamic_shared[227 * 1024];
}

namespace delink::simt {
namespace {

struct Thread {
  context::fiber fiber;  // while it waits
  uint3 index{};
  Wait wait = Wait::kNone;
  bool done = false;
  CodeLine where{};
  int value = 0;
};

// One kernel, block after block.
class Grid {
 public:
  Stacks& stacks() { return stacks_; }
  bool running() const { return kernel_ != nullptr; }
  const Kernel& kernel() const { return *kernel_; }
  const Thread& thread(int i) const { return threads_[Index(i)]; }
  int current() const { return current_; }

  void Run(const Kernel& kernel, uint64_t seed);
  int WaitForBlock(Wait wait, int value, CodeLine where);
  uint64_t WaitForWarp(const WarpCall& call, CodeLine where);
  uint32_t ActiveLanes() const;

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }

  void Prepare();
  void RunBlock();
  void ForgetReady();
  void StartFiber();
  static void SwitchTo(context::fiber to, context::fiber* from);
  context::fiber TakeReady();
  void RunThread(int thread);
  void MakeCurrent(int thread);
  void Suspend();
  void AnswerBlock();
  [[noreturn]] void ReportDivergence();
  std::string Whereabouts(int thread) const;

  Stacks stacks_;
  const Kernel* kernel_ = nullptr;
  int size_ = 0;  // threads of a block
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  context::fiber scheduler_;
  int current_ = 0;
  int next_ = 0;  // the first thread that has not begun
  int done_ = 0;
  int arrived_ = 0;         // at the barrier of the block
  int answer_ = 0;          // of the barrier
  std::vector<int> ready_;  // what may go on, in this order
  size_t ready_begin_ = 0;
};

Grid& TheGrid() {
  static Grid* const grid = new Grid;  // outlives what runs at exit
  return *grid;
}

void Grid::Prepare() {
  const dim3 block = kernel_->block;
  size_ = static_cast<int>(block.x * block.y * block.z);
  threads_.resize(Index(std::max(size_, static_cast<int>(threads_.size()))));
  for (int i = 0; i < size_; ++i) {
    const unsigned number = static_cast<unsigned>(i);
    threads_[Index(i)].index = {number % block.x, number / block.x % block.y,
                                number / block.x / block.y};
  }
  warps_.resize(Index((size_ + 31) / 32));
  blockDim = block;
  gridDim = kernel_->grid;
  std::memcpy(stacks_.arguments(), kernel_->closure,
              static_cast<size_t>(kernel_->closure_bytes));
}

void Grid::Run(const Kernel& kernel, uint64_t seed) {
  kernel_ = &kernel;
  Prepare();
  const dim3 grid = kernel.grid;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  // Every block once, in an order that only a seed knows.
  std::mt19937_64 random(seed);
  uint64_t step = random() % blocks + 1;
  while (std::gcd(step, blocks) != 1) ++step;
  uint64_t number = random() % blocks;
  for (uint64_t i = 0; i < blocks; ++i) {
    blockIdx = {static_cast<unsigned>(number % grid.x),
                static_cast<unsigned>(number / grid.x % grid.y),
                static_cast<unsigned>(number / grid.x / grid.y)};
    RunBlock();
    number = (number + step) % blocks;
  }
  kernel_ = nullptr;
}

void Grid::RunBlock() {
  BeginBlock();
  for (int i = 0; i < size_; ++i) threads_[Index(i)].done = false;
  for (int w = 0; w < static_cast<int>(warps_.size()); ++w) {
    warps_[Index(w)].Begin(std::min(32, size_ - 32 * w));
  }
  next_ = done_ = arrived_ = 0;
  ForgetReady();
  while (true) {
    if (ready_begin_ < ready_.size()) {
      SwitchTo(TakeReady(), &scheduler_);
    } else if (next_ < size_) {
      StartFiber();
    } else {
      break;
    }
  }
  if (done_ < size_) ReportDivergence();
}

void Grid::ForgetReady() {
  ready_.clear();
  ready_begin_ = 0;
}

void Grid::StartFiber() {
  context::fiber fiber(std::allocator_arg, StackAllocator{&stacks_},
                       [this](context::fiber&&) {
                         while (next_ < size_) RunThread(next_++);
                         return std::move(scheduler_);
                       });
  SwitchTo(std::move(fiber), &scheduler_);
}

// Goes on in `to`, having left in `from` how to come back here.
void Grid::SwitchTo(context::fiber to, context::fiber* from) {
  std::move(to).resume_with([from](context::fiber&& here) {
    *from = std::move(here);
    return context::fiber();
  });
}

// The thread that runs next, of those that may go on.
context::fiber Grid::TakeReady() {
  const int thread = ready_[ready_begin_++];
  if (ready_begin_ == ready_.size()) ForgetReady();
  MakeCurrent(thread);
  return std::move(threads_[Index(thread)].fiber);
}

void Grid::RunThread(int thread) {
  MakeCurrent(thread);
  t_in_kernel = true;
  kernel_->call(stacks_.arguments());
  t_in_kernel = false;
  threads_[Index(current_)].done = true;
  ++done_;
}

void Grid::MakeCurrent(int thread) {
  current_ = thread;
  threadIdx = threads_[Index(thread)].index;
  const Warp& warp = warps_[Index(thread / 32)];
  BeginThread(thread, warp.last_full(), warp.lanes(thread % 32));
}

void Grid::Suspend() {
  context::fiber& self = threads_[Index(current_)].fiber;
  const bool ready = ready_begin_ < ready_.size();
  SwitchTo(ready ? TakeReady() : std::move(scheduler_), &self);
}

int Grid::WaitForBlock(Wait wait, int value, CodeLine where) {
  const int self = current_;
  Thread& thread = threads_[Index(self)];
  thread.wait = wait;
  thread.where = where;
  thread.value = value;
  if (++arrived_ == size_) {
    AnswerBlock();
  } else {
    Suspend();
  }
  return answer_;
}

// The last thread of the block has come: all go on, this one at once.
void Grid::AnswerBlock() {
  const Wait wait = threads_[Index(current_)].wait;
  int some = 0, all = 1, count = 0;
  for (int i = 0; i < size_; ++i) {
    Thread& thread = threads_[Index(i)];
    if (thread.wait != wait) ReportDivergence();
    some |= static_cast<int>(thread.value != 0);
    all &= static_cast<int>(thread.value != 0);
    count += static_cast<int>(thread.value != 0);
    thread.wait = Wait::kNone;
    if (i != current_) ready_.push_back(i);
  }
  arrived_ = 0;
  answer_ = wait == Wait::kBlockOr    ? some
            : wait == Wait::kBlockAnd ? all
                                      : count;
  g_now.barrier = NextTime();
  MakeCurrent(current_);
}

uint64_t Grid::WaitForWarp(const WarpCall& call, CodeLine where) {
  const int self = current_;
  const int lane = self % 32;
  Warp& warp = warps_[Index(self / 32)];
  Thread& thread = threads_[Index(self)];
  thread.wait = call.wait;
  thread.where = where;
  if ((call.mask >> lane & 1) == 0) {
    Report(std::string(WaitName(call.wait)) + " at " + LineName(where) +
           " with mask " + Hex(call.mask) + " is called by lane " +
           std::to_string(lane) + ", which the mask does not name");
  }
  const uint32_t released = warp.Arrive(lane, call);
  if (released == 0) {
    Suspend();
  } else {
    warp.Answer(released, call.mask, where);
    for (int other = 0; other < 32; ++other) {
      if ((released >> other & 1) == 0) continue;
      const int number = self - lane + other;
      threads_[Index(number)].wait = Wait::kNone;
      if (other != lane) ready_.push_back(number);
    }
    MakeCurrent(self);
  }
  return warp.answer(lane);
}

uint32_t Grid::ActiveLanes() const {
  uint32_t active = 0;
  const int first = current_ / 32 * 32;
  for (int i = first; i < std::min(first + 32, size_); ++i) {
    if (!threads_[Index(i)].done) active |= uint32_t{1} << (i - first);
  }
  return active;
}

std::string Grid::Whereabouts(int i) const {
  const Thread& thread = threads_[Index(i)];
  const std::string name = "thread " + ThreadName(i);
  if (thread.done) return name + " has returned";
  return name + " waits in " + WaitName(thread.wait) + " at " +
         LineName(thread.where);
}

// Nothing can go on. One waiting thread and one that does not come tell enough.
void Grid::ReportDivergence() {
  int first = 0;
  while (first < size_ && threads_[Index(first)].wait == Wait::kNone) ++first;
  const Thread& waiting = threads_[Index(first)];
  int other = -1;
  for (int i = 0; i < size_; ++i) {
    const Thread& thread = threads_[Index(i)];
    const bool named = waiting.wait <= Wait::kBlockCount ||
                       (i / 32 == first / 32 &&
                        warps_[Index(i / 32)].Names(first % 32, i % 32));
    if (named && i != first &&
        (thread.done || thread.wait != waiting.wait ||
         thread.where.line != waiting.where.line)) {
      other = i;
      break;
    }
  }
  current_ = first;
  Report("divergent barrier: " + Whereabouts(first) + "; " +
         (other < 0 ? "others wait with another mask" : Whereabouts(other)));
}

}  // namespace

BlockMemory MakeBlockMemory() {
  Stacks& stacks = TheGrid().stacks();
  stacks.Init();
  return {stacks.begin(), stacks.bytes(), simt_dynamic_shared,
          static_cast<int64_t>(sizeof simt_dynamic_shared)};
}

void RunKernel(const Kernel& kernel, uint64_t seed) {
  const dim3 block = kernel.block;
  const int64_t threads = int64_t{block.x} * block.y * block.z;
  if (threads < 1 || threads > kMaxThreads || block.z > 64 ||
      kernel.grid.y > 65535 || kernel.grid.z > 65535 ||
      kernel.grid.x > 0x7FFFFFFF || kernel.shared_bytes < 0 ||
      kernel.shared_bytes > static_cast<int64_t>(sizeof simt_dynamic_shared) ||
      kernel.closure_bytes > static_cast<int64_t>(kArgumentBytes)) {
    Report("kernel " + FunctionName(kernel.function) +
           " cannot be launched with a grid of " + DimName(kernel.grid) +
           ", blocks of " + DimName(kernel.block) + " and " +
           std::to_string(kernel.shared_bytes) + " bytes of shared memory");
  }
  g_now.dynamic_end = reinterpret_cast<uintptr_t>(simt_dynamic_shared) +
                      static_cast<uintptr_t>(kernel.shared_bytes);
  TheGrid().Run(kernel, seed);
}

std::string ThreadName(int thread) {
  const uint3 index = TheGrid().thread(thread).index;
  return DimName({index.x, index.y, index.z});
}

std::string WhereOnDevice() {
  const Grid& grid = TheGrid();
  if (!grid.running()) return "";
  const uint3 block = blockIdx;
  return "  kernel " + FunctionName(grid.kernel().function) + ", block " +
         DimName({block.x, block.y, block.z}) + " of " + DimName(gridDim) +
         ", thread " + ThreadName(grid.current()) + " of " + DimName(blockDim) +
         "\n";
}

int WaitForBlock(Wait wait, int value, CodeLine where) {
  t_in_kernel = false;
  const int answer = TheGrid().WaitForBlock(wait, value, where);
  t_in_kernel = true;
  return answer;
}
uint64_t WaitForWarp(const WarpCall& call, CodeLine where) {
  t_in_kernel = false;
  const uint64_t answer = TheGrid().WaitForWarp(call, where);
  t_in_kernel = true;
  return answer;
}
uint32_t ActiveLanes() { return TheGrid().ActiveLanes(); }

}  // namespace delink::simt
