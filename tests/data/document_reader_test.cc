#include "data/corpus/document_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/corpus/jsonl_reader.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/status_macros.h"
#include "tests/data/text_samples.h"
#include "tests/testing/temp_dir.h"

namespace delink::document_reader_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Gzipped;
using ::testing::HasSubstr;
using testing::JsonLine;
using testing::SampleText;
using testing::TempDir;
using testing::WriteOrDie;
using testing::Zstandard;

using Pieces = std::vector<std::string>;

// The pieces of every document.
absl::StatusOr<std::vector<Pieces>> ReadPieces(DocumentReader& reader) {
  std::vector<Pieces> documents;
  bool inside = false;
  while (true) {
    DELINK_ASSIGN_OR_RETURN(TextPiece piece, reader.Next());
    if (piece.text.empty()) {
      EXPECT_FALSE(inside);
      return documents;
    }
    EXPECT_EQ(piece.begins, !inside);
    EXPECT_LE(piece.text.size(), kPieceBytes);
    if (piece.begins) documents.emplace_back();
    documents.back().push_back(std::move(piece.text));
    inside = !piece.ends;
  }
}

absl::StatusOr<std::vector<Pieces>> ReadPieces(const std::string& path,
                                               bool jsonl) {
  const auto reader =
      ReadAllDocuments({{.path = path, .name = path, .jsonl = jsonl}}, "text");
  return ReadPieces(*reader);
}

