// Digests of files that come in pieces.
#include "framework/base/running_digest.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/digested_file.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::running_digest_test {
namespace {

std::string SomeBytes(int64_t count) {
  std::mt19937 random(3);
  std::string bytes(static_cast<size_t>(count), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

struct Range {
  int64_t begin, end;
};

std::vector<Range> RangesOf(int64_t bytes, int64_t most) {
  std::vector<Range> ranges;
  for (int64_t begin = 0; begin < bytes; begin += most) {
    ranges.push_back({begin, std::min(bytes, begin + most)});
  }
  return ranges;
}

class RunningDigestTest : public ::testing::Test {
 protected:
  RunningDigest::ReadBack ReadBack() {
    return [this](int64_t begin, int64_t size, char* bytes) {
      read_back_ += size;
      std::copy_n(bytes_.begin() + begin, size, bytes);
      return absl::OkStatus();
    };
  }
  std::string_view Of(const Range& range) const {
    return std::string_view(bytes_).substr(
        static_cast<size_t>(range.begin),
        static_cast<size_t>(range.end - range.begin));
  }

  const std::string bytes_ = SomeBytes(10'007);
  std::atomic<int64_t> read_back_ = 0;
};

TEST_F(RunningDigestTest, PiecesComeInAnyOrderFromAnyThread) {
  for (const int threads : {1, 3}) {
    for (const int64_t kept : {0, 700, 20'000}) {
      RunningDigest digest(10'007, ReadBack(), kept);
      std::vector<Range> ranges = RangesOf(10'007, 101);
      std::shuffle(ranges.begin(), ranges.end(), std::mt19937(7));
      std::atomic<size_t> next = 0;
      std::atomic<int> whole = 0;
      std::vector<std::thread> workers;
      for (int t = 0; t < threads; ++t) {
        workers.emplace_back([&] {
          for (size_t i = next++; i < ranges.size(); i = next++) {
            // Some are only in the file.
            const auto now = i % 7 == 3
                                 ? digest.Skip(ranges[i].begin, ranges[i].end)
                                 : digest.Take(ranges[i].begin, Of(ranges[i]));
            ASSERT_TRUE(now.ok()) << now.status();
            whole += *now ? 1 : 0;
          }
        });
      }
      for (std::thread& worker : workers) worker.join();
      EXPECT_EQ(whole, 1);
      EXPECT_EQ(digest.Hex(), Sha256Hex(bytes_)) << threads << " " << kept;
    }
  }
}

TEST_F(RunningDigestTest, ReadsBackWhatItCouldNotKeepAlone) {
  RunningDigest digest(10'007, ReadBack(), 1000);
  ASSERT_FALSE(*digest.Take(500, Of({500, 1500})));
  EXPECT_EQ(digest.end(), 0);
  ASSERT_FALSE(*digest.Take(1500, Of({1500, 1501})));
  ASSERT_FALSE(*digest.Take(0, Of({0, 500})));
  EXPECT_EQ(digest.end(), 1501);
  EXPECT_EQ(read_back_, 1);
  ASSERT_TRUE(*digest.Skip(1501, 10'007));
  EXPECT_EQ(read_back_, 1 + 10'007 - 1501);
  EXPECT_EQ(digest.Hex(), Sha256Hex(bytes_));
}

TEST_F(RunningDigestTest, SaysWhatReadingBackDoes) {
  RunningDigest digest(
      10, [](int64_t, int64_t, char*) { return absl::DataLossError("gone"); });
  EXPECT_EQ(digest.Skip(0, 10).status().message(), "gone");
}

TEST_F(RunningDigestTest, NothingComesTwice) {
  RunningDigest digest(10'007, ReadBack());
  ASSERT_FALSE(*digest.Take(0, Of({0, 10})));
  ASSERT_FALSE(*digest.Take(20, Of({20, 30})));
  for (const Range& range :
       {Range{9, 11}, Range{15, 21}, Range{29, 31}, Range{10'000, 10'008}}) {
    EXPECT_DEATH(digest.Skip(range.begin, range.end).IgnoreError(), "twice");
  }
  EXPECT_DEATH(digest.Hex(), "10 of 10007 bytes");
}

TEST(DigestedFile, IsWrittenInAnyOrder) {
  const TempDir dir;
  const std::string path = dir / "file";
  const std::string bytes = SomeBytes(10'007);
  ASSERT_TRUE(WriteFile(path, bytes.substr(0, 100)).ok());
  DigestedFile file(path, ::open(path.c_str(), O_RDWR), 10'007);
  ASSERT_FALSE(*file.Write(5000, std::string_view(bytes).substr(5000)));
  ASSERT_FALSE(*file.Keep(0, 100));
  ASSERT_TRUE(*file.Write(100, std::string_view(bytes).substr(100, 4900)));
  ASSERT_TRUE(file.Close().ok());
  EXPECT_EQ(file.Digest(), Sha256Hex(bytes));
  EXPECT_EQ(*ReadFile(path), bytes);
}

TEST(DigestedFile, AFullDiskIsSaid) {
  const SmallDisk disk("64k");
  if (!disk.mounted()) GTEST_SKIP() << "no file system may be mounted here";
  const std::string path = disk.path() + "/file";
  DigestedFile file(path, ::open(path.c_str(), O_RDWR | O_CREAT, 0600),
                    1 << 20);
  const absl::Status status = file.Write(0, SomeBytes(1 << 20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

}  // namespace
}  // namespace delink::testing::running_digest_test
