// Folders that have their name once they are whole.
#include "recipes/convert/output_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kOrigin[] = "{\"dtype\": \"float32\"}\n";

OutputFolder Begun(const std::string& out, const std::string& origin) {
  absl::StatusOr<OutputFolder> folder = OutputFolder::Begin(out, origin);
  EXPECT_TRUE(folder.ok()) << std::string(folder.status().message());
  return *std::move(folder);
}

std::string Refused(const std::string& out) {
  const absl::Status status = OutputFolder::Begin(out, kOrigin).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << std::string(status.message());
  return std::string(status.message());
}

TEST(OutputFolder, HasItsNameOnceItIsWhole) {
  const TempDir dir;
  const std::string out = dir / "out";
  OutputFolder folder = Begun(out + "/", kOrigin);
  EXPECT_EQ(folder.path(), out + ".tmp");
  ASSERT_TRUE(WriteFile(folder.path() + "/weights", "1 2 3").ok());
  EXPECT_FALSE(PathExists(out));
  ASSERT_TRUE(folder.Publish().ok());
  EXPECT_FALSE(PathExists(out + ".tmp"));
  // The lock is gone; what it is of stays.
  EXPECT_THAT(*ListDirectory(out), ElementsAre("delink.json", "weights"));
  EXPECT_EQ(*ReadFile(out + "/delink.json"), kOrigin);
}

TEST(OutputFolder, OfTheSameOriginIsGoneOnWith) {
  const TempDir dir;
  const std::string out = dir / "out", kept = dir / "out.tmp/kept";
  {
    const OutputFolder folder = Begun(out, kOrigin);
    ASSERT_TRUE(WriteFile(kept, "half").ok());
  }
  {
    const OutputFolder folder = Begun(out, kOrigin);
    EXPECT_EQ(*ReadFile(kept), "half");
  }
  const OutputFolder folder = Begun(out, "{\"dtype\": \"bfloat16\"}\n");
  EXPECT_FALSE(PathExists(kept));
}

TEST(OutputFolder, OneThatFailsLeavesNothing) {
  const TempDir dir;
  OutputFolder folder = Begun(dir / "out", kOrigin);
  ASSERT_TRUE(WriteFile(folder.path() + "/weights", "1 2").ok());
  folder.Discard();
  EXPECT_THAT(*ListDirectory(dir.path()), ElementsAre());
}

TEST(OutputFolder, WhatIsThereStays) {
  const TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir / "there").ok());
  EXPECT_THAT(Refused(dir / "there"), HasSubstr("is there already"));
  // Of somebody else.
  ASSERT_TRUE(MakeDirectories(dir / "out.tmp").ok());
  ASSERT_TRUE(WriteFile(dir / "out.tmp/thesis", "years of work").ok());
  EXPECT_THAT(Refused(dir / "out"), HasSubstr("no conversion has left it"));
  EXPECT_THAT(*ListDirectory(dir / "out.tmp"), ElementsAre("thesis"));
}

TEST(OutputFolder, HasOneAtWorkAtATime) {
  const TempDir dir;
  const OutputFolder first = Begun(dir / "out", kOrigin);
  EXPECT_THAT(Refused(dir / "out"), HasSubstr("at work in this folder"));
  EXPECT_EQ(*ReadFile(dir / "out.tmp/delink.json"), kOrigin);
}

}  // namespace
}  // namespace delink::testing
