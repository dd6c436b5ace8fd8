// The cases that every communicator must pass, on one process and on threads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <tuple>

#include "framework/comm/self_communicator.h"
#include "framework/comm/stream_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/tensor/buffer.h"
#include "tests/framework/comm/communicator_cases.h"
#include "tests/framework/comm/stream_cases.h"

namespace delink::communicator_test {
namespace {

using ::testing::Combine;
using ::testing::TestWithParam;
using ::testing::Values;
using ::testing::ValuesIn;

constexpr int kSelf = 0;

// (number of threads or kSelf, case)
using Param = std::tuple<int, testing::CommunicatorCase>;

class CommunicatorTest : public TestWithParam<Param> {};

std::string ParamName(const ::testing::TestParamInfo<Param>& info) {
  const auto& [size, test_case] = info.param;
  const std::string kind =
      size == kSelf ? "Self" : "Threads" + std::to_string(size);
  return kind + "_" + test_case.name;
}

TEST_P(CommunicatorTest, DoesWhatAllDo) {
  const auto& [size, test_case] = GetParam();
  if (size == kSelf) {
    SelfCommunicator self;
    EXPECT_EQ(test_case.check(self), absl::OkStatus());
  } else {
    EXPECT_EQ(RunRanks(size, test_case.check), absl::OkStatus());
  }
}

// Where the device's memory is the host's.
TEST(StreamCommunicatorTest, OnTheCpuDoesWhatCommunicatorsDo) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  for (const auto check : {testing::CheckStreamCases, testing::CheckStreamRing,
                           testing::CheckAllToAllV}) {
    EXPECT_EQ(
        RunRanks(4, [&](Communicator& comm) { return check(*device, comm); }),
        absl::OkStatus());
  }
}

// What an exchange needs of the host is taken, and not written before there is
// something to write: here a device that only counts brings nothing.
TEST(StreamCommunicatorTest, HostMemoryIsNotFilled) {
  constexpr int64_t kBytes = int64_t{128} << 20;
  const auto resident = [] {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  };
  const std::unique_ptr<Device> device = NewMetaDevice(DeviceKind::kCuda);
  const std::unique_ptr<Stream> stream = device->NewStream();
  const Buffer x = *Buffer::Allocate(*device, kBytes);
  SelfCommunicator self;
  const auto on_stream = StageThroughHost(*device, *stream, self);
  const int64_t before = resident();
  const auto gather = on_stream->AllGather(x.data(), kBytes, DType::kU8);
  EXPECT_TRUE(gather == nullptr || gather->Wait().ok());
  EXPECT_LT(resident() - before, kBytes / 2);
}

INSTANTIATE_TEST_SUITE_P(All, CommunicatorTest,
                         Combine(Values(kSelf, 1, 2, 3, 4, 7),
                                 ValuesIn(testing::kCommunicatorCases)),
                         ParamName);

}  // namespace
}  // namespace delink::communicator_test
