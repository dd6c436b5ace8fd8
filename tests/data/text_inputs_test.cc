#include "data/corpus/text_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "framework/base/file.h"
#include "tests/data/text_samples.h"
#include "tests/testing/temp_dir.h"

namespace delink {
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
         {"in/b.txt", "in/a.txt", "in/B.txt", "in/sub/c.jsonl.gz", "in/e[1]",
          "in/d.jsonl", "in/sub/a.jsonl.zst"}) {
      WriteOrDie(dir_ / name, name);
    }
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
    const std::vector<TextInput> files = ListInputs(inputs, format).value();
    for (const TextInput& input : files) {
      text += input.jsonl ? 'j' : 't';
    }
    return text;
  };
  EXPECT_EQ(jsonl(TextFormat::kByName), "tttjtjjt");
  EXPECT_EQ(jsonl(TextFormat::kText), "tttttttt");
  EXPECT_EQ(jsonl(TextFormat::kJsonl), "jjjjjjjj");
  const TextInput last = ListInputs(inputs, TextFormat::kText)->back();
  EXPECT_EQ(last.path, "");
  EXPECT_EQ(last.name, "standard input");
  EXPECT_THAT(
      std::string(ListInputs({"-", "-"}, TextFormat::kText).status().message()),
      HasSubstr("named twice"));
}

}  // namespace
}  // namespace delink
