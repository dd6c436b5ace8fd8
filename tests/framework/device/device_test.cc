// What backend.h promises of a device, of every kind that computes. Built
// twice: with the CUDA device of this build, skipped where there is no GPU, and
// with the emulated one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "framework/device/backend.h"
#include "framework/tensor/buffer.h"

namespace delink::testing::device_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMebibyte = int64_t{1} << 20;

std::vector<char> Bytes(int64_t count, unsigned seed) {
  std::vector<char> bytes(static_cast<size_t>(count));
  for (char& byte : bytes) {
    seed = seed * 1664525u + 1013904223u;
    byte = static_cast<char>(seed >> 24);
  }
  return bytes;
}

class DeviceTest : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceKind::kCpu) {
      device_ = NewCpuDevice();
    } else {
      absl::StatusOr<std::unique_ptr<Device>> device = NewCudaDevice(0);
      if (absl::IsUnavailable(device.status())) {
        GTEST_SKIP() << std::string(device.status().message());
      }
      ASSERT_TRUE(device.ok()) << device.status();
      device_ = *std::move(device);
    }
    stream_ = device_->NewStream();
  }
  void TearDown() override { stream_.reset(); }

  Buffer Take(int64_t bytes) { return *Buffer::Allocate(*device_, bytes); }
  void Send(const Buffer& to, int64_t offset, const std::vector<char>& bytes) {
    device_->CopyFromHost(*stream_, to.at(offset), bytes.data(),
                          static_cast<int64_t>(bytes.size()));
  }
  std::vector<char> Read(Stream& stream, const Buffer& from, int64_t offset,
                         int64_t count) {
    std::vector<char> bytes(static_cast<size_t>(count), 'x');
    device_->CopyToHost(stream, bytes.data(), from.at(offset), count);
    stream.Synchronize();
    return bytes;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, DeviceTest,
                         ::testing::Values(DeviceKind::kCpu, DeviceKind::kCuda),
                         [](const auto& test) {
                           return std::string(ToString(test.param));
                         });

TEST_P(DeviceTest, SaysWhatItIs) {
  EXPECT_EQ(device_->kind(), GetParam());
  EXPECT_FALSE(device_->name().empty());
}

TEST_P(DeviceTest, MemoryIsAlignedAndCounted) {
  EXPECT_EQ(device_->bytes_in_use(), 0);
  int64_t taken = 0, count = device_->allocations();
  std::vector<Buffer> buffers;
  for (const int64_t bytes : {0, 1, 255, 256, 257, 100003}) {
    buffers.push_back(Take(bytes));
    taken += bytes;
    ++count;
    EXPECT_NE(buffers.back().data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back().data()) % kAlignment,
              0);
    EXPECT_EQ(device_->bytes_in_use(), taken);
    EXPECT_EQ(device_->allocations(), count);
  }
  buffers.clear();
  EXPECT_EQ(device_->bytes_in_use(), 0);
  EXPECT_EQ(device_->allocations(), count);
}

TEST_P(DeviceTest, HandsOutNoMoreThanItsLimit) {
  std::optional<Buffer> first = *Buffer::Allocate(*device_, 1000, "weights");
  device_->SetLimit(1500);
  const int64_t count = device_->allocations();
  const auto refused = Buffer::Allocate(*device_, 501, "slots");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("asked for 501 bytes for slots"),
                    HasSubstr("is 1500 bytes, of which"),
                    HasSubstr("1000 are in use: weights 1000 B")));
  EXPECT_EQ(device_->bytes_in_use(), 1000);
  EXPECT_EQ(device_->allocations(), count);
  {
    const auto all = Buffer::Allocate(*device_, 500, "slots");
    EXPECT_TRUE(all.ok()) << all.status();
    EXPECT_FALSE(Buffer::Allocate(*device_, 1).ok());
  }
  EXPECT_TRUE(Buffer::Allocate(*device_, 500).ok()) << "it was given back";
  // What is there stays.
  device_->SetLimit(999);
  EXPECT_FALSE(Buffer::Allocate(*device_, 1).ok());
  first.reset();
  EXPECT_TRUE(Buffer::Allocate(*device_, 999).ok());
  device_->SetLimit(std::nullopt);
  EXPECT_TRUE(Buffer::Allocate(*device_, 5000).ok());
}

// Sizes around those at which backends change how they copy.
TEST_P(DeviceTest, CopiesAnySizeFromAndToAnyPlace) {
  const Buffer buffer = Take(6 * kMebibyte);
  for (const int64_t size :
       {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{4096}, 65536 - int64_t{1},
        int64_t{65536}, int64_t{65537}, kMebibyte - 1, kMebibyte + 1,
        4 * kMebibyte, 4 * kMebibyte + 1}) {
    for (const int64_t offset : {0, 3}) {
      const std::vector<char> bytes =
          Bytes(size, static_cast<unsigned>(size + offset));
      Send(buffer, offset, bytes);
      EXPECT_TRUE(Read(*stream_, buffer, offset, size) == bytes)
          << size << " bytes at " << offset;
    }
  }
}

