#include "data/corpus/text_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizer/utf8.h"
#include "framework/base/file.h"
#include "tests/data/text_samples.h"
#include "tests/testing/temp_dir.h"

namespace delink {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::SampleText;
using testing::TempDir;
using testing::WriteGzipOrDie;
using testing::WriteOrDie;

std::vector<std::string> Pieces(const std::string& path) {
  std::vector<std::string> pieces;
  auto reader = TextReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  while (true) {
    auto piece = reader->Next();
    EXPECT_TRUE(piece.ok()) << piece.status();
    if (!piece.ok() || piece->empty()) return pieces;
    pieces.push_back(*std::move(piece));
  }
}

std::string Joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(TextReader, PlainAndGzippedTextComesInTheSamePieces) {
  const TempDir dir;
  for (const int64_t size : {0, 1, 65'535, 65'540, 65'541, 400'000}) {
    const std::string text = SampleText(5, size);
    WriteOrDie(dir / "a.txt", text);
    WriteGzipOrDie(dir / "a.txt.gz", text);
    const auto pieces = Pieces(dir / "a.txt");
    EXPECT_EQ(Joined(pieces), text);
    EXPECT_EQ(Pieces(dir / "a.txt.gz"), pieces);
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      EXPECT_EQ(pieces[i].back(), '\n');
    }
    EXPECT_EQ(*CountTextBytes(dir / "a.txt.gz"),
              static_cast<int64_t>(text.size()));
  }
}

TEST(TextReader, LinesAndWordsWithoutEndAreCutBetweenCharacters) {
  const TempDir dir;
  std::string words, word;
  while (words.size() < 200'000) words += "日本語 ";
  while (word.size() < 200'000) word += "日本語";
  for (const std::string& text : {words, word}) {
    WriteOrDie(dir / "a.txt", text);
    const auto pieces = Pieces(dir / "a.txt");
    EXPECT_GT(pieces.size(), 3U);
    EXPECT_EQ(Joined(pieces), text);
    for (const std::string& piece : pieces) EXPECT_TRUE(IsUtf8(piece));
  }
}

TEST(TextReader, WhatIsNotUtf8IsNamedByFileAndByte) {
  const TempDir dir;
  for (const size_t offset : {0, 7, 65'533, 65'540, 150'000}) {
    std::string text(200'000, 'a');
    text[offset] = '\xE9';
    WriteOrDie(dir / "latin1.txt", text);
    const absl::Status status = CountTextBytes(dir / "latin1.txt").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("latin1.txt"),
                      HasSubstr("byte " + std::to_string(offset) + " (0xe9)"),
                      HasSubstr("iconv")));
  }
  WriteOrDie(dir / "cut.txt", "ab\xE2\x82");
  EXPECT_THAT(std::string(CountTextBytes(dir / "cut.txt").status().message()),
              HasSubstr("byte 2"));
}

TEST(TextReader, DamagedGzipIsReported) {
  const TempDir dir;
  WriteGzipOrDie(dir / "a.gz", SampleText(5, 300'000));
  const std::string whole = testing::ReadOrDie(dir / "a.gz");
  WriteOrDie(dir / "cut.gz", whole.substr(0, whole.size() / 2));
  EXPECT_EQ(CountTextBytes(dir / "cut.gz").status().code(),
            absl::StatusCode::kDataLoss);
  testing::FlipBit(dir / "a.gz");
  EXPECT_FALSE(CountTextBytes(dir / "a.gz").ok());
}

TEST(ListTextFiles, FilesAndFoldersInOrder) {
  const TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir / "in/sub").ok());
  WriteOrDie(dir / "in/b.txt", "bb");
  WriteOrDie(dir / "in/a.txt", "");
  WriteGzipOrDie(dir / "in/sub/c.gz", std::string(70'000, 'c'));
  const auto files = ListTextFiles({dir / "in/b.txt", dir / "in"});
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 4U);
  EXPECT_EQ((*files)[0].path, dir / "in/b.txt");
  EXPECT_EQ((*files)[1].path, dir / "in/a.txt");
  EXPECT_EQ((*files)[3].path, dir / "in/sub/c.gz");
  EXPECT_EQ((*files)[0].bytes, 2);
  EXPECT_EQ((*files)[3].bytes, 70'000);
  EXPECT_TRUE((*files)[3].gzipped);
  EXPECT_EQ(ListTextFiles({dir / "none"}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ListTextFiles({"/dev/null"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace delink