std::string Joined(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(DocumentReader, EveryFormGivesTheSamePieces) {
  const TempDir dir;
  for (const int64_t size : {1, 65'535, 65'536, 65'537, 65'541, 400'000}) {
    std::string text = SampleText(5, size);
    text.resize(CharacterBoundary(text, static_cast<size_t>(size)));
    WriteOrDie(dir / "plain", text);
    const auto documents = ReadPieces(dir / "plain", false);
    ASSERT_TRUE(documents.ok()) << documents.status();
    ASSERT_EQ(documents->size(), 1U);
    const Pieces& pieces = documents->front();
    EXPECT_EQ(Joined(pieces), text);
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      EXPECT_EQ(pieces[i].back(), '\n');
    }
    for (const bool jsonl : {false, true}) {
      const std::string stored = jsonl ? JsonLine(text) : text;
      WriteOrDie(dir / "a", stored);
      EXPECT_EQ(*ReadPieces(dir / "a", jsonl), *documents);
      WriteOrDie(dir / "a.gz", Gzipped(stored));
      EXPECT_EQ(*ReadPieces(dir / "a.gz", jsonl), *documents);
      WriteOrDie(dir / "a.zst", Zstandard(stored));
      EXPECT_EQ(*ReadPieces(dir / "a.zst", jsonl), *documents);
    }
  }
}

TEST(DocumentReader, LinesAndWordsWithoutEndAreCutBetweenCharacters) {
  const TempDir dir;
  std::string words, word;
  while (words.size() < 200'000) words += "日本語 ";
  while (word.size() < 200'000) word += "日本語";
  for (const std::string& text : {words, word}) {
    WriteOrDie(dir / "a.txt", text);
    WriteOrDie(dir / "a.jsonl", JsonLine(text));
    const Pieces pieces = ReadPieces(dir / "a.txt", false)->front();
    EXPECT_GT(pieces.size(), 3U);
    EXPECT_EQ(Joined(pieces), text);
    for (const std::string& piece : pieces) EXPECT_TRUE(CheckUtf8(piece).ok());
    EXPECT_EQ(ReadPieces(dir / "a.jsonl", true)->front(), pieces);
  }
}

TEST(DocumentReader, DocumentsOfSeveralInputsInOrder) {
  const TempDir dir;
  WriteOrDie(dir / "a.jsonl", "\xEF\xBB\xBF" + JsonLine("one") + "\r\n \t\n" +
                                  JsonLine("") +
                                  "{\"text\": \"t\\u0077o \\ud83d\\ude00\"}\r");
  WriteOrDie(dir / "b.txt", "");
  WriteOrDie(dir / "c.txt", "three");
  WriteOrDie(dir / "d.jsonl", "");
  const auto reader = ReadAllDocuments({{dir / "a.jsonl", "a", true},
                                        {dir / "b.txt", "b", false},
                                        {dir / "c.txt", "c", false},
                                        {dir / "d.jsonl", "d", true}},
                                       "text");
  EXPECT_THAT(*ReadPieces(*reader),
              ElementsAre(Pieces{"one"}, Pieces{"two 😀"}, Pieces{"three"}));
  EXPECT_EQ(reader->empty_documents(), 2);
  EXPECT_EQ(
      reader->stored_bytes(),
      static_cast<int64_t>(testing::ReadOrDie(dir / "a.jsonl").size()) + 5);
}

TEST(DocumentReader, AnotherFieldMayHoldTheText) {
  const TempDir dir;
  WriteOrDie(dir / "a", JsonLine("one", "body"));
  const auto reader = ReadAllDocuments({{dir / "a", "a", true}}, "body");
  EXPECT_THAT(*ReadPieces(*reader), ElementsAre(Pieces{"one"}));
}

TEST(DocumentReader, WhatIsNotUtf8IsNamedByFileAndByte) {
  const TempDir dir;
  for (const size_t offset : {0, 7, 65'533, 65'540, 150'000}) {
    std::string text(200'000, 'a');
    text[offset] = '\xE9';
    for (const std::string& stored : {text, Gzipped(text), Zstandard(text)}) {
      WriteOrDie(dir / "latin1.txt", stored);
      const absl::Status status =
          ReadPieces(dir / "latin1.txt", false).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("latin1.txt"),
                        HasSubstr("byte " + std::to_string(offset) + " (0xe9)"),
                        HasSubstr("iconv -f latin1")));
    }
  }
}

struct Bad {
  const char* what;
  std::string stored;
  std::vector<std::string> said;
};

void ExpectNamed(const std::vector<Bad>& cases, bool jsonl) {
  const TempDir dir;
  const std::string path = dir / "bad";
  for (const auto& [what, stored, said] : cases) {
    SCOPED_TRACE(what);
    WriteOrDie(path, stored);
    const auto read = ReadPieces(path, jsonl);
    ASSERT_FALSE(read.ok());
    const std::string message(read.status().message());
    EXPECT_THAT(message, HasSubstr(path));
    for (const std::string& part : said) EXPECT_THAT(message, HasSubstr(part));
    EXPECT_LT(message.size(), 500U + path.size());
    EXPECT_TRUE(CheckUtf8(message).ok());
  }
}

TEST(DocumentReader, BadText) {
  ExpectNamed(
      {
          {"a character cut short", "ab\xE2\x82", {"byte 2 (0xe2)", "iconv"}},
          {"UTF-16, little end first",
           std::string("\xFF\xFE\x61\x00", 4),
           {"byte 0 (0xff)", "UTF-16", "iconv -f utf-16"}},
          {"UTF-16, big end first",
           std::string("\xFE\xFF\x00\x61", 4),
           {"byte 0 (0xfe)", "UTF-16", "iconv -f utf-16"}},
          {"Latin-1 in the middle",
           "caf\xC3\xA9 caf\xE9 x",
           {"byte 9 (0xe9)", "iconv -f latin1"}},
          {"a surrogate", "\xED\xA0\x80", {"byte 0 (0xed)"}},
          {"an overlong form", "a\xC0\x80", {"byte 1 (0xc0)"}},
          {"a picture",
           std::string("\x89PNG\r\n\x1A\n\0\0\0\rIHDR", 16),
           {"byte 0 (0x89)", "not text; leave the file out"}},
      },
      false);
}

TEST(DocumentReader, BadLines) {
  const std::string good = JsonLine("one");
  const auto byte = [&](size_t in_line) {
    return "byte " + std::to_string(good.size() + in_line) + ":";
  };
  ExpectNamed(
      {
          {"not JSON",
           good + "text\n",
           {":2: " + byte(1), "is not JSON", "fix the line"}},
          {"cut short",
           good + R"({"text": "tw)",
           {":2: " + byte(11), "is not JSON", "missing closing quote"}},
          {"two on a line",
           good + R"({"text": "a"} {"text": "b"})"
                  "\n",
           {":2: " + byte(14), "is not JSON"}},
          {"an array",
           good + "[1]\n",
           {":2: " + byte(0), "is an array, not an object"}},
          {"a number", good + "1\n", {":2: " + byte(0), "is a number"}},
          {"no field",
           good + R"({"body": "a", "id": 1})"
                  "\n",
           {":2: " + byte(0), "no field 'text'", "it has 'body', 'id'",
            "--text-field"}},
          {"no fields", good + "{}\n", {"no field 'text'; it is empty"}},
          {"many fields",
           R"({"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1})",
           {":1: byte 0:", "'h' and more"}},
          {"the field nested only",
           R"({"a": {"text": "b"}})",
           {"no field 'text'"}},
          {"the field twice",
           R"({"text": "a", "text": "b"})",
           {"the field 'text' twice"}},
          {"null for text", R"({"text": null})", {"has null in 'text'"}},
          {"a list for text", R"({"text": ["a"]})", {"has an array in 'text'"}},
          {"an object for text", R"({"text": {}})", {"has an object"}},
          {"half a surrogate",
           good + R"({"text": "a\ud800b"})"
                  "\n",
           {":2: byte", "surrogate"}},
          {"a number out of range",
           R"({"text": "a", "n": 1e999})",
           {":1: byte", "is not JSON"}},
          {"Latin-1",
           good + "{\"text\": \"caf\xE9\"}\n",
           {":2: byte " + std::to_string(good.size() + 13) + " (0xe9)",
            "iconv -f latin1"}},
          {"UTF-16",
           std::string("\xFF\xFE{\0", 4),
           {":1: byte 0 (0xff)", "iconv -f utf-16"}},
          {"a control character", "{\"text\": \"a\x01\"}", {":1: byte 11:"}},
          {"a long bad line",
           "{\"text\": \"" + std::string(100'000, 'a'),
           {":1: byte 100009:", "is not JSON"}},
          {"deep nesting",
           "{\"a\":" + std::string(100'000, '['),
           {":1: byte 100004:", "is not JSON"}},
          {"text for JSONL",
           "Call me Ishmael.\nSome years ago",
           {":1: byte 0:", "is not JSON"}},
      },
      true);
}

TEST(DocumentReader, ALineWithoutEndIsRefused) {
  const TempDir dir;
  constexpr size_t kLongest = 2 << 20;
  const std::string path = dir / "a.jsonl.zst";
  std::string line = JsonLine("a");
  line.insert(line.size() - 1, kLongest + 1 - line.size(), ' ');
  for (const bool fits : {true, false}) {
    WriteOrDie(path, Zstandard("\n" + line));
    JsonlReader reader(*ByteSource::Open(path, path), "text", kLongest);
    const auto read = ReadPieces(reader);
    EXPECT_EQ(read.ok(), fits) << read.status();
    line.insert(line.size() - 1, 1, ' ');
    if (fits) continue;
    EXPECT_THAT(std::string(read.status().message()),
                AllOf(HasSubstr("a.jsonl.zst:2: byte 1:"), HasSubstr("2 MiB")));
  }
}

}  // namespace
}  // namespace delink::document_reader_test
