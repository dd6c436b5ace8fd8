#include "parallel/mpi/mpi_communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "framework/comm/arguments.h"
#include "framework/comm/backoff.h"
#include "parallel/mpi/mpi_reduce_scatter.h"

namespace delink {
namespace {

// For operations that only move bytes, any type of the right width will do.
MPI_Datatype TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kBF16:
      return MPI_UINT16_T;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    case DType::kU8:
      return MPI_UINT8_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return MPI_SUM;
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kMin:
      return MPI_MIN;
  }
  return MPI_OP_NULL;
}

char* At(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

const char* At(const void* base, int64_t bytes) {
  return static_cast<const char*>(base) + bytes;
}

// Posts a call and waits for it. MPI's own waits never sleep, so waiting ranks
// would take the cores of those that they wait for.
template <typename Post>
int WaitAsleep(Post post) {
  MPI_Request request = MPI_REQUEST_NULL;
  int error = post(&request);
  int done = 0;
  Backoff backoff;
  while (error == MPI_SUCCESS && done == 0) {
    error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) backoff.Pause();
  }
  return error;
}

// Waits, asleep, until all ranks arrive, because splits use MPI's own waits.
int Meet(MPI_Comm comm) {
  return WaitAsleep(
      [comm](MPI_Request* request) { return MPI_Ibarrier(comm, request); });
}

}  // namespace

int DuplicateAsleep(MPI_Comm comm, MPI_Comm* copy) {
  return WaitAsleep([comm, copy](MPI_Request* request) {
    return MPI_Comm_idup(comm, copy, request);
  });
}

absl::Status MpiStatus(int error, std::string_view call) {
  if (error == MPI_SUCCESS) return absl::OkStatus();
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(error, text.data(), &length);
  return absl::UnavailableError(
      absl::StrFormat("%s: %s", call, std::string_view(text.data(), length)));
}

absl::StatusOr<std::shared_ptr<MpiRuntime>> MpiRuntime::Start(int* argc,
                                                              char*** argv) {
  // With more ranks than cores Open MPI would yield the core at each poll that
  // finds nothing, which the ranks' own waits avoid (backoff.h).
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
  int provided = MPI_THREAD_SINGLE;
  DELINK_RETURN_IF_ERROR(
      MpiStatus(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided),
                "MPI_Init_thread"));
  std::shared_ptr<MpiRuntime> runtime(new MpiRuntime);
  if (provided < MPI_THREAD_SERIALIZED) {
    return absl::FailedPreconditionError(
        "this MPI cannot be called from several threads "
        "(MPI_THREAD_SERIALIZED); build with one that can, such as Open MPI");
  }
  return runtime;
}

MpiRuntime::~MpiRuntime() { MPI_Finalize(); }

// One operation: the MPI requests that it was split into.
class MpiCommunicator::Requests : public Pending {
 public:
  Requests(std::shared_ptr<MpiRuntime> runtime, std::string_view call)
      : runtime_(std::move(runtime)), call_(call) {}

  TimedMutex& mutex() ABSL_LOCK_RETURNED(runtime_->mutex()) {
    return runtime_->mutex();
  }

  // Posts one MPI call.
  template <typename Post>
  void Add(Post post) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex()) {
    if (!status_.ok()) return;
    MPI_Request request = MPI_REQUEST_NULL;
    status_ = MpiStatus(post(&request), call_);
    requests_.push_back(request);
  }

  // Posts calls for `count` elements, none with more than `largest`:
  // post(first element, elements, request). At least one.
  template <typename Post>
  void AddPieces(int64_t count, int64_t largest, Post post)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex()) {
    int64_t first = 0;
    do {
      const int64_t n = std::min(count - first, largest);
      Add([&](MPI_Request* request) {
        return post(first, static_cast<int>(n), request);
      });
      first += n;
    } while (first < count);
  }

 private:
  absl::StatusOr<bool> Poll() override {
    const MutexLock lock(runtime_->mutex());
    if (!status_.ok()) return status_;
    int done = 0;
    status_ =
        MpiStatus(MPI_Testall(static_cast<int>(requests_.size()),
                              requests_.data(), &done, MPI_STATUSES_IGNORE),
                  call_);
    if (!status_.ok()) return status_;
    return done != 0;
  }

  const std::shared_ptr<MpiRuntime> runtime_;
  const std::string_view call_;
  std::vector<MPI_Request> requests_ ABSL_GUARDED_BY(runtime_->mutex());
  absl::Status status_ ABSL_GUARDED_BY(runtime_->mutex());
};

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiRuntime> runtime,
                                 MPI_Comm comm, int64_t largest)
    : runtime_(std::move(runtime)), comm_(comm), largest_(largest) {
  const MutexLock lock(runtime_->mutex());
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  DuplicateAsleep(comm_, &pieces_comm_);  // takes the error handler along
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

MpiCommunicator::~MpiCommunicator() {
  const MutexLock lock(runtime_->mutex());
  MPI_Comm_free(&pieces_comm_);
  MPI_Comm_free(&comm_);
}

std::unique_ptr<Pending> MpiCommunicator::ReduceScatter(
    const void* send, void* recv, int64_t count, DType dtype, ReduceOp op) {
  comm::CheckReduceScatter(count, dtype);
  const MutexLock lock(runtime_->mutex());
  // Tags repeat only when no operation of that age is under way any more.
  const int tag = reduce_scatters_++ % kTags;
  return std::make_unique<MpiReduceScatter>(
      runtime_,
      MpiReduceScatter::Arguments{pieces_comm_, rank_, size_, tag, send, recv,
                                  count, dtype, TypeOf(dtype), op, largest_});
}

std::unique_ptr<Pending> MpiCommunicator::AllGather(void* buffer, int64_t count,
                                                    DType dtype) {
  comm::CheckCount(count);
  auto requests = std::make_unique<Requests>(runtime_, "AllGather");
  const MutexLock lock(requests->mutex());
  if (count * size_ <= largest_) {
    requests->Add([&](MPI_Request* request) {
      return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buffer,
                            static_cast<int>(count), TypeOf(dtype), comm_,
                            request);
    });
    return requests;
  }
  const int64_t width = SizeOf(dtype);
  for (int root = 0; root < size_; ++root) {
    char* const chunk = At(buffer, root * count * width);
    requests->AddPieces(
        count, largest_, [&](int64_t first, int n, MPI_Request* request) {
          return MPI_Ibcast(At(chunk, first * width), n, TypeOf(dtype), root,
                            comm_, request);
        });
  }
  return requests;
}

