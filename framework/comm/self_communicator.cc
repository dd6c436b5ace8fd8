#include "framework/comm/self_communicator.h"

#include <cstdlib>
#include <cstring>

#include "absl/status/statusor.h"
#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/comm/arguments.h"

namespace delink {
namespace {

class Done : public Pending {
 public:
  // The operation is complete, so its Pending may be destroyed without a wait.
  Done() { DELINK_CHECK(Test().ok()); }

 private:
  absl::StatusOr<bool> Poll() override { return true; }
};

}  // namespace

std::unique_ptr<Pending> SelfCommunicator::ReduceScatter(
    const void* send, void* recv, int64_t count, DType dtype, ReduceOp) {
  comm::CheckReduceScatter(count, dtype);
  if (count > 0) std::memcpy(recv, send, count * SizeOf(dtype));
  return std::make_unique<Done>();
}

std::unique_ptr<Pending> SelfCommunicator::AllGather(void*, int64_t count,
                                                     DType) {
  comm::CheckCount(count);
  return std::make_unique<Done>();
}

std::unique_ptr<Pending> SelfCommunicator::AllReduce(void*, int64_t count,
                                                     DType dtype, ReduceOp) {
  comm::CheckAllReduce(count, dtype);
  return std::make_unique<Done>();
}

std::unique_ptr<Pending> SelfCommunicator::Broadcast(void*, int64_t count,
                                                     DType, int root) {
  comm::CheckCount(count);
  comm::CheckRoot(*this, root);
  return std::make_unique<Done>();
}

std::unique_ptr<Pending> SelfCommunicator::Send(const void*, int64_t count,
                                                DType, int peer, int tag) {
  comm::CheckCount(count);
  comm::CheckPeer(*this, peer, tag);
  return std::make_unique<Done>();
}

std::unique_ptr<Pending> SelfCommunicator::Recv(void*, int64_t count, DType,
                                                int peer, int tag) {
  comm::CheckCount(count);
  comm::CheckPeer(*this, peer, tag);
  return std::make_unique<Done>();
}

absl::StatusOr<std::unique_ptr<Communicator>> SelfCommunicator::Split(int color,
                                                                      int) {
  comm::CheckColor(color);
  return std::make_unique<SelfCommunicator>();
}

void SelfCommunicator::Abort(int code, std::string_view message) {
  DELINK_LOG(kError) << message;
  std::_Exit(code);
}

}  // namespace delink
