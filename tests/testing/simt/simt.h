// The emulated CUDA device, as its tests see it: what the device is, and what
// goes wrong. Linking delink::simt puts it in place of the CUDA runtime; code
// under test calls cuda* and Launch and knows nothing of it.
//
// Work that is given to a stream waits until the host waits for it, and is then
// done on the host's thread, in an order that the streams and events allow and
// that is drawn from a seed. Memory of the device cannot be read or written by
// the host in between. Whatever a kernel does wrong (docs/cuda.md has the list)
// ends the process with a report.
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace delink::simt {

// Which way a copy has over the bus to the host, if it has one.
enum class Way : uint8_t { kNone, kToDevice, kToHost };

// A piece of work that a stream is given.
struct Operation {
  std::string_view name;  // as of Enqueue; "kernel", "copy" and others
  int64_t blocks = 0;     // of a kernel
  int64_t bytes = 0;      // of a copy between host and device
  Way way = Way::kNone;
};

struct Options {
  // Of the order in which streams, and the blocks of a kernel, get their turn.
  // The first is the environment's DELINK_SIMT_SEED, or 0.
  uint64_t seed = 0;
  int64_t memory_bytes = int64_t{8} << 30;
  int devices = 1;
  int driver_version = 13000;
  int multiprocessors = 3;
  int major = 9;
  int minor = 0;
  bool memory_pools = true;
  // Kernels may not read memory of the device that nothing has written.
  bool report_uninitialised = true;
  // Gives the device a clock of its own: how many nanoseconds work takes. The
  // order of work is then that of this clock, not of the seed, and so are the
  // times of events. Work begins when the work before it in its stream and all
  // that it waits for have ended, and not before the end of what the host has
  // waited for. Each way over the bus does one copy at a time, the one that was
  // ready first, of several that of the stream made first; copies that directly
  // follow each other in a stream count as one, and those that take no time
  // need no way. The host takes no time: while it only asks (queries), work
  // begins when it asks again without having given any in between.
  std::function<int64_t(const Operation&)> nanoseconds = nullptr;
};

// Holds from construction to destruction; every stream must be idle at both.
class ScopedOptions {
 public:
  explicit ScopedOptions(const Options& options);
  ~ScopedOptions();
  ScopedOptions(const ScopedOptions&) = delete;
  ScopedOptions& operator=(const ScopedOptions&) = delete;

 private:
  Options before_;
};
const Options& CurrentOptions();

// A function that stands for kernels which the emulation does not have (matrix
// products of cuBLASLt): in the stream's order, it may read and write memory of
// the device, and says of each operand that it does so.
void Enqueue(cudaStream_t stream, std::string name, std::function<void()> work);
// Inside such a function. Reports what a kernel's access would be reported for.
void CheckRead(const void* address, int64_t bytes);
void CheckWrite(void* address, int64_t bytes);

// What of the device's memory the runtime has handed out and not got back.
int64_t bytes_in_use();
// Blocks of memory of the device and of the host, streams and events that the
// runtime was asked for so far.
int64_t resources_made();
// Kernels run so far.
int64_t kernels_run();

}  // namespace delink::simt
