// What only a CUDA device does, on the emulated one: finding it, saying why
// there is none, what goes through pinned memory, and what kernels keep with
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "framework/device/backend.h"
#include "framework/device/cuda/check.h"
#include "framework/device/cuda/stream.h"
#include "framework/device/host_arena.h"
#include "framework/tensor/buffer.h"
#include "tests/testing/simt/simt.h"

namespace delink::testing::cuda_device_test {
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

// One pinned block of the bytes that were asked for; pieces of it are copied
// from and to by two streams.
TEST(CudaDevice, PinsTheHostsArena) {
  const auto device = NewCudaDevice(0);
  ASSERT_TRUE(device.ok()) << device.status();
  const int64_t before = (*device)->ledgers().pinned.bytes();
  {
    constexpr int64_t kSize = (5 << 20) + 3;
    const auto arena = HostArena::Create(**device, AlignUp(kSize) + kSize);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_TRUE((*arena)->pinned());
    EXPECT_EQ((*device)->ledgers().pinned.bytes() - before,
              AlignUp(kSize) + kSize);
    auto* const from = static_cast<char*>(*(*arena)->Take(kSize, "weights"));
    auto* const to = static_cast<char*>(*(*arena)->Take(kSize, "m"));
    for (int64_t i = 0; i < kSize; ++i) from[i] = static_cast<char>(i % 251);
    const Buffer buffer = *Buffer::Allocate(**device, kSize);
    const auto in = (*device)->NewStream(), out = (*device)->NewStream();
    const auto there = (*device)->NewEvent();
    (*device)->CopyFromHost(*in, buffer.data(), from, kSize);
    in->Record(*there);
    out->Wait(*there);
    (*device)->CopyToHost(*out, to, buffer.data(), kSize);
    out->Synchronize();
    EXPECT_EQ(std::memcmp(from, to, kSize), 0);
  }
  for (const auto& entry : (*device)->ledgers().pinned.entries()) {
    EXPECT_TRUE(entry.kind != "offloading" || entry.bytes == 0);
  }
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

TEST(CudaDevice, WhatCannotRunIsRefused) {
  const struct {
    simt::Options options;
    absl::StatusCode code;
    std::vector<std::string> says;
  } rows[] = {
      {{.devices = 0},
       absl::StatusCode::kUnavailable,
       {"shows no CUDA device"}},
      {{.driver_version = 12040},
       absl::StatusCode::kFailedPrecondition,
       {"too old", "CUDA 12.4", "CUDA 13."}},
      {{.major = 7, .minor = 5},
       absl::StatusCode::kFailedPrecondition,
       {"sm_75", "8.0"}},
      {{.memory_pools = false},
       absl::StatusCode::kFailedPrecondition,
       {"no memory pools", "run.device = \"cpu\""}},
  };
  for (const auto& row : rows) {
    const ScopedOptions options(row.options);
    const absl::Status status = NewCudaDevice(0).status();
    EXPECT_EQ(status.code(), row.code) << status;
    for (const std::string& text : row.says) {
      EXPECT_THAT(Told(status), HasSubstr(text));
    }
  }
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
  const Buffer some = *Buffer::Allocate(*device, 600000, "weights of blocks/0");
  const absl::Status status =
      Buffer::Allocate(*device, 500000, "slots").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Told(status),
              AllOf(HasSubstr("asked for 500000 bytes for slots"),
                    HasSubstr("of 1048576 free"),
                    HasSubstr("in use here are 600000 (weights 585.9 KiB)"),
                    HasSubstr("and 0 besides (nothing)")));
  // Not even what a stream needs.
  const auto stream = device->NewStream();
  EXPECT_EQ(stream->Prepare().code(), absl::StatusCode::kResourceExhausted);
}

// What was freed is held for others until the device is trimmed, or somebody
// wants more than there is beside it.
TEST(CudaDevice, MemoryIsHeldUntilItIsTrimmed) {
  const ScopedOptions options({.memory_bytes = 1 << 20});
  const auto device = *NewCudaDevice(0);
  const auto take = [&](int64_t bytes) {
    return *Buffer::Allocate(*device, bytes);
  };
  const int64_t all = device->memory().free;
  {
    const Buffer a = take(300000), b = take(200000);
    EXPECT_EQ(device->memory().held, 500000);
  }
  EXPECT_EQ(device->memory().held, 500000);
  {
    const Buffer smaller = take(250000), other = take(50000);
    EXPECT_EQ(device->memory().held, 500000);
    device->Trim();
    EXPECT_EQ(device->memory().held, 300000);
    EXPECT_EQ(device->memory().free, all - 300000);
  }
  { const Buffer most = take(all); }
  EXPECT_EQ(device->memory().most_held, all);
  device->Trim();
  EXPECT_EQ(device->memory().held, 0);
  EXPECT_EQ(device->memory().free, all);
}

TEST(CudaDevice, StreamsGoOnToTheNextWithTheirPinnedMemory) {
  const auto device = *NewCudaDevice(0);
  const Buffer buffer = *Buffer::Allocate(*device, sizeof(int));
  const auto copy = [&](std::string_view name) {
    const auto stream = device->NewStream(name);
    int value = 1;
    device->CopyFromHost(*stream, buffer.data(), &value, sizeof(value));
    device->CopyToHost(*stream, &value, buffer.data(), sizeof(value));
    stream->Synchronize();
    return value;
  };
  const auto one = device->NewStream("compute");
  ASSERT_TRUE(one->Prepare().ok());
  const int64_t made = simt::resources_made();
  const int64_t pinned = device->ledgers().pinned.bytes();
  EXPECT_GT(pinned, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(copy("beside it"), 1);
  EXPECT_EQ(simt::resources_made(), made);
  EXPECT_EQ(device->ledgers().pinned.bytes(), pinned);
  std::vector<std::string> kinds;
  for (const auto& entry : device->ledgers().pinned.entries()) {
    kinds.push_back(entry.kind);
  }
  EXPECT_THAT(kinds, ::testing::ElementsAre("staging rings", "landing zones"));
  // One more at the same time is one more that has to be made.
  const auto two = device->NewStream(), three = device->NewStream();
  EXPECT_GT(simt::resources_made(), made);
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
  EXPECT_THAT(device->ledgers().own.ToString(), HasSubstr("scratch 32.0 MiB"));
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
}  // namespace delink::testing::cuda_device_test