TEST_P(DeviceTest, TheHostsOwnMemoryTakesPartInCopies) {
  const int64_t pinned = device_->ledgers().pinned.bytes();
  // The larger is pinned in another way, and no whole huge pages.
  for (const int64_t size : {5 * kMebibyte, 65 * kMebibyte + 5}) {
    const HostMemory from = device_->AllocateHost(size, "exchanges");
    const HostMemory to = device_->AllocateHost(size, "exchanges");
    EXPECT_EQ(device_->ledgers().pinned.bytes() - pinned,
              IsCuda(GetParam()) ? 2 * size : 0);
    const std::vector<char> bytes = Bytes(size, 3);
    std::memcpy(from.get(), bytes.data(), bytes.size());
    const Buffer buffer = Take(size);
    device_->CopyFromHost(*stream_, buffer.data(), from.get(), size);
    device_->CopyToHost(*stream_, to.get(), buffer.data(), size);
    stream_->Synchronize();
    EXPECT_EQ(std::memcmp(to.get(), bytes.data(), bytes.size()), 0);
  }
  EXPECT_EQ(device_->ledgers().pinned.bytes(), pinned);
}

TEST_P(DeviceTest, AStreamKeepsItsOrder) {
  const Buffer a = Take(1000), b = Take(1000);
  std::vector<char> expected = Bytes(1000, 1);
  Send(a, 0, expected);
  device_->Copy(*stream_, b.data(), a.data(), 1000);
  device_->FillZero(*stream_, a.data(), 1000);
  device_->FillZero(*stream_, b.at(100), 50);
  device_->Copy(*stream_, b.at(500), b.at(0), 100);
  std::memset(expected.data() + 100, 0, 50);
  std::memcpy(expected.data() + 500, expected.data(), 100);
  EXPECT_EQ(Read(*stream_, b, 0, 1000), expected);
  EXPECT_EQ(Read(*stream_, a, 0, 1000), std::vector<char>(1000, 0));
}

// Rows of other lengths on either side, and what is one piece.
TEST_P(DeviceTest, CopiesRows) {
  for (const int64_t to_pitch : {5, 8}) {
    for (const int64_t from_pitch : {5, 11}) {
      constexpr int64_t kRows = 40, kBytes = 5;
      const std::vector<char> bytes = Bytes(kRows * from_pitch, 7);
      const Buffer from = Take(kRows * from_pitch);
      const Buffer to = Take(kRows * to_pitch);
      Send(from, 0, bytes);
      device_->FillZero(*stream_, to.data(), to.bytes());
      device_->CopyRows(*stream_, {.to = to.data(),
                                   .to_pitch = to_pitch,
                                   .from = from.data(),
                                   .from_pitch = from_pitch,
                                   .bytes = kBytes,
                                   .rows = kRows});
      device_->CopyRows(*stream_, {.to = to.data(),
                                   .to_pitch = to_pitch,
                                   .from = from.data(),
                                   .from_pitch = from_pitch,
                                   .bytes = kBytes,
                                   .rows = 0});
      std::vector<char> expected(static_cast<size_t>(kRows * to_pitch), 0);
      for (int64_t row = 0; row < kRows; ++row) {
        std::memcpy(&expected[row * to_pitch], &bytes[row * from_pitch],
                    kBytes);
      }
      EXPECT_EQ(Read(*stream_, to, 0, kRows * to_pitch), expected)
          << to_pitch << ", " << from_pitch;
    }
  }
}

// Many copies before anybody waits: more than a backend may keep in flight.
TEST_P(DeviceTest, ManyCopiesUnderWay) {
  constexpr int64_t kPiece = 100001, kPieces = 170;
  const Buffer buffer = Take(kPiece * kPieces);
  std::vector<std::vector<char>> sent(kPieces);
  for (int64_t i = 0; i < kPieces; ++i) {
    sent[i] = Bytes(kPiece, static_cast<unsigned>(i));
    Send(buffer, i * kPiece, sent[i]);
  }
  constexpr int64_t kRead = 1500;
  std::vector<std::vector<char>> read(kPieces, std::vector<char>(kRead));
  for (int64_t i = 0; i < kPieces; ++i) {
    device_->CopyToHost(*stream_, read[i].data(), buffer.at(i * kPiece), kRead);
  }
  stream_->Synchronize();
  for (int64_t i = 0; i < kPieces; ++i) {
    sent[i].resize(kRead);
    EXPECT_TRUE(read[i] == sent[i]) << i;
  }
}

