// Folders that have their name once they are whole.
#include "recipes/convert/output_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::output_folder_test {
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
  const auto killed = [&] { return WriteFile(dir / "out.tmp/lock", "").ok(); };
  {
    const OutputFolder folder = Begun(out, kOrigin);
    ASSERT_TRUE(WriteFile(kept, "half").ok());
  }
  ASSERT_TRUE(killed());
  {
    const OutputFolder folder = Begun(out, kOrigin);
    EXPECT_EQ(*ReadFile(kept), "half");
  }
  ASSERT_TRUE(killed());
  const OutputFolder folder = Begun(out, "{\"dtype\": \"bfloat16\"}\n");
  EXPECT_FALSE(PathExists(kept));
}

TEST(OutputFolder, OneThatFailsLeavesNothing) {
  const TempDir dir;
  OutputFolder folder = Begun(dir / "out", kOrigin);
  ASSERT_TRUE(WriteFile(folder.path() + "/weights", "1 2").ok());
  folder.Discard();
  EXPECT_THAT(*ListDirectory(dir.path()), ElementsAre());
  // Nor where an empty folder was there.
  ASSERT_TRUE(MakeDirectories(dir / "out.tmp").ok());
  Begun(dir / "out", kOrigin).Discard();
  EXPECT_THAT(*ListDirectory(dir.path()), ElementsAre());
}

TEST(OutputFolder, OneFileOfItMayBeAllThatIsWanted) {
  const TempDir dir;
  OutputFolder folder = Begun(dir / "model.bin", kOrigin);
  ASSERT_TRUE(WriteFile(folder.path() + "/values", "1 2 3").ok());
  ASSERT_TRUE(folder.PublishFile("values").ok());
  EXPECT_THAT(*ListDirectory(dir.path()), ElementsAre("model.bin"));
  EXPECT_EQ(*ReadFile(dir / "model.bin"), "1 2 3");
}

TEST(OutputFolder, WhatIsThereStays) {
  const TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir / "there").ok());
  EXPECT_THAT(Refused(dir / "there"), HasSubstr("already exists"));
  // Of somebody else.
  ASSERT_TRUE(MakeDirectories(dir / "out.tmp").ok());
  ASSERT_TRUE(WriteFile(dir / "out.tmp/thesis", "years of work").ok());
  EXPECT_THAT(Refused(dir / "out"), HasSubstr("not an interrupted conversion"));
  EXPECT_THAT(*ListDirectory(dir / "out.tmp"), ElementsAre("thesis"));
}

// One that is whole, and is called as another's beginning would be.
TEST(OutputFolder, OneThatIsWholeIsNotEmptied) {
  const TempDir dir;
  OutputFolder whole = Begun(dir / "out.tmp", kOrigin);
  ASSERT_TRUE(WriteFile(whole.path() + "/weights", "1 2 3").ok());
  ASSERT_TRUE(whole.Publish().ok());
  EXPECT_THAT(Refused(dir / "out"), HasSubstr("not an interrupted conversion"));
  EXPECT_THAT(*ListDirectory(dir / "out.tmp"),
              ElementsAre("delink.json", "weights"));
  // Nor a run that was killed, which leaves a lock as well.
  ASSERT_TRUE(MakeDirectories(dir / "run.tmp").ok());
  ASSERT_TRUE(WriteFile(dir / "run.tmp/lock", "").ok());
  ASSERT_TRUE(WriteFile(dir / "run.tmp/recipe.toml", "[model]").ok());
  EXPECT_THAT(Refused(dir / "run"), HasSubstr("not an interrupted conversion"));
  EXPECT_TRUE(PathExists(dir / "run.tmp/recipe.toml"));
}

// Who waits for its turn finds the folder there once it has the lock.
TEST(OutputFolder, OfManyOneMakesIt) {
  const TempDir dir;
  for (int round = 0; round < 100; ++round) {
    const std::string out = absl::StrCat(dir.path(), "/out", round);
    std::atomic<int> made = 0, failed = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        while (!PathExists(out)) {
          absl::StatusOr<OutputFolder> folder =
              OutputFolder::Begin(out, kOrigin);
          if (!folder.ok()) continue;
          ++(folder->Publish().ok() ? made : failed);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(made, 1) << round;
    ASSERT_EQ(failed, 0) << round;
    ASSERT_FALSE(PathExists(out + ".tmp")) << round;
    ASSERT_THAT(*ListDirectory(out), ElementsAre("delink.json"));
  }
}

TEST(OutputFolder, HasOneAtWorkAtATime) {
  const TempDir dir;
  const OutputFolder first = Begun(dir / "out", kOrigin);
  EXPECT_THAT(Refused(dir / "out"), HasSubstr("at work in this folder"));
  EXPECT_EQ(*ReadFile(dir / "out.tmp/delink.json"), kOrigin);
}

}  // namespace
}  // namespace delink::testing::output_folder_test
