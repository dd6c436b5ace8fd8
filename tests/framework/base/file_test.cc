#include "framework/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/format_bytes.h"
#include "tests/testing/temp_dir.h"

namespace delink::file_test {
namespace {

TEST(FormatBytes, AsManyDecimalsAsTellApart) {
  EXPECT_EQ(FormatBytesApart(1258291, 1278607),
            std::pair(std::string("1.20 MiB"), std::string("1.22 MiB")));
  EXPECT_EQ(FormatBytesApart(2048, 2048).first, "2.0 KiB");
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SmallDisk;
using testing::TempDir;

TEST(File, BytesComeBack) {
  const TempDir dir;
  for (const size_t size : {0, 1, 4095, 4096, 4097, 1'000'003}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31);
    ASSERT_TRUE(WriteFile(dir / "a", bytes).ok());
    const auto back = ReadFile(dir / "a");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, bytes);
    EXPECT_EQ(*FileSize(dir / "a"), static_cast<int64_t>(size));
  }
}

TEST(File, FilesThatClaimNoSizeAreRead) {
  const auto text = ReadFile("/proc/self/status");
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("VmRSS"));
}

TEST(File, MissingFileIsNamed) {
  const TempDir dir;
  const absl::Status status = ReadFile(dir / "none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir / "none"));
  EXPECT_EQ(ReadFile(dir.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(File, AtomicWriteReplacesAndLeavesNothingElse) {
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "a", "old").ok());
  ASSERT_TRUE(WriteFileAtomically(dir / "a", "new").ok());
  EXPECT_EQ(*ReadFile(dir / "a"), "new");
  EXPECT_THAT(*ListDirectory(dir.path()), ElementsAre("a"));
}

TEST(File, FoldersAreMadeListedRenamedAndRemoved) {
  const TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir / "x/y/z").ok());
  ASSERT_TRUE(MakeDirectories(dir / "x/y/z").ok());
  ASSERT_TRUE(WriteFile(dir / "x/f", "").ok());
  EXPECT_EQ(MakeDirectories(dir / "x/f").code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(*ListDirectory(dir / "x"), ElementsAre("f", "y"));
  ASSERT_TRUE(Rename(dir / "x", dir / "w").ok());
  EXPECT_TRUE(IsDirectory(dir / "w/y/z"));
  EXPECT_FALSE(PathExists(dir / "x"));
  ASSERT_TRUE(RemoveAll(dir / "w").ok());
  ASSERT_TRUE(RemoveAll(dir / "w").ok());
  EXPECT_FALSE(PathExists(dir / "w"));
  EXPECT_EQ(Rename(dir / "none", dir / "x").code(),
            absl::StatusCode::kNotFound);
}

TEST(File, PathsAreJoinedAndSplit) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(ParentPath("a/b"), "a");
  EXPECT_EQ(ParentPath("a/b/"), "a");
  EXPECT_EQ(ParentPath("b"), ".");
  EXPECT_EQ(ParentPath("/b"), "/");
}

TEST(File, FullDiskIsReportedAndTheOldFileSurvives) {
  const SmallDisk disk("64k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs (needs root)";
  const std::string path = disk.path() + "/a";
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  const absl::Status status =
      WriteFileAtomically(path, std::string(200'000, 'x'));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("free space"));
  EXPECT_EQ(*ReadFile(path), "old");
  EXPECT_THAT(*ListDirectory(disk.path()), ElementsAre("a"));
}

}  // namespace
}  // namespace delink::file_test
