// What may befall a checkpoint: a full disk while it is written, and every kind
// of damage afterwards. Nothing older is lost, and nothing damaged is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "framework/base/file.h"
#include "framework/base/rng.h"
#include "framework/base/sha256.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/hdf5/hdf5.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::damage_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

class DamageTest : public ::testing::Test {
 protected:
  absl::Status Save(const std::string& folder, int64_t step, int64_t keep = 0) {
    return WriteCheckpoint(comm_, folder, {.step = step}, rig_.store(),
                           {{"recipe.toml", "# none\n"}}, keep)
        .status();
  }
  std::string Find(const std::string& folder) {
    absl::StatusOr<std::string> found = FindCheckpoint(comm_, folder);
    return found.ok() ? std::filesystem::path(*found).filename().string()
                      : Message(found.status());
  }

  SelfCommunicator comm_;
  StepRig rig_{comm_, "all", {}};
  TempDir dir_;
};

TEST_F(DamageTest, TheNewestWholeOneIsFound) {
  for (const int64_t step : {5, 10, 15}) {
    ASSERT_TRUE(Save(dir_.path(), step).ok());
  }
  EXPECT_EQ(Find(dir_.path()), "step-00000015");
  std::filesystem::resize_file(dir_ / "step-00000015/rank-00000.h5", 1000);
  EXPECT_EQ(Find(dir_.path()), "step-00000010");
  std::filesystem::remove(dir_ / "step-00000010/index.h5");
  EXPECT_EQ(Find(dir_.path()), "step-00000005");
  std::filesystem::remove(dir_ / "step-00000005/SHA256SUMS");
  EXPECT_THAT(Find(dir_.path()), HasSubstr("no whole checkpoint"));
}

// Every single bit counts: 200 of them, over every file.
TEST_F(DamageTest, AFlippedBitIsFoundBeforeUse) {
  ASSERT_TRUE(Save(dir_.path(), 5).ok());
  const std::string folder = dir_ / "step-00000005";
  const std::vector<std::string> names = *ListDirectory(folder);
  ASSERT_GE(names.size(), 4U);
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string path = JoinPath(folder, names[i % names.size()]);
    const std::string whole = *ReadFile(path);
    const auto random = Philox(KeyFromSeed(5), i, 0);
    std::string damaged = whole;
    damaged[random[0] % damaged.size()] ^=
        static_cast<char>(1 << (random[1] % 8));
    ASSERT_TRUE(WriteFile(path, damaged).ok());
    const absl::Status status = VerifyCheckpoint(comm_, folder);
    EXPECT_FALSE(status.ok()) << path;
    EXPECT_THAT(Message(status), HasSubstr(folder));
    ASSERT_TRUE(WriteFile(path, whole).ok());
  }
  EXPECT_TRUE(VerifyCheckpoint(comm_, folder).ok());
}

TEST_F(DamageTest, WhatWasHalfWrittenIsNotACheckpoint) {
  ASSERT_TRUE(Save(dir_.path(), 5).ok());
  std::filesystem::rename(dir_ / "step-00000005", dir_ / "step-00000005.tmp");
  EXPECT_THAT(Find(dir_.path()), HasSubstr("no checkpoint"));
}

TEST_F(DamageTest, DamageIsNamed) {
  ASSERT_TRUE(Save(dir_.path(), 5).ok());
  const std::string path = dir_ / "step-00000005";
  std::filesystem::resize_file(path + "/rank-00000.h5", 1000);
  const absl::Status status = VerifyCheckpoint(comm_, path);
  EXPECT_THAT(Message(status), HasSubstr("rank-00000.h5"));
  EXPECT_THAT(Message(status), HasSubstr("truncated"));
}

TEST_F(DamageTest, ANewerFormatIsRefused) {
  ASSERT_TRUE(Save(dir_.path(), 5).ok());
  const std::string path = dir_ / "step-00000005";
  {
    hdf5::File index = *hdf5::File::OpenReadWrite(path + "/index.h5");
    ASSERT_TRUE(index.SetInt("/", "format", kCheckpointFormat + 1).ok());
    ASSERT_TRUE(index.Close().ok());
  }
  ASSERT_TRUE(
      WriteSums(path, {"index.h5", "rank-00000.h5", "recipe.toml"}).ok());
  ASSERT_TRUE(VerifyCheckpoint(comm_, path).ok());
  const absl::Status status = ReadHeader(path).status();
  EXPECT_THAT(Message(status), HasSubstr("format 2"));
  EXPECT_THAT(Message(status), HasSubstr("newer delink"));
}

