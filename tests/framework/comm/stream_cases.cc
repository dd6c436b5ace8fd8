#include "tests/framework/comm/stream_cases.h"

#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/comm/chain.h"
#include "framework/comm/stream_communicator.h"
#include "framework/tensor/buffer.h"
#include "tests/framework/comm/communicator_cases.h"

namespace delink::testing {
namespace {

// The host's memory, brought to the device for each operation, which is
// finished when the call returns.
class ThroughDevice final : public Communicator {
 public:
  ThroughDevice(Device& device, Communicator& comm)
      : device_(device),
        comm_(comm),
        stream_(device.NewStream()),
        on_stream_(StageThroughHost(device, *stream_, comm)) {}

  int rank() const override { return on_stream_->rank(); }
  int size() const override { return on_stream_->size(); }
  std::unique_ptr<Pending> ReduceScatter(const void* send, void* recv,
                                         int64_t count, DType dtype,
                                         ReduceOp op) override {
    const int64_t bytes = count * SizeOf(dtype);
    const Buffer from = ToDevice(send, size() * bytes);
    return OnDevice(recv, bytes, [&](void* to) {
      return on_stream_->ReduceScatter(from.data(), to, count, dtype, op);
    });
  }
  std::unique_ptr<Pending> AllGather(void* buffer, int64_t count,
                                     DType dtype) override {
    return OnDevice(buffer, size() * count * SizeOf(dtype), [&](void* at) {
      return on_stream_->AllGather(at, count, dtype);
    });
  }
  std::unique_ptr<Pending> AllReduce(void* buffer, int64_t count, DType dtype,
                                     ReduceOp op) override {
    return OnDevice(buffer, count * SizeOf(dtype), [&](void* at) {
      return on_stream_->AllReduce(at, count, dtype, op);
    });
  }
  std::unique_ptr<Pending> Broadcast(void* buffer, int64_t count, DType dtype,
                                     int root) override {
    return OnDevice(buffer, count * SizeOf(dtype), [&](void* at) {
      return on_stream_->Broadcast(at, count, dtype, root);
    });
  }
  std::unique_ptr<Pending> Send(const void*, int64_t, DType, int,
                                int) override {
    ADD_FAILURE() << "would wait for its Recv";
    return nullptr;
  }
  std::unique_ptr<Pending> Recv(void*, int64_t, DType, int, int) override {
    ADD_FAILURE() << "would wait for its Send";
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color,
                                                      int key) override {
    return comm_.Split(color, key);
  }
  void Abort(int code, std::string_view message) override {
    comm_.Abort(code, message);
  }

 private:
  class Done final : public Pending {
   public:
    explicit Done(absl::Status status) : status_(std::move(status)) {
      (void)Test();
    }

   private:
    absl::StatusOr<bool> Poll() override {
      if (!status_.ok()) return status_;
      return true;
    }
    const absl::Status status_;
  };

  Buffer ToDevice(const void* host, int64_t bytes) {
    Buffer buffer = *Buffer::Allocate(device_, bytes);
    device_.CopyFromHost(*stream_, buffer.data(), host, bytes);
    return buffer;
  }
  // What the stream is given before and behind an operation is in its order.
  template <typename Run>
  std::unique_ptr<Pending> OnDevice(void* host, int64_t bytes, Run run) {
    const Buffer buffer = ToDevice(host, bytes);
    const absl::Status status = run(buffer.data())->Wait();
    device_.CopyToHost(*stream_, host, buffer.data(), bytes);
    stream_->Synchronize();
    return std::make_unique<Done>(status);
  }

