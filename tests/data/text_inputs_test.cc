#include "data/corpus/text_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "framework/base/file.h"
#include "tests/data/text_samples.h"
#include "tests/testing/temp_dir.h"

namespace delink::text_inputs_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteOrDie;

class TextInputs : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(dir_ / "in/sub").ok());
    ASSERT_TRUE(MakeDirectories(dir_ / "none").ok());
    for (const char* name :
         {"in/b.txt", "in/a.txt", "in/B.txt", "in/e[1]", "in/d.jsonl"}) {
      WriteOrDie(dir_ / name, name);
    }
    WriteOrDie(dir_ / "in/sub/c.jsonl.gz", testing::Gzipped("c"));
    WriteOrDie(dir_ / "in/sub/a.jsonl.zst", testing::Zstandard("a"));
  }
  // Without the folder.
  std::vector<std::string> Expand(const std::string& input) {
    const auto paths = ExpandInput(dir_ / input);
    EXPECT_TRUE(paths.ok()) << paths.status();
    std::vector<std::string> names;
    for (const std::string& path : paths.value_or(names)) {
      EXPECT_EQ(path.substr(0, dir_.path().size()), dir_.path());
      names.push_back(path.substr(dir_.path().size() + 1));
    }
    return names;
  }
  std::string Message(const std::string& input) {
    const auto paths = ExpandInput(dir_ / input);
    EXPECT_FALSE(paths.ok());
    return std::string(paths.status().message());
  }
  TempDir dir_;
};

TEST_F(TextInputs, FilesFoldersAndPatternsSorted) {
  EXPECT_THAT(Expand("in/b.txt"), ElementsAre("in/b.txt"));
  EXPECT_THAT(
      Expand("in"),
      ElementsAre("in/B.txt", "in/a.txt", "in/b.txt", "in/d.jsonl", "in/e[1]",
                  "in/sub/a.jsonl.zst", "in/sub/c.jsonl.gz"));
  EXPECT_THAT(Expand("in/*.txt"),
              ElementsAre("in/B.txt", "in/a.txt", "in/b.txt"));
  EXPECT_THAT(Expand("in/[ab].t?t"), ElementsAre("in/a.txt", "in/b.txt"));
  EXPECT_THAT(Expand("*/sub"),
              ElementsAre("in/sub/a.jsonl.zst", "in/sub/c.jsonl.gz"));
  // A file of that very name comes before the pattern.
  EXPECT_THAT(Expand("in/e[1]"), ElementsAre("in/e[1]"));
}

TEST_F(TextInputs, WhatNamesNothingIsAnError) {
  EXPECT_THAT(Message("in/*.md"),
              AllOf(HasSubstr("in/*.md"), HasSubstr("no file matches")));
  EXPECT_THAT(Message("nothing.txt"), HasSubstr("nothing.txt"));
  EXPECT_THAT(Message("none"), HasSubstr("holds no files"));
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(Message("pipe"), AllOf(HasSubstr("pipe: not a file"),
                                     HasSubstr("standard input")));
  ASSERT_EQ(::symlink("gone", (dir_ / "link").c_str()), 0);
  EXPECT_THAT(Message("link"), HasSubstr("link"));
}

TEST_F(TextInputs, FormatsByNameUnlessGiven) {
  const std::vector<std::string> inputs = {dir_ / "in", "-"};
  const auto jsonl = [&](TextFormat format) {
    std::string text;
    const std::vector<TextInput> files =
        ListInputs(inputs, format).value().files;
    for (const TextInput& input : files) {
      text += input.jsonl ? 'j' : 't';
    }
    return text;
  };
  EXPECT_EQ(jsonl(TextFormat::kByName), "tttjtjjt");
  EXPECT_EQ(jsonl(TextFormat::kText), "tttttttt");
  EXPECT_EQ(jsonl(TextFormat::kJsonl), "jjjjjjjj");
  const TextInput last = ListInputs(inputs, TextFormat::kText)->files.back();
  EXPECT_EQ(last.path, "");
  EXPECT_EQ(last.name, "standard input");
  EXPECT_THAT(
      std::string(ListInputs({"-", "-"}, TextFormat::kText).status().message()),
      HasSubstr("named twice"));
}

// Of a folder what is not text is left out; what is text in another encoding
// is not, so that an error names it.
TEST_F(TextInputs, FoldersGiveTheirText) {
  ASSERT_TRUE(MakeDirectories(dir_ / "mixed/.git/objects").ok());
  ASSERT_TRUE(MakeDirectories(dir_ / "mixed/sub").ok());
  const std::string zero(1, '\0');
  const std::string png = "\x89PNG\r\n\x1A\n" + zero + zero + zero + "\rIHDR";
  const std::string late = std::string(65'535, 'a');
  const std::pair<const char*, std::string> text[] = {
      {"mixed/a.md", "caf\xC3\xA9"},
      {"mixed/b.txt", ""},
      {"mixed/c.txt", "caf\xE9"},
      {"mixed/d.txt",
       "\xFF\xFE"
       "a" +
           zero},
      {"mixed/e.txt", "\xFE\xFF" + zero + "a"},
      {"mixed/f.txt", late + "a" + zero},
      {"mixed/sub/g.txt.gz", testing::Gzipped("g")},
  };
  const std::pair<const char*, std::string> rest[] = {
      {"mixed/.hidden", "a"},
      {"mixed/.git/config", "a"},
      {"mixed/.git/objects/a", "a"},
      {"mixed/a.png", png},
      {"mixed/sub/b.png.gz", testing::Gzipped(png)},
      {"mixed/c", "a" + zero + "b"},
      {"mixed/d", late + zero},
      {"mixed/e.pdf", "%PDF-1.5\n%\xE2\xE3"},
      {"mixed/f.bz2", "BZh91AY&SY\xE2\xE3"},
  };
  std::vector<std::string> wanted;
  for (const auto& [name, stored] : text) {
    WriteOrDie(dir_ / name, stored);
    wanted.push_back(dir_ / name);
  }
  for (const auto& [name, stored] : rest) WriteOrDie(dir_ / name, stored);
  const auto all = ListInputs({dir_ / "mixed"}, TextFormat::kByName);
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<std::string> listed;
  for (const TextInput& file : all->files) listed.push_back(file.path);
  EXPECT_EQ(listed, wanted);
  EXPECT_EQ(all->not_text, 6);
  EXPECT_EQ(all->hidden, 2);
  // What is named is not judged, by a pattern either.
  for (const char* named : {"mixed/a.png", "mixed/*.png", "mixed/.hidden"}) {
    EXPECT_EQ(ListInputs({dir_ / named}, TextFormat::kByName)->files.size(), 1U)
        << named;
  }
  EXPECT_THAT(Expand("mixed/.git"),
              ElementsAre("mixed/.git/config", "mixed/.git/objects/a"));
}

TEST_F(TextInputs, FoldersWithoutTextAreErrors) {
  ASSERT_TRUE(MakeDirectories(dir_ / "pictures").ok());
  WriteOrDie(dir_ / "none/.hidden", "a");
  EXPECT_THAT(Message("none"), HasSubstr("holds no files but hidden ones"));
  for (const char* name : {"pictures/a", "pictures/b"}) {
    WriteOrDie(dir_ / name, std::string(8, '\0'));
  }
  const absl::Status status =
      ListInputs({dir_ / "in", dir_ / "pictures"}, TextFormat::kByName)
          .status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("pictures: none of the 2 files below it is text"));
}

}  // namespace
}  // namespace delink::text_inputs_test