std::unique_ptr<Pending> MpiCommunicator::AllReduce(void* buffer, int64_t count,
                                                    DType dtype, ReduceOp op) {
  comm::CheckAllReduce(count, dtype);
  auto requests = std::make_unique<Requests>(runtime_, "AllReduce");
  const MutexLock lock(requests->mutex());
  requests->AddPieces(
      count, largest_, [&](int64_t first, int n, MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, At(buffer, first * SizeOf(dtype)),
                              n, TypeOf(dtype), OpOf(op), comm_, request);
      });
  return requests;
}

std::unique_ptr<Pending> MpiCommunicator::Broadcast(void* buffer, int64_t count,
                                                    DType dtype, int root) {
  comm::CheckCount(count);
  comm::CheckRoot(*this, root);
  auto requests = std::make_unique<Requests>(runtime_, "Broadcast");
  const MutexLock lock(requests->mutex());
  requests->AddPieces(count, largest_,
                      [&](int64_t first, int n, MPI_Request* request) {
                        return MPI_Ibcast(At(buffer, first * SizeOf(dtype)), n,
                                          TypeOf(dtype), root, comm_, request);
                      });
  return requests;
}

std::unique_ptr<Pending> MpiCommunicator::Send(const void* buffer,
                                               int64_t count, DType dtype,
                                               int peer, int tag) {
  comm::CheckCount(count);
  comm::CheckPeer(*this, peer, tag);
  auto requests = std::make_unique<Requests>(runtime_, "Send");
  const MutexLock lock(requests->mutex());
  requests->AddPieces(
      count, largest_, [&](int64_t first, int n, MPI_Request* request) {
        return MPI_Isend(At(buffer, first * SizeOf(dtype)), n, TypeOf(dtype),
                         peer, tag, comm_, request);
      });
  return requests;
}

std::unique_ptr<Pending> MpiCommunicator::Recv(void* buffer, int64_t count,
                                               DType dtype, int peer, int tag) {
  comm::CheckCount(count);
  comm::CheckPeer(*this, peer, tag);
  auto requests = std::make_unique<Requests>(runtime_, "Recv");
  const MutexLock lock(requests->mutex());
  requests->AddPieces(
      count, largest_, [&](int64_t first, int n, MPI_Request* request) {
        return MPI_Irecv(At(buffer, first * SizeOf(dtype)), n, TypeOf(dtype),
                         peer, tag, comm_, request);
      });
  return requests;
}

absl::StatusOr<std::unique_ptr<Communicator>> MpiCommunicator::Split(int color,
                                                                     int key) {
  comm::CheckColor(color);
  MPI_Comm part = MPI_COMM_NULL;
  {
    const MutexLock lock(runtime_->mutex());
    DELINK_RETURN_IF_ERROR(MpiStatus(Meet(comm_), "Split"));
    DELINK_RETURN_IF_ERROR(
        MpiStatus(MPI_Comm_split(comm_, color, key, &part), "Split"));
  }
  return std::make_unique<MpiCommunicator>(runtime_, part, largest_);
}

absl::StatusOr<std::unique_ptr<Communicator>> MpiCommunicator::Duplicate(
    int64_t largest) {
  MPI_Comm copy = MPI_COMM_NULL;
  {
    const MutexLock lock(runtime_->mutex());
    DELINK_RETURN_IF_ERROR(
        MpiStatus(DuplicateAsleep(comm_, &copy), "MPI_Comm_idup"));
  }
  return std::make_unique<MpiCommunicator>(runtime_, copy, largest);
}

absl::StatusOr<std::unique_ptr<Communicator>>
MpiCommunicator::SplitByMachine() {
  MPI_Comm part = MPI_COMM_NULL;
  {
    const MutexLock lock(runtime_->mutex());
    DELINK_RETURN_IF_ERROR(MpiStatus(Meet(comm_), "SplitByMachine"));
    DELINK_RETURN_IF_ERROR(
        MpiStatus(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_,
                                      MPI_INFO_NULL, &part),
                  "MPI_Comm_split_type"));
  }
  return std::make_unique<MpiCommunicator>(runtime_, part, largest_);
}

void MpiCommunicator::Abort(int code, std::string_view message) {
  // The log names every rank but 0. An error that all ranks agreed on already
  // names its rank.
  const bool named = LogRank() != 0 || message.starts_with("rank ");
  DELINK_LOG(kError) << (named ? "" : "rank 0: ") << message;
  // The thread that holds the mutex may hang, so wait only briefly.
  const bool locked = runtime_->mutex().TryLockFor(std::chrono::seconds(2));
  MPI_Abort(MPI_COMM_WORLD, code);
  if (locked) runtime_->mutex().Unlock();
  std::_Exit(code);
}

}  // namespace delink
