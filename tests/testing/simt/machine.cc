#include "tests/testing/simt/machine.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "tests/testing/simt/block.h"
#include "tests/testing/simt/clock.h"
#include "tests/testing/simt/fault.h"
#include "tests/testing/simt/report.h"
#include "tests/testing/simt/shadow.h"

namespace delink::simt {
namespace {

// Of what a host that looks whether something is done finds done meanwhile.
constexpr uint64_t kMostAtOnce = 8;

size_t Index(int i) { return static_cast<size_t>(i); }

void Join(StreamClock& clock, const StreamClock& other) {
  if (clock.size() < other.size()) clock.resize(other.size(), 0);
  for (size_t i = 0; i < other.size(); ++i) {
    clock[i] = std::max(clock[i], other[i]);
  }
}

int64_t HostClock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(now).count();
}

uint64_t At(const StreamClock& clock, int slot) {
  return Index(slot) < clock.size() ? clock[Index(slot)] : 0;
}

}  // namespace

Machine::Machine() {
  if (const char* const seed = std::getenv("DELINK_SIMT_SEED")) {
    options_.seed = std::strtoull(seed, nullptr, 10);
  }
  random_.seed(options_.seed);
  const BlockMemory block = MakeBlockMemory();
  g_layout.stacks_begin = block.stacks_begin;
  g_layout.stacks_bytes = block.stacks_bytes;
  InitShadow(memory_.arena().begin, memory_.arena().end, memory_.pinned_begin(),
             block.dynamic, block.dynamic_bytes);
  NewStream(true);  // the null stream
  InstallFaultHandler();
}

Machine& TheMachine() {
  // Never destroyed: streams may be, by what ends after main.
  static Machine* const machine = new Machine;
  return *machine;
}

void Machine::Restart(const Options& options) {
  options_ = options;
  random_.seed(options.seed);
  host_time_ = 0;
  free_ = {};
  for (const auto& stream : streams_) {
    if (stream == nullptr) continue;
    stream->time = 0;
    if (stream->last != nullptr) stream->last->time = 0;
  }
}

CUstream_st* Machine::NewStream(bool blocking) {
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<int>(streams_.size()));
    streams_.emplace_back();
  }
  // Numbers go on where the slot's last stream ended: clocks stay right.
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  auto stream = std::make_unique<CUstream_st>();
  stream->slot = slot;
  stream->blocking = blocking;
  stream->made = ++streams_made_;
  const uint64_t number = At(host_clock_, slot);
  stream->issued = stream->done = stream->forgotten = number;
  streams_[Index(slot)] = std::move(stream);
  return streams_[Index(slot)].get();
}

void Machine::Destroy(CUstream_st* stream) {
  // All that was done here is over; whoever has the slot next goes on from it.
  WaitForAll();
  free_slots_.push_back(stream->slot);
  streams_[Index(stream->slot)] = nullptr;
}

CUstream_st* Machine::Find(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy ||
      stream == cudaStreamPerThread) {
    return streams_[0].get();
  }
  const auto found =
      std::find_if(streams_.begin(), streams_.end(),
                   [&](const auto& one) { return one.get() == stream; });
  return found == streams_.end() ? nullptr : found->get();
}

std::shared_ptr<Mark> Machine::Enqueue(CUstream_st* stream, Work work) {
  const auto wait_for = [&](const CUstream_st& other) {
    if (other.last != nullptr) work.after.push_back(other.last);
  };
  if (stream->slot == 0) {
    for (const auto& other : streams_) {
      if (other != nullptr && other->slot != 0 && other->blocking) {
        wait_for(*other);
      }
    }
  } else if (stream->blocking) {
    wait_for(*streams_[0]);
  }
  for (const auto& mark : work.after) Join(stream->clock, mark->clock);
  Join(stream->clock, host_clock_);
  if (stream->clock.size() <= Index(stream->slot)) {
    stream->clock.resize(Index(stream->slot) + 1, 0);
  }
  stream->clock[Index(stream->slot)] = ++stream->issued;
  stream->last = std::make_shared<Mark>(Mark{
      .slot = stream->slot, .number = stream->issued, .clock = stream->clock});
  work.end = stream->last;
  if (options_.nanoseconds != nullptr) {
    work.given = host_time_;
    work.takes = options_.nanoseconds({.name = work.name,
                                       .blocks = work.blocks,
                                       .bytes = work.bytes,
                                       .way = work.way});
    if (work.takes == 0) work.way = Way::kNone;
  }
  given_ = true;
  stream->queue.push_back(std::move(work));
  return stream->last;
}

bool Machine::IsDone(const Mark& mark) const {
  const auto& stream = streams_[Index(mark.slot)];
  return stream == nullptr || stream->done >= mark.number;
}

bool Machine::CanRun(const CUstream_st& stream) const {
  if (stream.queue.empty()) return false;
  const auto& after = stream.queue.front().after;
  return std::all_of(after.begin(), after.end(),
                     [&](const auto& mark) { return IsDone(*mark); });
}

