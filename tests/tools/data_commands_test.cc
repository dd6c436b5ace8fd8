// Corpora from the command line: what goes in, what is printed, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/testing/temp_dir.h"
#include "tests/tools/program.h"

namespace delink::testing::data_commands_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DataCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream lines(dir_ / "a.jsonl");
    for (int i = 0; i < 50; ++i) {
      lines << R"({"id": )" << i << R"(, "body": "line )" << i
            << R"("})"
               "\n";
    }
  }
  Words Build(const Words& more) {
    return With({"data", "build", "--out", dir_ / "corpus"}, more);
  }
  TempDir dir_;
};

TEST_F(DataCommands, PatternsAndStandardInputMakeTheSameCorpus) {
  const Outcome pattern =
      Succeed(Build({dir_ / "*.jsonl", "--text-field", "body"}));
  EXPECT_THAT(pattern.out, AllOf(HasSubstr("inputs       1 file\n"),
                                 HasSubstr("documents"), HasSubstr("median")));
  const Words info = {"data", "info", dir_ / "corpus"};
  const Outcome first = RunDelink(info);
  EXPECT_THAT(first.out, HasSubstr("documents                          50"));
  const Outcome piped = RunDelinkOn(
      dir_ / "a.jsonl", Build({"-", "--format", "jsonl", "--text-field", "body",
                               "--threads", "2", "--overwrite"}));
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(piped.out, pattern.out);
  EXPECT_EQ(RunDelink(info).out, first.out);
}

TEST_F(DataCommands, BadInputExitsWithTwoAndLeavesNothing) {
  const struct {
    Words words;
    const char* message;
  } cases[] = {
      {{dir_ / "a.jsonl"}, "a.jsonl:1: byte 0: the line has no field 'text'"},
      {{dir_ / "*.txt"}, "no file matches this pattern"},
      {{"-"}, "-: the corpus is empty"},
      {{"-", "-"}, "named twice"},
  };
  for (const auto& [words, message] : cases) {
    const Outcome outcome = RunDelink(Build(words));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(dir_ / "corpus"));
  }
}

TEST_F(DataCommands, TokensAreImportedAndChecked) {
  std::ofstream(dir_ / "ids") << "abc.defg.hi.";
  const Words import = {"data",         "import", "--out",     dir_ / "corpus",
                        "--vocab",      "128",    "--eot",     "46",
                        "--validation", "0.3",    dir_ / "ids"};
  ExpectRefused(import, "ids: wrong magic");
  EXPECT_FALSE(std::filesystem::exists(dir_ / "corpus"));

  const Outcome done = Succeed(With(import, {"--dtype", "u8"}));
  EXPECT_THAT(done.out, AllOf(HasSubstr("tokenizer    ids, vocabulary 128"),
                              HasSubstr("not known")));
  const Outcome check = Succeed({"data", "check", dir_ / "corpus"});
  EXPECT_THAT(check.out, HasSubstr("  largest id"));
  std::ofstream(dir_ / "corpus/train/tokenizer.model") << "another";
  EXPECT_EQ(RunDelink({"data", "check", dir_ / "corpus"}).code, 1);
}

TEST_F(DataCommands, DamagedInputExitsWithOne) {
  std::ofstream(dir_ / "cut.txt.gz") << "\x1F\x8B\x08";
  const Outcome outcome = RunDelink(Build({dir_ / "cut.txt.gz"}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cut.txt.gz: byte 0 of the text"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "corpus"));
}

}  // namespace
}  // namespace delink::testing::data_commands_test
