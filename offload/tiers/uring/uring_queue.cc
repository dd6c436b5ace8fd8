#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "offload/tiers/disk_queue.h"

namespace delink::offload {
namespace {

// The largest that the kernel registers as one.
constexpr size_t kLargestBuffer = size_t{1} << 30;
constexpr int kFile = 0;  // number of the one that is registered

char* Begin(const iovec& buffer) { return static_cast<char*>(buffer.iov_base); }
char* End(const iovec& buffer) { return Begin(buffer) + buffer.iov_len; }

absl::Status Refused(int error, const char* what) {
  return absl::UnavailableError(absl::StrCat(
      "the system refuses ", what, ": ", std::strerror(error),
      error == ENOMEM ? "; raise the limit of locked memory (ulimit -l)" : ""));
}

// One thread submits and completes all requests: the kernel ties a request to
// the thread that submitted it.
class UringQueue final : public DiskQueue {
 public:
  UringQueue() = default;
  ~UringQueue() override {
    if (thread_.joinable()) {
      Push(nullptr);
      thread_.join();
    }
    if (ring_.ring_fd >= 0) io_uring_queue_exit(&ring_);
    if (wake_ >= 0) close(wake_);
  }

  absl::Status Start(const DiskQueueOptions& options) {
    // One more for wake-ups.
    if (const int error = io_uring_queue_init(
            static_cast<unsigned>(options.most) + 1, &ring_, 0);
        error != 0) {
      ring_.ring_fd = -1;
      return Refused(-error, "io_uring");
    }
    for (const std::span<char> buffer : options.buffers) AddBuffer(buffer);
    std::ranges::sort(buffers_, {}, Begin);
    if (const int error =
            io_uring_register_files(&ring_, &options.descriptor, 1);
        error != 0) {
      return Refused(-error, "a file of io_uring");
    }
    if (const int error = Register(); error != 0) {
      return Refused(-error, "buffers of io_uring");
    }
    wake_ = eventfd(0, EFD_CLOEXEC);
    if (wake_ < 0) return Refused(errno, "an eventfd");
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  void Submit(DiskRequest& request) override {
    if (std::this_thread::get_id() != thread_.get_id()) return Push(&request);
    Prepare(request);
    Enter(0);
  }

 private:
  void AddBuffer(std::span<char> buffer) {
    for (size_t at = 0; at < buffer.size(); at += kLargestBuffer) {
      buffers_.push_back(
          {buffer.data() + at,
           std::min<size_t>(buffer.size() - at, kLargestBuffer)});
    }
  }

  int Register() {
    if (buffers_.empty()) return 0;
    return io_uring_register_buffers(&ring_, buffers_.data(),
                                     static_cast<unsigned>(buffers_.size()));
  }

  // Null: the thread ends.
  void Push(DiskRequest* request) {
    {
      const MutexLock lock(mutex_);
      submitted_.push_back(request);
    }
    const uint64_t one = 1;
    DELINK_CHECK_EQ(write(wake_, &one, sizeof(one)), ssize_t{sizeof(one)});
  }

  void Run() {
    ListenForWakes();
    for (;;) {
      std::vector<DiskRequest*> requests;
      {
        const MutexLock lock(mutex_);
        requests.swap(submitted_);
      }
      for (DiskRequest* const request : requests) {
        if (request == nullptr) return;
        Prepare(*request);
      }
      Enter(1);
      Complete();
    }
  }

  // Submits what is prepared, and waits until `least` requests are complete.
  void Enter(unsigned least) {
    const int error = io_uring_submit_and_wait(&ring_, least);
    DELINK_CHECK(error >= 0 || error == -EINTR || error == -EAGAIN)
        << "io_uring_submit_and_wait: " << std::strerror(-error);
  }

  void ListenForWakes() {
    io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_read(sqe, wake_, &wakes_, sizeof(wakes_), 0);
    io_uring_sqe_set_data(sqe, nullptr);
  }

  void Prepare(DiskRequest& request) {
    io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
    DELINK_CHECK(sqe != nullptr) << "more requests than the queue was made for";
    const auto next =
        std::ranges::upper_bound(buffers_, request.memory, {}, Begin);
    const bool registered =
        next != buffers_.begin() && request.memory < End(*std::prev(next));
    int64_t bytes = request.bytes;
    if (registered) {
      bytes = std::min(bytes, End(*std::prev(next)) - request.memory);
    }
    const int operation =
        request.write ? registered ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE
        : registered  ? IORING_OP_READ_FIXED
                      : IORING_OP_READ;
    io_uring_prep_rw(operation, sqe, kFile, request.memory,
                     static_cast<unsigned>(bytes),
                     static_cast<uint64_t>(request.offset));
    sqe->flags |= IOSQE_FIXED_FILE;
    if (registered) {
      sqe->buf_index = static_cast<uint16_t>(next - buffers_.begin() - 1);
    }
    io_uring_sqe_set_data(sqe, &request);
  }

  void Complete() {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      auto* const request =
          static_cast<DiskRequest*>(io_uring_cqe_get_data(cqe));
      const int64_t result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (request != nullptr) {
        request->Done(result);
      } else {
        ListenForWakes();
      }
    }
  }

  io_uring ring_{.ring_fd = -1};
  std::vector<iovec> buffers_;  // registered, in the order of addresses
  int wake_ = -1;               // an eventfd
  uint64_t wakes_ = 0;          // where it is read to
  Mutex mutex_;
  std::vector<DiskRequest*> submitted_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DiskQueue>> NewUringQueue(
    const DiskQueueOptions& options) {
  auto queue = std::make_unique<UringQueue>();
  DELINK_RETURN_IF_ERROR(queue->Start(options));
  return queue;
}

}  // namespace delink::offload