bool Machine::IsIdle() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) {
    return stream == nullptr || stream->queue.empty();
  });
}

void Machine::RunUntil(const std::function<bool()>& done) {
  if (done()) return;
  memory_.Open();
  while (!done()) RunOne();
  memory_.Close();
}

void Machine::RunOne() {
  std::vector<CUstream_st*> ready;
  for (const auto& stream : streams_) {
    if (stream != nullptr && CanRun(*stream)) ready.push_back(stream.get());
  }
  if (ready.empty()) Report("no stream can go on");
  if (options_.nanoseconds == nullptr) {
    Run(*ready[random_() % ready.size()]);
    return;
  }
  CUstream_st& first =
      **std::ranges::min_element(ready, {}, [&](const CUstream_st* one) {
        return std::pair(ReadyAt(*one), one->made);
      });
  Way way = Way::kNone;
  do {
    way = first.queue.front().way;
    Run(first);
  } while (way != Way::kNone && CanRun(first) &&
           first.queue.front().way == way);
}

int64_t Machine::ReadyAt(const CUstream_st& stream) const {
  const Work& work = stream.queue.front();
  int64_t time = std::max(stream.time, work.given);
  for (const auto& mark : work.after) time = std::max(time, mark->time);
  return time;
}

void Machine::Run(CUstream_st& stream) {
  int64_t begin = ReadyAt(stream);
  Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  running_ = work.end->clock;
  const uint64_t time = BeginWork(Known(running_));
  g_now.report_uninitialised = options_.report_uninitialised;
  past_.push_back({time, stream.slot, stream.done + 1});
  stream.begun.push_back(time);
  if (work.by_host) memory_.Close();
  work.run();
  if (work.by_host) memory_.Open();
  if (work.way != Way::kNone) {
    int64_t& free = free_[static_cast<size_t>(work.way)];
    begin = std::max(begin, free);
    free = begin + work.takes;
  }
  stream.time =
      options_.nanoseconds != nullptr ? begin + work.takes : HostClock();
  work.end->time = stream.time;
  ++stream.done;
}

// The first time at which something began that need not come before.
uint64_t Machine::Known(const StreamClock& clock) const {
  uint64_t known = ~uint64_t{0} >> kTimeShift;
  for (const auto& stream : streams_) {
    if (stream == nullptr) continue;
    const uint64_t first = std::max(At(clock, stream->slot), stream->forgotten);
    if (first - stream->forgotten < stream->begun.size()) {
      known = std::min(known, stream->begun[first - stream->forgotten]);
    }
  }
  return known;
}

bool Machine::IsOrdered(uint64_t time) const {
  const auto next = std::upper_bound(
      past_.begin(), past_.end(), time,
      [](uint64_t t, const Past& past) { return t < past.time; });
  if (next == past_.begin()) return true;
  const Past& past = *std::prev(next);
  return past.number <= At(running_, past.slot);
}

bool IsOrderedByStreams(uint64_t time) { return TheMachine().IsOrdered(time); }

void Machine::WaitFor(const Mark& mark) {
  RunUntil([&] { return IsDone(mark); });
  Join(host_clock_, mark.clock);
  if (IsIdle()) ForgetPast();
}

void Machine::WaitFor(CUstream_st* stream) {
  RunUntil([&] { return stream->queue.empty(); });
  Join(host_clock_, stream->clock);
  if (IsIdle()) ForgetPast();
}

void Machine::WaitForAll() {
  RunUntil([&] { return IsIdle(); });
  for (const auto& stream : streams_) {
    if (stream == nullptr) continue;
    Join(host_clock_, stream->clock);
    HostIsAt(stream->time);
  }
  ForgetPast();
}

// Nothing waits to be done: work that the host has waited for comes before
// whatever will be given.
void Machine::ForgetPast() {
  for (const auto& stream : streams_) {
    if (stream == nullptr) continue;
    const uint64_t over = At(host_clock_, stream->slot);
    if (over <= stream->forgotten) continue;
    const auto count = static_cast<std::ptrdiff_t>(over - stream->forgotten);
    stream->begun.erase(stream->begun.begin(), stream->begun.begin() + count);
    stream->forgotten = over;
  }
  // From the front only: what is left out would be taken for what began before.
  past_.erase(past_.begin(),
              std::find_if(past_.begin(), past_.end(), [&](const Past& past) {
                return past.number > At(host_clock_, past.slot);
              }));
}

void Machine::DoSome() {
  const bool waits = !std::exchange(given_, false);
  if (IsIdle() || (options_.nanoseconds != nullptr && !waits)) return;
  memory_.Open();
  for (uint64_t left = 1 + random_() % kMostAtOnce; left > 0 && !IsIdle();
       --left) {
    RunOne();
  }
  memory_.Close();
}

}  // namespace delink::simt
