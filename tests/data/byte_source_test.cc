#include "data/corpus/byte_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/status_macros.h"
#include "tests/data/text_samples.h"
#include "tests/testing/temp_dir.h"

namespace delink::byte_source_test {
namespace {

using ::testing::AllOf;
using testing::Gzipped;
using ::testing::HasSubstr;
using testing::SampleText;
using testing::TempDir;
using testing::WriteOrDie;
using testing::Zstandard;

absl::StatusOr<std::string> ReadAll(const std::string& path, int64_t step) {
  DELINK_ASSIGN_OR_RETURN(ByteSource source, ByteSource::Open(path, path));
  std::string all;
  std::string part(static_cast<size_t>(step), '\0');
  while (true) {
    DELINK_ASSIGN_OR_RETURN(const int64_t got, source.Read(part.data(), step));
    all.append(part, 0, static_cast<size_t>(got));
    if (got < step) return all;
  }
}

class Compressed : public ::testing::TestWithParam<const char*> {
 protected:
  bool gzip() const { return std::string_view(GetParam()) == ".gz"; }
  std::string Pack(std::string_view bytes) const {
    return gzip() ? Gzipped(bytes) : Zstandard(bytes);
  }
  std::string Path() const { return dir_ / (std::string("a") + GetParam()); }
  absl::StatusOr<std::string> Read(const std::string& stored) const {
    WriteOrDie(Path(), stored);
    return ReadAll(Path(), 5000);
  }
  std::string Message(const std::string& stored) const {
    const auto text = Read(stored);
    EXPECT_FALSE(text.ok());
    return std::string(text.status().message());
  }

  TempDir dir_;
};

TEST_P(Compressed, RoundTripsWhateverTheReadsAre) {
  for (const int64_t size : {0, 1, 1000, 900'000}) {
    const std::string text = size == 0 ? "" : SampleText(3, size);
    WriteOrDie(Path(), Pack(text));
    WriteOrDie(dir_ / "plain", text);
    for (const int64_t step : {int64_t{7}, int64_t{4096}, int64_t{1} << 21}) {
      EXPECT_EQ(*ReadAll(Path(), step), text);
      EXPECT_EQ(*ReadAll(dir_ / "plain", step), text);
    }
  }
}

TEST_P(Compressed, SeveralInARowAreOneText) {
  EXPECT_EQ(*Read(Pack("one ") + Pack("") + Pack("two")), "one two");
  if (gzip()) {
    EXPECT_EQ(*Read(Pack("one") + std::string(600'000, '\0')), "one");
  } else {
    const std::string skipped = {'\x50', '\x2A', '\x4D', '\x18', 2,
                                 0,      0,      0,      'x',    'x'};
    EXPECT_EQ(*Read(skipped + Pack("one") + skipped), "one");
  }
}

TEST_P(Compressed, CutShortAnywhereIsNamed) {
  const std::string whole = Pack(SampleText(3, 500));
  for (size_t size = 4; size < whole.size(); ++size) {
    EXPECT_THAT(Message(whole.substr(0, size)),
                AllOf(HasSubstr(Path()), HasSubstr("of the text"),
                      HasSubstr("cut short"),
                      HasSubstr("at byte " + std::to_string(size)),
                      HasSubstr("get the file again")));
  }
  // Past the first member, too; and with the offset in the text.
  EXPECT_THAT(Message(Pack("one") + whole.substr(0, 8)),
              AllOf(HasSubstr("cut short"), HasSubstr("byte 3 of the text")));
}

TEST_P(Compressed, AFlippedBitIsNamedOrHarmless) {
  const std::string text = SampleText(3, 500);
  const std::string whole = Pack(text);
  int found = 0;
  for (size_t at = 4; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] ^= 1 << at % 8;
    const auto read = Read(flipped);
    if (read.ok()) {
      // Times, names and flags of the header may change.
      EXPECT_EQ(*read, text) << at;
      continue;
    }
    ++found;
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(Path()));
  }
  EXPECT_GT(found, static_cast<int>(whole.size()) - 40);
}

TEST_P(Compressed, WhatFollowsTheEndIsDamage) {
  EXPECT_THAT(Message(Pack("one") + "and more"),
              AllOf(HasSubstr("byte 3 of the text"), HasSubstr("damaged")));
}

TEST_P(Compressed, ANameThatLiesIsRefused) {
  for (const std::string& stored : {std::string("plain text"), std::string(),
                                    gzip() ? Zstandard("a") : Gzipped("a")}) {
    EXPECT_THAT(Message(stored), AllOf(HasSubstr(Path()), HasSubstr("byte 0"),
                                       HasSubstr("its name promises")));
  }
}

INSTANTIATE_TEST_SUITE_P(ByteSource, Compressed,
                         ::testing::Values(".gz", ".zst"),
                         [](const auto& info) {
                           return std::string(info.param).substr(1);
                         });

TEST(ByteSource, BigWindowsAreRefusedWithTheirName) {
  // A frame that wants a window of 2 GiB: magic, no content size, 31 bits.
  const TempDir dir;
  WriteOrDie(dir / "a.zst",
             std::string("\x28\xB5\x2F\xFD\x00\xA8\x01\x00\x00", 9));
  const absl::Status status = ReadAll(dir / "a.zst", 100).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("a.zst"), HasSubstr("too much memory")));
}

}  // namespace
}  // namespace delink::byte_source_test