// Back and forth, so that no order of two streams without events is right.
TEST_P(DeviceTest, EventsOrderStreams) {
  const std::unique_ptr<Stream> other = device_->NewStream();
  const std::unique_ptr<Event> here = device_->NewEvent();
  const std::unique_ptr<Event> there = device_->NewEvent();
  const Buffer a = Take(64), b = Take(64);
  // Nothing recorded yet: nothing to wait for.
  other->Wait(*there);
  for (int round = 0; round < 10; ++round) {
    const std::vector<char> bytes = Bytes(64, static_cast<unsigned>(round));
    Send(a, 0, bytes);
    stream_->Record(*here);
    other->Wait(*here);
    device_->Copy(*other, b.data(), a.data(), 64);
    other->Record(*there);
    stream_->Wait(*there);
    device_->FillZero(*stream_, a.data(), 64);
    EXPECT_EQ(Read(*other, b, 0, 64), bytes);
  }
  stream_->Synchronize();
}

// Small and large copies: all is there, and nobody has waited in a call.
TEST_P(DeviceTest, LooksWhetherAnEventIsReached) {
  const std::unique_ptr<Event> event = device_->NewEvent();
  const Buffer buffer = Take(kMebibyte);
  for (const int64_t size : {int64_t{64}, kMebibyte}) {
    const std::vector<char> bytes = Bytes(size, static_cast<unsigned>(size));
    std::vector<char> back(bytes.size());
    Send(buffer, 0, bytes);
    device_->CopyToHost(*stream_, back.data(), buffer.data(), size);
    stream_->Record(*event);
    int64_t looks = 0;
    while (!stream_->Reached(*event)) ++looks;
    EXPECT_TRUE(back == bytes);
    EXPECT_TRUE(stream_->Reached(*event));
    EXPECT_TRUE(looks == 0 || GetParam() != DeviceKind::kCpu);
  }
}

TEST_P(DeviceTest, RunningOutOfMemoryIsAStatus) {
  const Buffer before = Take(1000);
  const absl::StatusOr<void*> none =
      device_->Allocate(int64_t{1} << 60, "a test");
  ASSERT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string told(none.status().message());
  EXPECT_THAT(told,
              AllOf(HasSubstr("out of memory"),
                    HasSubstr("1152921504606846976 bytes"), HasSubstr("1000")));
  // And nothing else is wrong.
  const std::vector<char> bytes = Bytes(1000, 5);
  Send(before, 0, bytes);
  EXPECT_EQ(Read(*stream_, before, 0, 1000), bytes);
  EXPECT_EQ(device_->bytes_in_use(), 1000);
}

TEST_P(DeviceTest, AStreamIsPreparedOnce) {
  const int64_t before = device_->overhead();
  {
    const std::unique_ptr<Stream> stream = device_->NewStream();
    EXPECT_EQ(device_->overhead(), before);
    ASSERT_TRUE(stream->Prepare().ok());
    const int64_t prepared = device_->overhead();
    if (GetParam() == DeviceKind::kCpu) {
      EXPECT_EQ(prepared, 0);
    } else {
      EXPECT_GT(prepared, before);
      // What a plan counts.
      const std::unique_ptr<Device> meta = NewMetaDevice(DeviceKind::kCuda);
      const std::unique_ptr<Stream> planned = meta->NewStream();
      ASSERT_TRUE(planned->Prepare().ok());
      EXPECT_EQ(meta->overhead(), prepared - before);
    }
    ASSERT_TRUE(stream->Prepare().ok());
    EXPECT_EQ(device_->overhead(), prepared);
  }
  EXPECT_EQ(device_->overhead(), before);
  EXPECT_EQ(device_->bytes_in_use(), 0);
}

TEST_P(DeviceTest, EventsTakeTheTime) {
  const std::unique_ptr<Event> begin = device_->NewTimingEvent();
  const std::unique_ptr<Event> end = device_->NewTimingEvent();
  const Buffer buffer = Take(kMebibyte);
  stream_->Record(*begin);
  device_->FillZero(*stream_, buffer.data(), kMebibyte);
  stream_->Record(*end);
  EXPECT_GE(device_->SecondsBetween(*begin, *end), 0);
  EXPECT_LT(device_->SecondsBetween(*begin, *end), 10);
}

TEST(MetaDevice, StandsForEitherKind) {
  const std::unique_ptr<Device> cpu = NewMetaDevice();
  const std::unique_ptr<Device> cuda = NewMetaDevice(DeviceKind::kCuda);
  EXPECT_EQ(cpu->kind(), DeviceKind::kMeta);
  EXPECT_EQ(cuda->kind(), DeviceKind::kMetaCuda);
  EXPECT_EQ(NewMetaDevice(DeviceKind::kMetaCuda)->kind(),
            DeviceKind::kMetaCuda);
  EXPECT_EQ(NewMetaDevice(DeviceKind::kTimedCpu)->kind(), DeviceKind::kMeta);
  const std::unique_ptr<Stream> stream = cpu->NewStream();
  ASSERT_TRUE(stream->Prepare().ok());
  EXPECT_EQ(cpu->overhead(), 0);
}

}  // namespace
}  // namespace delink::testing::device_test
