#include "framework/device/host_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "framework/base/log.h"
#include "framework/tensor/buffer.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::host_arena_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A device that pins, or is refused: what the arena asks a GPU for.
class PinningDevice final : public Device {
 public:
  explicit PinningDevice(bool grants) : grants_(grants) {}
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return "a GPU"; }
  absl::StatusOr<void*> Allocate(int64_t, std::string_view) override {
    return absl::UnimplementedError("host memory alone");
  }
  void Free(void*, int64_t) override {}
  HostMemory AllocateHost(int64_t bytes, std::string_view what) override {
    ++calls_;
    if (!grants_) return Device::AllocateHost(bytes, what);
    void* const memory = std::aligned_alloc(4096, AlignUp(bytes, 4096));
    ledgers_.pinned.Take(memory, bytes, what);
    return {memory, [this](void* address) {
              ledgers_.pinned.Give(address);
              std::free(address);
            }};
  }
  int calls() const { return calls_; }

  std::unique_ptr<Stream> NewStream(std::string_view) override {
    return nullptr;
  }
  std::unique_ptr<Event> NewEvent() override { return nullptr; }
  std::unique_ptr<Event> NewTimingEvent() override { return nullptr; }
  double SecondsBetween(const Event&, const Event&) override { return 0; }
  void CopyFromHost(Stream&, void*, const void*, int64_t) override {}
  void CopyToHost(Stream&, void*, const void*, int64_t) override {}
  void Copy(Stream&, void*, const void*, int64_t) override {}
  void CopyRows(Stream&, const RowsCopy&) override {}
  void FillZero(Stream&, void*, int64_t) override {}

 private:
  const bool grants_;
  int calls_ = 0;
};

// What `work` logs.
template <typename Work>
std::string LogOf(const Work& work) {
  const TempDir dir;
  EXPECT_TRUE(SetLogFile(dir / "log.txt"));
  work();
  SetLogFile("");
  std::ifstream in(dir / "log.txt");
  return {std::istreambuf_iterator<char>(in), {}};
}

uintptr_t Number(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

TEST(HostArena, HandsOutWhatIsAskedForOneAfterTheOther) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  const auto arena = HostArena::Create(*device, 1024 + 257);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_FALSE((*arena)->pinned());
  EXPECT_EQ((*arena)->bytes(), 1281);
  void* const a = *(*arena)->Take(257, "weights of blocks/0/mlp");
  void* const b = *(*arena)->Take(0, "weights of blocks/1/mlp");
  void* const c = *(*arena)->Take(256, "m of blocks/0/mlp");
  EXPECT_EQ(Number(a) % kAlignment, 0u);
  EXPECT_EQ(Number(b), Number(a) + 512);
  EXPECT_EQ(Number(c), Number(a) + 768);
  EXPECT_EQ((*arena)->used(), 1024);
  // The last piece need not end at a boundary, and there is not a byte more.
  ASSERT_TRUE((*arena)->Take(257, "v of blocks/0/mlp").ok());
  EXPECT_EQ((*arena)->used(), 1281);
  const auto entries = (*arena)->ledger().entries();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].kind, "weights");
  EXPECT_EQ(entries[0].bytes, 257);
  EXPECT_EQ((*arena)->ledger().bytes(), 257 + 256 + 257);
  std::memset(a, 1, 1281);
}

TEST(HostArena, SaysWhatItIsTooSmallFor) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  const auto arena = HostArena::Create(*device, 1000);
  ASSERT_TRUE(arena.ok()) << arena.status();
  ASSERT_TRUE((*arena)->Take(600, "weights of blocks/0/mlp").ok());
  const absl::Status full = (*arena)->Take(233, "m of blocks/0/mlp").status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(full.message()),
            "the host memory for offloading is too small: asked for 233 bytes "
            "for m of blocks/0/mlp with 232 of 1000 left; in use: weights 600 "
            "B");
  ASSERT_TRUE((*arena)->Take(232, "m of blocks/0/mlp").ok());
  EXPECT_THAT(std::string((*arena)->Take(0, "v").status().message()),
              HasSubstr("with 0 of 1000 left"));
  (*arena)->Clear();
  EXPECT_EQ((*arena)->used(), 0);
  EXPECT_EQ((*arena)->ledger().bytes(), 0);
  EXPECT_TRUE((*arena)->Take(1000, "weights").ok());
}

TEST(HostArena, MoreThanTheMachineHasIsAStatus) {
  for (const bool gpu : {false, true}) {
    PinningDevice pinning(true);
    const std::unique_ptr<Device> cpu = NewCpuDevice();
    Device& device = gpu ? static_cast<Device&>(pinning) : *cpu;
    const absl::Status none =
        HostArena::Create(device, int64_t{1} << 60).status();
    EXPECT_EQ(none.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(none.message()),
                AllOf(HasSubstr("asked for 1152921504606846976 bytes"),
                      HasSubstr("the machine has")));
    EXPECT_EQ(pinning.calls(), 0);
  }
}

TEST(HostArena, IsOnePinnedBlockToTheByte) {
  PinningDevice device(true);
  {
    const auto arena = HostArena::Create(device, 100003);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_TRUE((*arena)->pinned());
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE((*arena)->Take(10007, "slots").ok());
    }
    EXPECT_EQ(device.calls(), 1);
    EXPECT_EQ(device.ledgers().pinned.bytes(), 100003);
    EXPECT_EQ((*arena)->ledger().bytes(), 5 * 10007);
  }
  EXPECT_EQ(device.ledgers().pinned.bytes(), 0);
}

TEST(HostArena, OrdinaryMemoryServesWherePinningIsRefused) {
  PinningDevice device(false);
  const std::string told = LogOf([&] {
    const auto arena = HostArena::Create(device, int64_t{3} << 20);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_FALSE((*arena)->pinned());
    EXPECT_EQ(device.ledgers().pinned.bytes(), 0);
    void* const piece = *(*arena)->Take(int64_t{3} << 20, "slots");
    EXPECT_EQ(Number(piece) % (2 << 20), 0u);
    std::memset(piece, 1, 3 << 20);
  });
  EXPECT_THAT(told, AllOf(HasSubstr("3.0 MiB of host memory for offloading are "
                                    "not pinned, since a GPU refuses them"),
                          HasSubstr("ulimit -l unlimited")));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);
}

// The CPU asks for nothing and is told nothing; what is there can be copied.
TEST(HostArena, OfTheCpuTakesPartInCopies) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  const std::unique_ptr<Stream> stream = device->NewStream();
  const Buffer buffer = *Buffer::Allocate(*device, 1000);
  EXPECT_THAT(LogOf([&] {
                const auto arena = HostArena::Create(*device, 2048);
                auto* const from =
                    static_cast<char*>(*(*arena)->Take(1000, "a"));
                auto* const to = static_cast<char*>(*(*arena)->Take(1000, "b"));
                for (int i = 0; i < 1000; ++i) from[i] = static_cast<char>(i);
                device->CopyFromHost(*stream, buffer.data(), from, 1000);
                device->CopyToHost(*stream, to, buffer.data(), 1000);
                stream->Synchronize();
                EXPECT_EQ(std::memcmp(from, to, 1000), 0);
              }),
              IsEmpty());
}

}  // namespace
}  // namespace delink::testing::host_arena_test
