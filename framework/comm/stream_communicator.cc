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

// An operation that holds the buffer until it ends, with an error or not.
class Having final : public Pending {
 public:
  Having(std::unique_ptr<Pending> operation, bool& had)
      : operation_(std::move(operation)), had_(had) {}

 private:
  absl::StatusOr<bool> Poll() override {
    absl::StatusOr<bool> done = operation_->Test();
    if (!done.ok() || *done) had_ = false;
    return done;
  }

  const std::unique_ptr<Pending> operation_;
  bool& had_;
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
  bool overlaps() const override { return direct_; }

  std::unique_ptr<Pending> ReduceScatter(const void* send, void* recv,
                                         int64_t count, DType dtype,
                                         ReduceOp op) override {
    if (direct_) return comm_.ReduceScatter(send, recv, count, dtype, op);
    const int64_t bytes = count * SizeOf(dtype), all = size() * bytes;
    char* const host = Take(all + bytes);
    return ByHost({{send, host, all}},
                  [=, this] {
                    return comm_.ReduceScatter(host, host + all, count, dtype,
                                               op);
                  },
                  {{host + all, recv, bytes}});
  }

  std::unique_ptr<Pending> AllGather(void* buffer, int64_t count,
                                     DType dtype) override {
    if (direct_) return comm_.AllGather(buffer, count, dtype);
    const int64_t bytes = count * SizeOf(dtype), own = rank() * bytes;
    char* const host = Take(size() * bytes);
    return ByHost({{static_cast<const char*>(buffer) + own, host + own, bytes}},
                  [=, this] { return comm_.AllGather(host, count, dtype); },
                  {{host, buffer, size() * bytes}});
  }

  std::unique_ptr<Pending> AllReduce(void* buffer, int64_t count, DType dtype,
                                     ReduceOp op) override {
    if (direct_) return comm_.AllReduce(buffer, count, dtype, op);
    const int64_t bytes = count * SizeOf(dtype);
    char* const host = Take(bytes);
    return ByHost({{buffer, host, bytes}},
                  [=, this] { return comm_.AllReduce(host, count, dtype, op); },
                  {{host, buffer, bytes}});
  }

  std::unique_ptr<Pending> Broadcast(void* buffer, int64_t count, DType dtype,
                                     int root) override {
    if (direct_) return comm_.Broadcast(buffer, count, dtype, root);
    const int64_t bytes = count * SizeOf(dtype);
    char* const host = Take(bytes);
    const bool sends = rank() == root;
    return ByHost(
        {{buffer, host, sends ? bytes : 0}},
        [=, this] { return comm_.Broadcast(host, count, dtype, root); },
        {{host, buffer, sends ? 0 : bytes}});
  }

  std::unique_ptr<Pending> Exchange(
      std::span<const Transfer> transfers) override {
    std::vector<Transfer> with_others;
    CopyWithin(transfers, with_others);
    if (direct_) return PostAll(with_others);
    int64_t bytes = 0;
    for (const Transfer& t : with_others) bytes += t.count * SizeOf(t.dtype);
    char* at = Take(bytes);
    std::vector<Copy> in, out;
    for (Transfer& t : with_others) {
      const int64_t size = t.count * SizeOf(t.dtype);
      if (t.send != nullptr) {
        in.push_back({t.send, at, size});
        t.send = at;
      } else {
        out.push_back({at, t.recv, size});
        t.recv = at;
      }
      at += size;
    }
    return ByHost(
        std::move(in), [=, this] { return PostAll(with_others); },
        std::move(out));
  }

 private:
  struct Copy {
    const void* from = nullptr;
    void* to = nullptr;
    int64_t bytes = 0;
  };

  // Host memory for the operation that begins; its contents are not kept. In a
  // run the first step already takes the most.
  char* Take(int64_t bytes) {
    DELINK_CHECK(!under_way_) << "one operation of a stream at a time";
    under_way_ = true;
    if (bytes > host_bytes_) {
      host_.reset();
      host_ = device_.AllocateHost(bytes, "exchanges");
      host_bytes_ = bytes;
    }
    return static_cast<char*>(host_.get());
  }

