// A stream of the CPU whose kernels run over threads of their own, instead of
// those that the thread which calls would take (OpenMP's): that of a lane which
// works beside one that computes.
#pragma once

#include <memory>

#include "framework/base/thread_pool.h"
#include "framework/device/backend.h"

namespace delink {

// As a stream of `device`, which is a CPU; the pool stays until it goes and
// serves no other thread meanwhile. Results do not depend on it: kernels cut
// their work as ever. Optimizers' kernels look for it (framework/optim/cpu);
// others compute as on any stream.
std::unique_ptr<Stream> NewPooledStream(Device& device, ThreadPool& pool);

// Null where the stream has none.
ThreadPool* PoolOf(Stream& stream);

}  // namespace delink
