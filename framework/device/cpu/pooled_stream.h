// A CPU stream whose kernels run on the threads of a pool instead of the
// caller's OpenMP threads: for a lane that works beside the computing one.
#pragma once

#include <memory>

#include "framework/base/thread_pool.h"
#include "framework/device/backend.h"

namespace delink {

// A stream of `device`, which is a CPU. The pool must outlive the stream and
// serve no other thread meanwhile. Results do not depend on the pool: kernels
// divide their work as always. Only optimizers' kernels use it
// (framework/optim/cpu); others run as on any stream.
std::unique_ptr<Stream> NewPooledStream(Device& device, ThreadPool& pool);

// Null if the stream has none.
ThreadPool* PoolOf(Stream& stream);

}  // namespace delink
