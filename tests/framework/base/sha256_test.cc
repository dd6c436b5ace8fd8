#include "framework/base/sha256.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::sha256_test {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(Sha256Hex(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 digest;
  for (int i = 0; i < 1000; ++i) digest.Update(std::string(1000, 'a'));
  EXPECT_EQ(digest.Hex(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

class Sums : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(dir_ / "sub").ok());
    ASSERT_TRUE(WriteFile(dir_ / "a.bin", std::string(5000, 'a')).ok());
    ASSERT_TRUE(WriteFile(dir_ / "b c.bin", "bb").ok());
    ASSERT_TRUE(WriteFile(dir_ / "sub/d", "").ok());
    ASSERT_TRUE(WriteSums(dir_.path(), {"a.bin", "b c.bin", "sub/d"}).ok());
  }

  TempDir dir_;
};

TEST_F(Sums, WholeFolderPasses) {
  EXPECT_TRUE(VerifySums(dir_.path()).ok()) << VerifySums(dir_.path());
  const auto sums = ReadSums(dir_.path());
  ASSERT_TRUE(sums.ok());
  ASSERT_EQ(sums->size(), 3U);
  EXPECT_EQ((*sums)[1].name, "b c.bin");
  EXPECT_EQ((*sums)[1].bytes, 2);
  EXPECT_EQ((*sums)[1].digest, Sha256Hex("bb"));
}

TEST_F(Sums, Sha256sumAgrees) {
  if (std::system("sha256sum --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no sha256sum here";
  }
  const std::string check =
      "cd '" + dir_.path() + "' && sha256sum -c --strict --status SHA256SUMS";
  EXPECT_EQ(std::system(check.c_str()), 0);
  ASSERT_TRUE(WriteFile(dir_ / "b c.bin", "bB").ok());
  EXPECT_NE(std::system(check.c_str()), 0);
}

TEST_F(Sums, EachKindOfDamageIsNamed) {
  ASSERT_TRUE(WriteFile(dir_ / "b c.bin", "bB").ok());
  EXPECT_THAT(Message(VerifySums(dir_.path())),
              AllOf(HasSubstr("b c.bin"), HasSubstr("damaged")));
  ASSERT_TRUE(WriteFile(dir_ / "b c.bin", "b").ok());
  EXPECT_THAT(Message(VerifySums(dir_.path())),
              AllOf(HasSubstr("b c.bin"), HasSubstr("truncated to 1")));
  ASSERT_TRUE(WriteFile(dir_ / "b c.bin", "bbb").ok());
  EXPECT_THAT(Message(VerifySums(dir_.path())), HasSubstr("too long"));
  ASSERT_TRUE(RemoveAll(dir_ / "b c.bin").ok());
  EXPECT_THAT(Message(VerifySums(dir_.path())),
              AllOf(HasSubstr("b c.bin"), HasSubstr("missing")));
  ASSERT_TRUE(WriteFile(dir_ / "b c.bin", "bb").ok());
  ASSERT_TRUE(WriteFile(dir_ / "sub/e", "").ok());
  EXPECT_THAT(Message(VerifySums(dir_.path())),
              AllOf(HasSubstr("sub/e"), HasSubstr("extra")));
  ASSERT_TRUE(RemoveAll(dir_ / "sub/e").ok());
  EXPECT_TRUE(VerifySums(dir_.path()).ok());
}

TEST_F(Sums, ADamagedListIsToldFromADamagedFile) {
  const std::string list = dir_ / kSumsName;
  const std::string whole = *ReadFile(list);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ASSERT_TRUE(WriteFile(list, flipped).ok());
    const absl::Status status = VerifySums(dir_.path());
    EXPECT_FALSE(status.ok()) << flipped;
    EXPECT_THAT(Message(status), ::testing::StartsWith(list + ": ")) << flipped;
  }
}

TEST_F(Sums, WhatIsNoFileIsNotRead) {
  for (const char* name : {"a.bin", "SHA256SUMS"}) {
    const TempDir elsewhere;
    ASSERT_TRUE(Rename(dir_ / name, elsewhere / "kept").ok());
    for (const std::string& target :
         {std::string("/dev/zero"), elsewhere / "kept"}) {
      ASSERT_EQ(symlink(target.c_str(), (dir_ / name).c_str()), 0);
      EXPECT_THAT(
          Message(VerifySums(dir_.path())),
          AllOf(HasSubstr(dir_ / name), HasSubstr("is a link, not a file")));
      ASSERT_TRUE(RemoveAll(dir_ / name).ok());
    }
    ASSERT_EQ(mkfifo((dir_ / name).c_str(), 0600), 0);
    EXPECT_THAT(Message(VerifySums(dir_.path())),
                HasSubstr("is a device or pipe"));
    ASSERT_TRUE(Rename(elsewhere / "kept", dir_ / name).ok());
    EXPECT_TRUE(VerifySums(dir_.path()).ok());
  }
  // Nor is a folder looked into that lies elsewhere.
  ASSERT_TRUE(Rename(dir_ / "sub", dir_.path() + "-sub").ok());
  ASSERT_EQ(symlink((dir_.path() + "-sub").c_str(), (dir_ / "sub").c_str()), 0);
  EXPECT_THAT(Message(VerifySums(dir_.path())),
              AllOf(HasSubstr("sub/d"), HasSubstr("missing")));
  ASSERT_TRUE(RemoveAll(dir_.path() + "-sub").ok());
}

TEST_F(Sums, AnEndlessListIsNotRead) {
  std::filesystem::resize_file(dir_ / kSumsName, int64_t{3} << 30);
  const absl::Status status = VerifySums(dir_.path());
  EXPECT_THAT(Message(status), AllOf(HasSubstr(dir_ / kSumsName),
                                     HasSubstr("3221225472 bytes long")));
}

TEST_F(Sums, NoSumsMeansNotWhole) {
  ASSERT_TRUE(RemoveAll(dir_ / kSumsName).ok());
  const absl::Status status = VerifySums(dir_.path());
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("not whole"));
  ASSERT_TRUE(WriteFile(dir_ / kSumsName, "rubbish\n").ok());
  EXPECT_THAT(Message(VerifySums(dir_.path())), HasSubstr("line 1"));
  ASSERT_TRUE(WriteFile(dir_ / kSumsName, "").ok());
  EXPECT_THAT(Message(VerifySums(dir_.path())), HasSubstr("lists no file"));
}

TEST_F(Sums, SharesTogetherFindWhatIsDamagedExactlyOnce) {
  ASSERT_TRUE(WriteFile(dir_ / "b c.bin", "bB").ok());
  for (const int count : {1, 2, 3, 7}) {
    int found = 0;
    for (int i = 0; i < count; ++i) {
      if (!VerifySums(dir_.path(), i, count).ok()) ++found;
    }
    EXPECT_EQ(found, 1) << count;
  }
}

}  // namespace
}  // namespace delink::sha256_test
