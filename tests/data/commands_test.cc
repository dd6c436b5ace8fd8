#include "data/commands/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "data/corpus/corpus.h"
#include "data/tokenizer/huggingface_files.h"
#include "framework/base/file.h"
#include "tests/data/text_samples.h"
#include "tests/testing/temp_dir.h"

namespace delink::commands_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;

class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteOrDie(dir_ / "a.txt", testing::SampleText(1, 50'000));
    options_ = {.inputs = {dir_ / "a.txt"}, .out = dir_ / "c"};
    ASSERT_TRUE(DataBuild(options_, out_, live_, false).ok());
  }
  TempDir dir_;
  CorpusOptions options_;
  std::ostringstream out_;
  std::ostringstream live_;
};

TEST_F(Commands, BuildSumsUpAndShowsProgress) {
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("vocabulary 257"), HasSubstr("train "),
                    HasSubstr("validation\n"), HasSubstr("unigram entropy"),
                    HasSubstr("documents                           1"),
                    HasSubstr("  median")));
  // The same table as of info.
  std::ostringstream info;
  ASSERT_TRUE(DataInfo(dir_ / "c", false, info).ok());
  const std::string table = out_.str().substr(out_.str().find("\n\n") + 2);
  EXPECT_EQ(info.str().substr(0, table.size()), table);
  std::istringstream lines(out_.str());
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
  }
  EXPECT_THAT(live_.str(),
              AllOf(HasSubstr("encoding [########################"),
                    HasSubstr("100%"), Not(HasSubstr("\x1b"))));
  options_.overwrite = true;
  std::ostringstream terminal;
  ASSERT_TRUE(DataBuild(options_, out_, terminal, true).ok());
  EXPECT_THAT(terminal.str(), HasSubstr("\r"));
}

TEST_F(Commands, BuildSaysWhatItLeftOut) {
  EXPECT_THAT(out_.str(), Not(HasSubstr("left out")));
  ASSERT_TRUE(MakeDirectories(dir_ / "in").ok());
  testing::WriteOrDie(dir_ / "in/a.txt", testing::SampleText(1, 50'000));
  for (const char* name : {"in/b", "in/c"}) {
    testing::WriteOrDie(dir_ / name, std::string(9, '\0'));
  }
  testing::WriteOrDie(dir_ / "in/.hidden", "text");
  testing::WriteOrDie(dir_ / "in/d.txt", "");
  options_.inputs = {dir_ / "in"};
  options_.overwrite = true;
  std::ostringstream out;
  ASSERT_TRUE(DataBuild(options_, out, live_, false).ok());
  EXPECT_THAT(out.str(),
              HasSubstr("inputs       2 files\n"
                        "left out     2 files that are not text, 1 hidden, "
                        "1 document without text\n"
                        "tokenizer "));
}

// A pipe can be read once.
TEST_F(Commands, BuildReadsATokenizerOnce) {
  const HuggingFaceTokenizer bytes = ForHuggingFace(*MakeByteTokenizer());
  const std::string& json = bytes.files.at("tokenizer.json");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], json.data(), json.size()),
            static_cast<ssize_t>(json.size()));
  close(ends[1]);
  options_.tokenizer_file = "/dev/fd/" + std::to_string(ends[0]);
  options_.overwrite = true;
  std::ostringstream out;
  const absl::Status built = DataBuild(options_, out, live_, false);
  close(ends[0]);
  ASSERT_TRUE(built.ok()) << built;
  EXPECT_THAT(out.str(), HasSubstr("tokenizer    byte-level BPE, vocabulary "
                                   "257\n"));
}

TEST_F(Commands, BuildSaysWhatIsInFrontOfDocuments) {
  const HuggingFaceTokenizer bytes = ForHuggingFace(*MakeByteTokenizer());
  auto json = nlohmann::json::parse(bytes.files.at("tokenizer.json"));
  json["added_tokens"].push_back(
      {{"id", 257}, {"content", "<s>"}, {"special", true}});
  options_.tokenizer_file = dir_ / "folder";
  options_.overwrite = true;
  ASSERT_TRUE(MakeDirectories(dir_ / "folder").ok());
  testing::WriteOrDie(dir_ / "folder/tokenizer.json", json.dump());
  testing::WriteOrDie(dir_ / "folder/tokenizer_config.json",
                      "{\"bos_token\": \"<s>\", \"add_bos_token\": true}");
  std::ostringstream out;
  ASSERT_TRUE(DataBuild(options_, out, live_, false).ok());
  EXPECT_THAT(out.str(),
              HasSubstr("vocabulary 258, token 257 in front of documents\n"));
}

TEST_F(Commands, JsonReadsBackBitForBit) {
  std::ostringstream out;
  ASSERT_TRUE(DataInfo(dir_ / "c", true, out).ok());
  const auto json = nlohmann::json::parse(out.str());
  const auto corpus = Corpus::Open(dir_ / "c/train");
  ASSERT_TRUE(corpus.ok());
  EXPECT_EQ(json["train"]["entropy"].get<double>(), corpus->entropy());
  EXPECT_EQ(json["train"]["tokens"].get<int64_t>(), corpus->tokens());
  EXPECT_EQ(json["train"]["digest"].get<std::string>(), corpus->digest());
  EXPECT_EQ(json["validation"]["vocab"].get<int>(), 257);
  const auto lengths = json["train"]["tokens_per_document"];
  EXPECT_EQ(lengths["mean"].get<double>(),
            static_cast<double>(corpus->tokens()));
  EXPECT_EQ(lengths["median"].get<double>(),
            static_cast<double>(corpus->tokens()));
  EXPECT_EQ(lengths["max"].get<int64_t>(), corpus->tokens());
  std::ostringstream side;
  ASSERT_TRUE(DataInfo(dir_ / "c/train", false, side).ok());
  EXPECT_THAT(side.str(), AllOf(HasSubstr("49 5"), HasSubstr("1 shard\n"),
                                HasSubstr(corpus->digest())));
}

TEST_F(Commands, VerifyFindsAFlippedBit) {
  std::ostringstream out;
  ASSERT_TRUE(DataVerify(dir_ / "c", out).ok());
  EXPECT_THAT(out.str(), AllOf(HasSubstr("train: 3 files intact"),
                               HasSubstr("validation: 3 files intact")));
  testing::FlipBit(dir_ / "c/validation/shard-00000.h5");
  const absl::Status status = DataVerify(dir_ / "c", out);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("validation/shard-00000.h5"));
  EXPECT_FALSE(DataVerify(dir_ / "none", out).ok());
}

}  // namespace
}  // namespace delink::commands_test
