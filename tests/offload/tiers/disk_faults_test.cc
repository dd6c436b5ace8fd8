// Faults of a disk: each is an error that names where it is, and the tier can
// still be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/tiers/disk_tier.h"
#include "tests/offload/tiers/faulty_queue.h"
#include "tests/testing/temp_dir.h"

namespace delink::disk_faults_test {
namespace {

using offload::DiskRegion;
using offload::DiskRequest;
using offload::DiskTier;
using offload::kDiskBlock;
using ::testing::AllOf;
using testing::DiskFaults;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr int64_t kPiece = 4 * kDiskBlock;
// Of four pieces in two files, the last: the second of the second file.
constexpr int64_t kHit = kPiece;
constexpr char kSlab[] = "blocks/3/experts";

struct Fault {
  const char* name;
  bool write;  // what fails
  absl::StatusCode code;
  std::string message;
  // Result of the request at `kHit` of the second file.
  int64_t result = kPiece;
  // Of the second file, before its requests.
  void (*damage)(int descriptor) = [](int) {};
};

void Overwrite(int descriptor) {
  const std::unique_ptr<void, decltype(&std::free)> junk(
      std::aligned_alloc(kDiskBlock, kDiskBlock), std::free);
  std::memset(junk.get(), 'j', kDiskBlock);
  ASSERT_EQ(pwrite(descriptor, junk.get(), kDiskBlock, kHit + kDiskBlock),
            kDiskBlock);
}

void Shorten(int descriptor) {
  ASSERT_EQ(ftruncate(descriptor, kHit + 2 * kDiskBlock + 7), 0);
}

std::vector<Fault> Faults() {
  using enum absl::StatusCode;
  return {
      {"EIO in a read", false, kUnavailable, "the disk may be failing", -EIO},
      {"EIO in a write", true, kUnavailable, "the disk may be failing", -EIO},
      {"ENOSPC", true, kResourceExhausted, "free space there", -ENOSPC},
      {"no progress", true, kUnavailable, "only 0 were taken", 0},
      {"other bytes", false, kDataLoss, "not the bytes that were written",
       kPiece, Overwrite},
      {"a shorter file", false, kDataLoss,
       "only 8192 are there; the file has become shorter", kPiece, Shorten}};
}

class DiskFaultsTest : public ::testing::TestWithParam<bool> {};

TEST_P(DiskFaultsTest, AreNamed) {
  for (const Fault& fault : Faults()) {
    SCOPED_TRACE(fault.name);
    const TempDir folders[] = {{}, {}};
    std::vector<int> descriptors;
    bool armed = false;
    const DiskFaults faults = {
        .after = [&](const DiskRequest& request, int64_t result) {
          const bool hit = armed && request.write == fault.write &&
                           request.offset == kHit && fault.result != kPiece;
          return hit ? fault.result : result;
        }};
    const auto tier = DiskTier::Create(
        {.folders = {folders[0].path(), folders[1].path()},
         .bytes = 4 * kPiece,
         .piece = kPiece,
         .uring = GetParam(),
         .wrap = [&](int descriptor, std::unique_ptr<offload::DiskQueue> inner)
             -> std::unique_ptr<offload::DiskQueue> {
           descriptors.push_back(descriptor);
           if (descriptors.size() == 1) return inner;
           return std::make_unique<testing::FaultyQueue>(std::move(inner),
                                                         faults);
         }});
    ASSERT_TRUE(tier.ok()) << tier.status();
    const std::unique_ptr<void, decltype(&std::free)> memory(
        std::aligned_alloc(kDiskBlock, 4 * kPiece), std::free);
    std::memset(memory.get(), 'x', 4 * kPiece);
    const DiskRegion region = {
        .bytes = 4 * kPiece, .memory = memory.get(), .slab = kSlab};
    ASSERT_TRUE((*tier)->Write(region)->Wait().ok());
    armed = true;
    fault.damage(descriptors[1]);
    const absl::Status status = fault.write ? (*tier)->Write(region)->Wait()
                                            : (*tier)->Read(region)->Wait();
    EXPECT_EQ(status.code(), fault.code);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr(absl::StrCat(folders[1].path(), ": ")),
              HasSubstr(absl::StrCat(fault.write ? "write " : "read ", kPiece,
                                     " bytes at offset ", kHit,
                                     " of the disk tier's file, slab ", kSlab)),
              HasSubstr(fault.message)));
    armed = false;
    EXPECT_TRUE((*tier)->Write(region)->Wait().ok());
    EXPECT_TRUE((*tier)->Read(region)->Wait().ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DiskFaultsTest, ::testing::Bool(),
                         [](const auto& uring) {
                           return uring.param ? "Uring" : "Threads";
                         });

TEST(DiskTier, RegionsThatAreNotAlignedOrNotInItAreNamed) {
  const TempDir dir;
  const auto tier =
      DiskTier::Create({.folders = {dir.path()}, .bytes = 8192, .piece = 8192});
  ASSERT_TRUE(tier.ok()) << tier.status();
  alignas(kDiskBlock) static char memory[2 * kDiskBlock];
  const DiskRegion regions[] = {{7, kDiskBlock, memory},
                                {0, 100, memory},
                                {0, kDiskBlock, memory + 8},
                                {kDiskBlock, 2 * kDiskBlock, memory},
                                {-kDiskBlock, kDiskBlock, memory}};
  for (DiskRegion region : regions) {
    region.slab = kSlab;
    const absl::Status status = (*tier)->Write(region)->Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(dir.path()), HasSubstr(kSlab),
                      HasSubstr(absl::StrCat(region.bytes, " bytes at offset ",
                                             region.offset))));
  }
}

}  // namespace
}  // namespace delink::disk_faults_test
