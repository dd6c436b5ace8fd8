#include "framework/base/random_access_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::random_access_file_test {
namespace {

using ::testing::HasSubstr;

TEST(RandomAccessFile, BytesAreReadInAnyOrder) {
  const testing::TempDir dir;
  ASSERT_TRUE(WriteFile(dir / "f", "0123456789").ok());
  ASSERT_EQ(::symlink("f", (dir / "link").c_str()), 0);
  auto opened = RandomAccessFile::Open(dir / "link");
  ASSERT_TRUE(opened.ok()) << opened.status();
  const RandomAccessFile file = *std::move(opened);
  EXPECT_EQ(file.size(), 10);
  char bytes[3] = {};
  ASSERT_TRUE(file.Read(7, 3, bytes).ok());
  EXPECT_EQ(std::string(bytes, 3), "789");
  ASSERT_TRUE(file.Read(0, 2, bytes).ok());
  EXPECT_EQ(std::string(bytes, 3), "019");
  EXPECT_TRUE(file.Read(10, 0, bytes).ok());
  const absl::Status beyond = file.Read(8, 3, bytes);
  EXPECT_EQ(beyond.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(beyond.message()),
              HasSubstr("link: truncated to 10 bytes instead of 11"));
}

// Past the cache too, where that can be: anything, not blocks alone.
TEST(RandomAccessFile, BlocksAreReadPastTheCache) {
  const testing::TempDir dir;
  constexpr int64_t kSize = (int64_t{5} << 20) + 4097;
  std::string bytes(kSize, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 2654435761U >> 24);
  }
  ASSERT_TRUE(WriteFile(dir / "f", bytes).ok());
  auto file = RandomAccessFile::Open(dir / "f");
  ASSERT_TRUE(file.ok()) << file.status();
  file->ReadPastCache();
  struct Range {
    int64_t begin, size;
  };
  for (const auto& [begin, size] :
       {Range{0, kSize}, Range{0, 1}, Range{4095, 2}, Range{4096, 4096},
        Range{5000, 1 << 20}, Range{kSize - 1, 1}, Range{kSize - 5000, 5000},
        Range{kSize, 0}}) {
    std::string some(static_cast<size_t>(size), 'x');
    ASSERT_TRUE(file->Read(begin, size, some.data()).ok()) << begin;
    EXPECT_TRUE(some == bytes.substr(static_cast<size_t>(begin),
                                     static_cast<size_t>(size)))
        << begin << " " << size;
  }
  char beyond[10];
  const absl::Status status = file->Read(kSize - 5, 10, beyond);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("f: truncated to 5246977 bytes instead of 5246982"));
}

TEST(RandomAccessFile, WhatIsNoFileIsRefused) {
  const testing::TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {dir / "pipe", dir.path()}) {
    const absl::Status status = RandomAccessFile::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path + ": is a"));
  }
  EXPECT_EQ(RandomAccessFile::Open(dir / "none").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace delink::random_access_file_test