  Device& device_;
  Communicator& comm_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<StreamCommunicator> on_stream_;
};

}  // namespace

absl::Status CheckStreamCases(Device& device, Communicator& comm) {
  ThroughDevice through(device, comm);
  for (const auto check :
       {CheckReduceScatter, CheckAllGather, CheckAllReduce, CheckBroadcast,
        CheckScalars, CheckAgreement, CheckStrings, CheckOrderOfSums,
        CheckRepeatable, CheckCanaries}) {
    DELINK_RETURN_IF_ERROR(check(through));
  }
  return absl::OkStatus();
}

absl::Status CheckStreamRing(Device& device, Communicator& comm) {
  constexpr int64_t kCount = 100'003;  // beyond what small copies are
  const int right = (comm.rank() + 1) % comm.size();
  const int left = (comm.rank() + comm.size() - 1) % comm.size();
  DELINK_ASSIGN_OR_RETURN(const auto other, comm.Split(0, comm.rank()));
  const std::unique_ptr<Stream> out = device.NewStream();
  const std::unique_ptr<Stream> in = device.NewStream();
  const auto sends = StageThroughHost(device, *out, comm);
  const auto receives = StageThroughHost(device, *in, comm);
  const Buffer sent = *Buffer::Allocate(device, kCount * 4);
  const Buffer received = *Buffer::Allocate(device, kCount * 4);
  for (int32_t round = 0; round < 3; ++round) {
    std::vector<int32_t> mine(kCount, 100 * round + comm.rank());
    device.CopyFromHost(*out, sent.data(), mine.data(), kCount * 4);
    const auto send =
        sends->Send(sent.data(), kCount, DType::kI32, right, round);
    // All come to this before anybody receives: neither the call nor Test may
    // wait.
    for (int look = 0; look < 100; ++look) (void)send->Test();
    DELINK_RETURN_IF_ERROR(Barrier(*other));
    const auto receive =
        receives->Recv(received.data(), kCount, DType::kI32, left, round);
    absl::Status status;
    for (bool sending = true, receiving = true; sending || receiving;) {
      const auto s = send->Test(), r = receive->Test();
      status.Update(s.status());
      status.Update(r.status());
      sending = s.ok() && !*s;
      receiving = r.ok() && !*r;
    }
    DELINK_RETURN_IF_ERROR(status);
    device.CopyToHost(*in, mine.data(), received.data(), kCount * 4);
    in->Synchronize();
    EXPECT_EQ(mine, std::vector<int32_t>(kCount, 100 * round + left));
  }
  return absl::OkStatus();
}

absl::Status CheckAllToAllV(Device& device, Communicator& comm) {
  const std::unique_ptr<Stream> stream = device.NewStream();
  const auto on_stream = StageThroughHost(device, *stream, comm);
  // From rank a to rank b; some are empty.
  const auto count = [](int a, int b) {
    return int64_t{1000} * ((a * 3 + b * 2 + 1) % 4) + (a + b) % 2;
  };
  const auto value = [](int a, int b, int64_t i) {
    return static_cast<int32_t>(a * 1'000'000 + b * 100'000 + i);
  };
  AllToAllV what{.dtype = DType::kI32};
  std::vector<int32_t> sent, expected;
  for (int rank = 0; rank < comm.size(); ++rank) {
    what.send_counts.push_back(count(comm.rank(), rank));
    what.recv_counts.push_back(count(rank, comm.rank()));
    for (int64_t i = 0; i < what.send_counts.back(); ++i) {
      sent.push_back(value(comm.rank(), rank, i));
    }
    for (int64_t i = 0; i < what.recv_counts.back(); ++i) {
      expected.push_back(value(rank, comm.rank(), i));
    }
  }
  const auto bytes = [](const auto& x) {
    return static_cast<int64_t>(4 * x.size());
  };
  const Buffer from = *Buffer::Allocate(device, bytes(sent));
  const Buffer to = *Buffer::Allocate(device, bytes(expected));
  device.CopyFromHost(*stream, from.data(), sent.data(), bytes(sent));
  what.send = from.data(), what.recv = to.data();
  if (const auto pending = Post(*on_stream, what)) {
    DELINK_RETURN_IF_ERROR(pending->Wait());
  }
  std::vector<int32_t> got(expected.size());
  device.CopyToHost(*stream, got.data(), to.data(), bytes(got));
  stream->Synchronize();
  EXPECT_EQ(got, expected);
  return absl::OkStatus();
}

}  // namespace delink::testing
