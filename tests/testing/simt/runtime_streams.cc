// The CUDA runtime's streams and events, on the emulated device.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "framework/base/mutex.h"
#include "tests/testing/simt/machine.h"
#include "tests/testing/simt/runtime.h"

namespace {

using delink::simt::Fail;
using delink::simt::Machine;
using delink::simt::Mark;
using delink::simt::Ready;
using delink::simt::TheMachine;
using delink::simt::Work;

// Calls `f` with the machine, locked, and the stream, if there are both.
template <typename F>
cudaError_t WithStream(cudaStream_t stream, F f) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  CUstream_st* const found = machine.Find(stream);
  if (found == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  return f(machine, found);
}

template <typename F>
cudaError_t WithEvent(cudaEvent_t event, F f) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  if (event == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  return f(machine);
}

}  // namespace

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  ++machine.resources_made();
  *stream = machine.NewStream((flags & cudaStreamNonBlocking) == 0);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return Ready();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return WithStream(stream, [](Machine& machine, CUstream_st* found) {
    if (found->slot == 0) return Fail(cudaErrorInvalidResourceHandle);
    machine.Destroy(found);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return WithStream(stream, [](Machine& machine, CUstream_st* found) {
    machine.WaitFor(found);
    machine.HostIsAt(found->time);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return WithStream(stream, [](Machine& machine, CUstream_st* found) {
    if (!found->queue.empty()) machine.DoSome();
    if (!found->queue.empty()) return cudaErrorNotReady;
    machine.WaitFor(found);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return WithStream(nullptr, [](Machine& machine, CUstream_st*) {
    machine.WaitForAll();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  if (event == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  return WithStream(stream, [&](Machine& machine, CUstream_st* found) {
    if (event->mark == nullptr) return cudaSuccess;
    Work work{.name = "wait", .run = [] {}};
    work.after.push_back(event->mark);
    machine.Enqueue(found, std::move(work));
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                               void* data) {
  return WithStream(stream, [&](Machine& machine, CUstream_st* found) {
    machine.Enqueue(found, {.name = "host function",
                            .run = [=] { function(data); },
                            .by_host = true});
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const auto e = Ready(); e != cudaSuccess) return e;
  Machine& machine = TheMachine();
  const delink::MutexLock lock(machine.mutex());
  ++machine.resources_made();
  *event = new CUevent_st{(flags & cudaEventDisableTiming) == 0, nullptr};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  return WithStream(stream, [&](Machine& machine, CUstream_st* found) {
    event->mark = machine.Enqueue(found, {.name = "event", .run = [] {}});
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return WithEvent(event, [&](Machine& machine) {
    if (event->mark == nullptr) return cudaSuccess;
    machine.WaitFor(*event->mark);
    machine.HostIsAt(event->mark->time);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return WithEvent(event, [&](Machine& machine) {
    if (event->mark == nullptr) return cudaSuccess;
    if (!machine.IsDone(*event->mark)) machine.DoSome();
    if (!machine.IsDone(*event->mark)) return cudaErrorNotReady;
    machine.WaitFor(*event->mark);
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                 cudaEvent_t end) {
  if (end == nullptr) return Fail(cudaErrorInvalidResourceHandle);
  return WithEvent(begin, [&](Machine& machine) {
    if (!begin->timing || !end->timing || begin->mark == nullptr ||
        end->mark == nullptr) {
      return Fail(cudaErrorInvalidResourceHandle);
    }
    if (!machine.IsDone(*begin->mark) || !machine.IsDone(*end->mark)) {
      return Fail(cudaErrorNotReady);
    }
    const int64_t nanoseconds = end->mark->time - begin->mark->time;
    *milliseconds = static_cast<float>(1e-6 * static_cast<double>(nanoseconds));
    return cudaSuccess;
  });
}