// Well-formed links, which no build of ours has written.
TEST_F(DamageTest, LinksThatMakeNoSenseAreRefused) {
  ASSERT_TRUE(Save(dir_.path(), 5).ok());
  const std::string path = dir_ / "step-00000005";
  const ParamRegistry& registry = rig_.store().registry();
  const int blocks = rig_.store().blocks();
  ASSERT_TRUE(ReadSharing(path, registry, blocks).ok());
  const std::string tensor = "/model/blocks/1/attn/qkv/weight";
  for (const char* target :
       {"x", "/stage", "/model/blocks/2/attn/qkv/weight",
        "/model/blocks/0/mlp/up/weight", "/model/embed/token/weight"}) {
    {
      auto index = hdf5::File::OpenReadWrite(path + "/index.h5");
      ASSERT_TRUE(index.ok());
      ASSERT_TRUE(index->Remove(tensor).ok());
      ASSERT_TRUE(index->CreateSoftLink(target, tensor).ok());
      ASSERT_TRUE(index->Close().ok());
    }
    const absl::Status status = ReadSharing(path, registry, blocks).status();
    EXPECT_FALSE(status.ok()) << target;
    EXPECT_THAT(Message(status), HasSubstr("another program wrote it"))
        << target;
  }
}

TEST_F(DamageTest, TheOldestArePruned) {
  for (const int64_t step : {1, 2, 3, 4}) {
    ASSERT_TRUE(Save(dir_.path(), step, 2).ok());
  }
  EXPECT_FALSE(PathExists(dir_ / "step-00000002"));
  EXPECT_TRUE(PathExists(dir_ / "step-00000003"));
  EXPECT_TRUE(PathExists(dir_ / "step-00000004"));
}

// A run that was resumed from before its newest checkpoints.
TEST_F(DamageTest, WhatWasJustWrittenIsNotPruned) {
  for (const int64_t step : {10, 20, 30, 40, 15}) {
    ASSERT_TRUE(Save(dir_.path(), step, step == 15 ? 2 : 0).ok());
  }
  EXPECT_TRUE(PathExists(dir_ / "step-00000010"));
  EXPECT_TRUE(PathExists(dir_ / "step-00000015"));
  EXPECT_FALSE(PathExists(dir_ / "step-00000020"));
  EXPECT_FALSE(PathExists(dir_ / "step-00000040"));
}

TEST_F(DamageTest, WhatInterruptedWritersLeftIsRemoved) {
  for (const char* name :
       {"step-00000003.tmp", "step-00000004.old", "mine.tmp"}) {
    ASSERT_TRUE(MakeDirectories(dir_ / name).ok());
  }
  ASSERT_TRUE(Save(dir_.path(), 5).ok());
  EXPECT_FALSE(PathExists(dir_ / "step-00000003.tmp"));
  EXPECT_FALSE(PathExists(dir_ / "step-00000004.old"));
  EXPECT_TRUE(PathExists(dir_ / "mine.tmp"));
}

TEST_F(DamageTest, TheRankThatFailedIsNamedOnce) {
  ASSERT_TRUE(WriteFile(dir_ / "taken", "").ok());
  const absl::Status status = RunRanks(2, [this](Communicator& comm) {
    StepRig rig(comm, "all", {});
    return WriteCheckpoint(comm, dir_ / "taken", {.step = 1}, rig.store(), {},
                           0)
        .status();
  });
  EXPECT_THAT(Message(status), HasSubstr("step-00000001: rank 0: "));
  EXPECT_THAT(Message(status), Not(HasSubstr("rank 0: rank 0")));
}

TEST_F(DamageTest, AFullDiskLosesNothing) {
  const int64_t needed = rig_.store().bytes(Plane::kWeight) +
                         rig_.store().bytes(Plane::kState0) +
                         rig_.store().bytes(Plane::kState1);
  // Room for one checkpoint and a half.
  SmallDisk disk(std::to_string((needed + 100'000) * 3 / 2));
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  ASSERT_TRUE(Save(disk.path(), 5).ok());
  const absl::Status status = Save(disk.path(), 10);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted)
      << Message(status);
  EXPECT_THAT(Message(status), HasSubstr("step-00000010"));
  EXPECT_EQ(Find(disk.path()), "step-00000005");
  // Nothing of the failed one is left to fill the disk.
  EXPECT_FALSE(PathExists(disk.path() + "/step-00000010.tmp"));
}

}  // namespace
}  // namespace delink::testing::damage_test
