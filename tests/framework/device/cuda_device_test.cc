// What only a CUDA device does, on the emulated one: finding it, saying why
// there is none, what goes through pinned memory, and what kernels keep with
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/device/backend.h"
#include "framework/device/cuda/check.h"
#include "framework/device/cuda/stream.h"
#include "framework/tensor/buffer.h"
#include "tests/testing/simt/simt.h"

namespace delink::testing {
namespace {

using simt::ScopedOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Told(const absl::Status& status) {
  return std::string(status.message());
}

TEST(CudaDevice, SaysWhatItIs) {
  const auto device = NewCudaDevice(0);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_THAT((*device)->name(), AllOf(HasSubstr("sm_90"), HasSubstr("GiB")));
  EXPECT_GT((*device)->memory().total, 0);
  EXPECT_GT((*device)->memory().cache, 0);
}

TEST(CudaDevice, WithoutADriver) {
  const ScopedOptions options({.devices = 0, .driver_version = 0});
  for (const absl::Status& status :
       {NewCudaDevice(0).status(), CountCudaDevices().status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Told(status), AllOf(HasSubstr("no NVIDIA driver"),
                                    HasSubstr("run.device = \"cpu\"")));
  }
}

TEST(CudaDevice, WithoutADevice) {
  const ScopedOptions options({.devices = 0});
  const absl::Status status = NewCudaDevice(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Told(status), HasSubstr("shows no CUDA device"));
}

TEST(CudaDevice, ADriverThatIsTooOldIsToldWithBothVersions) {
  const ScopedOptions options({.driver_version = 12040});
  const absl::Status status = NewCudaDevice(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Told(status), AllOf(HasSubstr("too old"), HasSubstr("CUDA 12.4"),
                                  HasSubstr("CUDA 13.")));
}

TEST(CudaDevice, AnArchitectureWithoutKernelsIsNamed) {
  const ScopedOptions options({.major = 7, .minor = 5});
  const absl::Status status = NewCudaDevice(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Told(status), AllOf(HasSubstr("sm_75"), HasSubstr("8.0")));
}

TEST(CudaDevice, ANumberBeyondTheLast) {
  const ScopedOptions options({.devices = 2});
  EXPECT_EQ(*CountCudaDevices(), 2);
  EXPECT_TRUE(NewCudaDevice(1).ok());
  for (const int ordinal : {-1, 2}) {
    const absl::Status status = NewCudaDevice(ordinal).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(Told(status), HasSubstr("shows 2"));
  }
}

TEST(CudaDevice, OutOfMemoryTellsWhatThereIs) {
  const ScopedOptions options({.memory_bytes = 1 << 20});
  const auto device = *NewCudaDevice(0);
  const Buffer some = *Buffer::Allocate(*device, 600000);
  const absl::Status status = Buffer::Allocate(*device, 500000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Told(status), AllOf(HasSubstr("asked for 500000 bytes"),
                                  HasSubstr("of 1048576 free"),
                                  HasSubstr("in use here are 600000")));
  // Not even what a stream needs.
  const auto stream = device->NewStream();
  EXPECT_EQ(stream->Prepare().code(), absl::StatusCode::kResourceExhausted);
}

// The bytes of a small copy are taken at once, and brought late.
TEST(CudaDevice, SmallCopiesDoNotKeepTheHost) {
  const auto device = *NewCudaDevice(0);
  const auto stream = device->NewStream();
  const Buffer buffer = *Buffer::Allocate(*device, sizeof(int));
  int value = 1;
  device->CopyFromHost(*stream, buffer.data(), &value, sizeof(value));
  value = 2;
  int first = 0, second = 0;
  device->CopyToHost(*stream, &first, buffer.data(), sizeof(first));
  device->CopyFromHost(*stream, buffer.data(), &value, sizeof(value));
  device->CopyToHost(*stream, &second, buffer.data(), sizeof(second));
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 0);
  stream->Synchronize();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
}

TEST(CudaDevice, StreamsHavePreparedScratch) {
  const auto device = *NewCudaDevice(0);
  const auto stream = device->NewStream();
  ASSERT_TRUE(stream->Prepare().ok());
  const int64_t overhead = device->overhead();
  const cuda::StreamInfo& info = cuda::InfoOf(*stream);
  EXPECT_EQ(device->overhead(), overhead);
  EXPECT_NE(info.handle, nullptr);
  EXPECT_GE(info.scratch_bytes, cuda::kScratchBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(info.scratch) % 256, 0);
  EXPECT_GT(info.multiprocessors, 0);
  // One that was not prepared takes it then.
  const auto other = device->NewStream();
  EXPECT_NE(cuda::InfoOf(*other).scratch, info.scratch);
}

struct Counted final : cuda::Resident {
  Counted() { ++made, ++alive; }
  ~Counted() override { --alive; }
  inline static int made = 0, alive = 0;
};
std::unique_ptr<cuda::Resident> MakeCounted() {
  return std::make_unique<Counted>();
}
struct Other final : cuda::Resident {};
std::unique_ptr<cuda::Resident> MakeOther() {
  return std::make_unique<Other>();
}

TEST(CudaDevice, KeepsOneOfEachWithEachDevice) {
  {
    const auto a = *NewCudaDevice(0), b = *NewCudaDevice(0);
    const auto stream = a->NewStream(), again = a->NewStream();
    const auto elsewhere = b->NewStream();
    cuda::Resident& kept = cuda::Kept(*stream, MakeCounted);
    EXPECT_EQ(&cuda::Kept(*again, MakeCounted), &kept);
    EXPECT_NE(&cuda::Kept(*again, MakeOther), &kept);
    EXPECT_NE(&cuda::Kept(*elsewhere, MakeCounted), &kept);
    EXPECT_EQ(Counted::made, 2);
    EXPECT_EQ(Counted::alive, 2);
  }
  EXPECT_EQ(Counted::alive, 0);
}

TEST(CudaDeviceDeathTest, OtherErrorsNameTheCall) {
  EXPECT_DEATH(DELINK_CUDA_CHECK(cudaErrorIllegalAddress),
               "rank 0: .*cuda_device_test.cc:[0-9]+: CUDA: .*"
               "cudaErrorIllegalAddress");
}

}  // namespace
}  // namespace delink::testing
