// Pinned host memory through which small copies go, so that the host need not
// wait for them: from and to other host memory the runtime copies only once the
// stream has got there.
//
// Copies to the device take their bytes at once, into a ring of segments that
// are used again when the copies out of them are done. Copies to the host land
// here, and are handed on when the stream is done. One stream at a time has it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "framework/device/ledger.h"

namespace delink::cuda {

class Staging {
 public:
  static constexpr int64_t kSegment = int64_t{1} << 20;  // bytes
  static constexpr int kSegments = 8;
  static constexpr int64_t kLanding = int64_t{64} << 10;
  // Half the ring: a step's few copies find room without waiting.
  static constexpr int64_t kLargest = kSegment * kSegments / 2;

  // `ledger`: of pinned memory; outlives it.
  explicit Staging(MemoryLedger& ledger);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void ToDevice(cudaStream_t stream, void* device, const void* host,
                int64_t bytes);
  // False, and nothing is done, where there is no room until the next
  // DeliverToHost.
  bool ToHost(cudaStream_t stream, void* host, const void* device,
              int64_t bytes);
  // The stream is done: hands on what ToHost copied.
  void DeliverToHost();
  // Or drops it.
  void Forget() { arrivals_.clear(), landed_ = 0; }

 private:
  struct Arrival {
    void* host;
    int64_t offset;
    int64_t bytes;
  };
  MemoryLedger& ledger_;
  char* memory_ = nullptr;       // the ring, then where copies to the host land
  cudaEvent_t left_[kSegments];  // the copies out of each segment
  int64_t next_ = 0;             // in the ring
  int64_t landed_ = 0;
  std::vector<Arrival> arrivals_;
};

}  // namespace delink::cuda