  // Makes a rank's transfers to itself; the rest goes to `others`.
  void CopyWithin(std::span<const Transfer> transfers,
                  std::vector<Transfer>& others) {
    std::vector<Transfer> sent, received;
    for (const Transfer& t : transfers) {
      if (t.count == 0) continue;  // on both sides alike
      DELINK_CHECK((t.send == nullptr) != (t.recv == nullptr));
      auto& list = t.peer != rank()    ? others
                   : t.send != nullptr ? sent
                                       : received;
      list.push_back(t);
    }
    DELINK_CHECK_EQ(sent.size(), received.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      DELINK_CHECK_EQ(sent[i].count, received[i].count);
      device_.Copy(stream_, received[i].recv, sent[i].send,
                   sent[i].count * SizeOf(sent[i].dtype));
    }
  }

  std::unique_ptr<Pending> PostAll(const std::vector<Transfer>& transfers) {
    std::vector<std::unique_ptr<Pending>> posted;
    for (const Transfer& t : transfers) {
      posted.push_back(
          t.send != nullptr
              ? comm_.Send(t.send, t.count, t.dtype, t.peer, t.tag)
              : comm_.Recv(t.recv, t.count, t.dtype, t.peer, t.tag));
    }
    return All(std::move(posted));
  }

  std::unique_ptr<Pending> ByHost(std::vector<Copy> in, ChainStep exchange,
                                  std::vector<Copy> out) {
    // If memory is not pinned, a copy to the host may make the host wait for
    // the stream. So the stream's earlier work is finished first.
    std::unique_ptr<Pending> all =
        Chain(in.empty() ? nullptr : Reach(),
              {[=, this] {
                 for (const Copy& c : in) {
                   device_.CopyToHost(stream_, c.to, c.from, c.bytes);
                 }
                 return in.empty() ? nullptr : Reach();
               },
               std::move(exchange),
               [=, this] {
                 for (const Copy& c : out) {
                   device_.CopyFromHost(stream_, c.to, c.from, c.bytes);
                 }
                 return out.empty() ? nullptr : Reach();
               }});
    under_way_ = all != nullptr;
    if (all == nullptr) return nullptr;
    return std::make_unique<Having>(std::move(all), under_way_);
  }

  // Finished when the stream has done all work so far; null if it has.
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
  HostMemory host_;
  int64_t host_bytes_ = 0;
  bool under_way_ = false;
};

}  // namespace

std::unique_ptr<Pending> StreamCommunicator::Send(const void* buffer,
                                                  int64_t count, DType dtype,
                                                  int peer, int tag) {
  const Transfer one{
      .send = buffer, .count = count, .dtype = dtype, .peer = peer, .tag = tag};
  return Exchange({&one, 1});
}

std::unique_ptr<Pending> StreamCommunicator::Recv(void* buffer, int64_t count,
                                                  DType dtype, int peer,
                                                  int tag) {
  const Transfer one{
      .recv = buffer, .count = count, .dtype = dtype, .peer = peer, .tag = tag};
  return Exchange({&one, 1});
}

std::unique_ptr<Pending> Post(StreamCommunicator& comm, const AllToAllV& what) {
  std::vector<Transfer> transfers;
  const int64_t width = SizeOf(what.dtype);
  const auto* send = static_cast<const char*>(what.send);
  auto* recv = static_cast<char*>(what.recv);
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    Transfer t{.dtype = what.dtype, .peer = rank, .tag = what.tag};
    t.send = send, t.count = what.send_counts[r];
    send += t.count * width;
    if (t.count > 0) transfers.push_back(t);
    t.send = nullptr, t.recv = recv, t.count = what.recv_counts[r];
    recv += t.count * width;
    if (t.count > 0) transfers.push_back(t);
  }
  return comm.Exchange(transfers);
}

std::unique_ptr<StreamCommunicator> StageThroughHost(Device& device,
                                                     Stream& stream,
                                                     Communicator& comm) {
  return std::make_unique<Staged>(device, stream, comm);
}

}  // namespace delink
