// The system's reads and writes of one file, several at a time: what a backend
// of the disk tier must do.
//
// Contract
// - Submit returns at once. The queue calls Done once for each request, on a
//   thread of its own; in no order. Done may submit requests, the same too.
// - A request may move fewer bytes than it asks for. The rest is the caller's
//   to submit.
// - A request and its memory live until Done. No request is under way when the
//   queue is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

namespace delink::offload {

class DiskRequest {
 public:
  DiskRequest() = default;
  DiskRequest(const DiskRequest&) = delete;
  DiskRequest& operator=(const DiskRequest&) = delete;
  virtual ~DiskRequest() = default;

  // `result`: bytes moved, 0 if the file ends before, or minus an errno.
  virtual void Done(int64_t result) = 0;

  bool write = false;
  int64_t offset = 0;  // in the file
  char* memory = nullptr;
  int64_t bytes = 0;
};

class DiskQueue {
 public:
  virtual ~DiskQueue() = default;
  // Thread-safe.
  virtual void Submit(DiskRequest& request) = 0;
};

struct DiskQueueOptions {
  int descriptor = -1;  // not owned
  bool direct = true;   // the file bypasses the page cache (O_DIRECT)
  int most = 1;         // requests under way
  // Memory that requests use often. Requests may use other memory too.
  std::span<const std::span<char>> buffers;
};

// pread and pwrite on `most` threads. Bytes that go through the page cache
// leave it at once.
std::unique_ptr<DiskQueue> NewThreadQueue(const DiskQueueOptions& options);

// io_uring on one thread, with the file and the buffers registered. Only for
// direct files, as others may make its thread wait. Unavailable: the build has
// no liburing, or the system refuses; the message says which.
absl::StatusOr<std::unique_ptr<DiskQueue>> NewUringQueue(
    const DiskQueueOptions& options);

}  // namespace delink::offload
