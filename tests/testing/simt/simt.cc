#include "tests/testing/simt/simt.h"

#include <utility>

#include "framework/base/mutex.h"
#include "tests/testing/simt/block.h"
#include "tests/testing/simt/launch.h"
#include "tests/testing/simt/machine.h"
#include "tests/testing/simt/report.h"
#include "tests/testing/simt/shadow.h"

namespace delink::simt {

ScopedOptions::ScopedOptions(const Options& options)
    : before_(CurrentOptions()) {
  TheMachine().Restart(options);
}
ScopedOptions::~ScopedOptions() { TheMachine().Restart(before_); }

const Options& CurrentOptions() { return TheMachine().options(); }

void Enqueue(cudaStream_t stream, std::string name,
             std::function<void()> work) {
  Machine& machine = TheMachine();
  const MutexLock lock(machine.mutex());
  CUstream_st* const found = machine.Find(stream);
  if (found == nullptr) Report("work for a stream that is none: " + name);
  machine.Enqueue(found, {.name = std::move(name), .run = std::move(work)});
}

void CheckRead(const void* address, int64_t bytes) {
  CheckAccess(reinterpret_cast<uintptr_t>(address), bytes, Access::kRead,
              nullptr);
}
void CheckWrite(void* address, int64_t bytes) {
  CheckAccess(reinterpret_cast<uintptr_t>(address), bytes, Access::kWrite,
              nullptr);
}

int64_t bytes_in_use() { return TheMachine().memory().bytes_in_use(); }
int64_t resources_made() { return TheMachine().resources_made(); }
int64_t kernels_run() { return TheMachine().kernels_run(); }

void LaunchKernel(cudaStream_t stream, const KernelLaunch& launch) {
  Machine& machine = TheMachine();
  const MutexLock lock(machine.mutex());
  CUstream_st* const found = machine.Find(stream);
  if (found == nullptr) {
    Report("launch on a stream that is none: " + FunctionName(launch.function));
  }
  auto run = [launch, &machine] {
    ++machine.kernels_run();
    RunKernel({.function = launch.function,
               .grid = launch.grid,
               .block = launch.block,
               .shared_bytes = launch.shared_bytes,
               .call = launch.call,
               .closure = launch.closure.get(),
               .closure_bytes = launch.closure_bytes},
              machine.Random());
  };
  const dim3& grid = launch.grid;
  machine.Enqueue(found, {.name = "kernel",
                          .run = std::move(run),
                          .blocks = int64_t{grid.x} * grid.y * grid.z});
}

}  // namespace delink::simt
