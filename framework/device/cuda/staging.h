// Pinned host memory for small copies, so that the host need not wait for them.
// (With other host memory the runtime makes the host wait until the stream
// reaches the copy.)
//
// Copies to the device first put their bytes into a ring of segments. A segment
// is reused when the copies out of it are done. Copies to the host land here
// and are delivered when the stream is done. One stream at a time uses it.
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
  // Half the ring, so that a step's few copies need not wait for room.
  static constexpr int64_t kLargest = kSegment * kSegments / 2;

  // `ledger`: of pinned memory; outlives it.
  explicit Staging(MemoryLedger& ledger);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void ToDevice(cudaStream_t stream, void* device, const void* host,
                int64_t bytes);
  // If there is no room until the next DeliverToHost, does nothing and returns
  // false.
  bool ToHost(cudaStream_t stream, void* host, const void* device,
              int64_t bytes);
  // Call it when the stream is done: delivers the bytes that ToHost copied.
  void DeliverToHost();
  // Drops them instead.
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
