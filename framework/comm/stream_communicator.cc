#include "framework/comm/stream_communicator.h"

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/check.h"
#include "framework/comm/chain.h"

namespace delink {
namespace {

class UntilReached final : public Pending {
 public:
  UntilReached(Stream& stream, const Event& event)
      : stream_(stream), event_(event) {}

 private:
  absl::StatusOr<bool> Poll() override { return stream_.Reached(event_); }

  Stream& stream_;
  const Event& event_;
};

class Staged final : public StreamCommunicator {
 public:
  Staged(Device& device, Stream& stream, Communicator& comm)
      : device_(device),
        stream_(stream),
        comm_(comm),
        direct_(!IsCuda(device.kind())),
        event_(device.NewEvent()) {}

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }

  std::unique_ptr<Pending> ReduceScatter(const void* send, void* recv,
                                         int64_t count, DType dtype,
                                         ReduceOp op) override {
    if (direct_) return comm_.ReduceScatter(send, recv, count, dtype, op);
    const int64_t bytes = count * SizeOf(dtype), all = size() * bytes;
    char* const host = Take(all + bytes);
    return ByHost({send, host, all},
                  [=, this] {
                    return comm_.ReduceScatter(host, host + all, count, dtype,
                                               op);
                  },
                  {host + all, recv, bytes});
  }

  std::unique_ptr<Pending> AllGather(void* buffer, int64_t count,
                                     DType dtype) override {
    if (direct_) return comm_.AllGather(buffer, count, dtype);
    const int64_t bytes = count * SizeOf(dtype), own = rank() * bytes;
    char* const host = Take(size() * bytes);
    return ByHost({static_cast<const char*>(buffer) + own, host + own, bytes},
                  [=, this] { return comm_.AllGather(host, count, dtype); },
                  {host, buffer, size() * bytes});
  }

  std::unique_ptr<Pending> AllReduce(void* buffer, int64_t count, DType dtype,
                                     ReduceOp op) override {
    if (direct_) return comm_.AllReduce(buffer, count, dtype, op);
    const int64_t bytes = count * SizeOf(dtype);
    char* const host = Take(bytes);
    return ByHost({buffer, host, bytes},
                  [=, this] { return comm_.AllReduce(host, count, dtype, op); },
                  {host, buffer, bytes});
  }

  std::unique_ptr<Pending> Broadcast(void* buffer, int64_t count, DType dtype,
                                     int root) override {
    if (direct_) return comm_.Broadcast(buffer, count, dtype, root);
    const int64_t bytes = count * SizeOf(dtype);
    char* const host = Take(bytes);
    const bool sends = rank() == root;
    return ByHost(
        {buffer, host, sends ? bytes : 0},
        [=, this] { return comm_.Broadcast(host, count, dtype, root); },
        {host, buffer, sends ? 0 : bytes});
  }

  std::unique_ptr<Pending> Send(const void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override {
    if (direct_) return comm_.Send(buffer, count, dtype, peer, tag);
    const int64_t bytes = count * SizeOf(dtype);
    char* const host = Take(bytes);
    return ByHost(
        {buffer, host, bytes},
        [=, this] { return comm_.Send(host, count, dtype, peer, tag); }, {});
  }

  std::unique_ptr<Pending> Recv(void* buffer, int64_t count, DType dtype,
                                int peer, int tag) override {
    if (direct_) return comm_.Recv(buffer, count, dtype, peer, tag);
    const int64_t bytes = count * SizeOf(dtype);
    char* const host = Take(bytes);
    return ByHost(
        {}, [=, this] { return comm_.Recv(host, count, dtype, peer, tag); },
        {host, buffer, bytes});
  }

 private:
  struct Copy {
    const void* from = nullptr;
    void* to = nullptr;
    int64_t bytes = 0;
  };

  // Host memory for the operation that begins.
  char* Take(int64_t bytes) {
    DELINK_CHECK(!under_way_) << "one operation of a stream at a time";
    under_way_ = true;
    host_.resize(static_cast<size_t>(bytes));
    return host_.data();
  }

  std::unique_ptr<Pending> ByHost(const Copy& in, Stage exchange,
                                  const Copy& out) {
    // A copy to the host may make the host wait for the stream: first the
    // stream gets there.
    return Chain(in.bytes > 0 ? Reach() : nullptr,
                 {[=, this] {
                    device_.CopyToHost(stream_, in.to, in.from, in.bytes);
                    return in.bytes > 0 ? Reach() : nullptr;
                  },
                  std::move(exchange),
                  [=, this] {
                    device_.CopyFromHost(stream_, out.to, out.from, out.bytes);
                    return out.bytes > 0 ? Reach() : nullptr;
                  },
                  [this]() -> std::unique_ptr<Pending> {
                    under_way_ = false;
                    return nullptr;
                  }});
  }

  // Until the stream is done with what it was given; null where it is.
  std::unique_ptr<Pending> Reach() {
    stream_.Record(*event_);
    if (stream_.Reached(*event_)) return nullptr;
    return std::make_unique<UntilReached>(stream_, *event_);
  }

  Device& device_;
  Stream& stream_;
  Communicator& comm_;
  const bool direct_;
  const std::unique_ptr<Event> event_;
  std::vector<char> host_;
  bool under_way_ = false;
};

}  // namespace

std::unique_ptr<StreamCommunicator> StageThroughHost(Device& device,
                                                     Stream& stream,
                                                     Communicator& comm) {
  return std::make_unique<Staged>(device, stream, comm);
}

}  // namespace delink
