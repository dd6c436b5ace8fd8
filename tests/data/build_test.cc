#include "data/corpus/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "data/corpus/check.h"
#include "data/corpus/corpus.h"
#include "data/tokenizer/huggingface_files.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "tests/data/text_samples.h"
#include "tests/testing/temp_dir.h"

namespace delink::build_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReadOrDie;
using testing::SampleText;
using testing::SmallDisk;
using testing::TempDir;
using testing::WriteGzipOrDie;
using testing::WriteOrDie;

class Build : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(dir_ / "in").ok());
    for (int i = 0; i < 40; ++i) {
      const std::string name = "doc" + std::to_string(i) + ".txt";
      texts_[name] = SampleText(static_cast<uint64_t>(i), 4000);
      if (i % 3 == 0) {
        WriteGzipOrDie(dir_ / ("in/" + name), texts_[name]);
      } else {
        WriteOrDie(dir_ / ("in/" + name), texts_[name]);
      }
    }
    WriteOrDie(dir_ / "in/empty.txt", "");
    options_.inputs = {dir_ / "in"};
    options_.out = dir_ / "out";
    options_.validation = 0.1;
  }

  Corpus Side(const std::string& side) {
    auto corpus = Corpus::Open(JoinPath(options_.out, side));
    EXPECT_TRUE(corpus.ok()) << corpus.status();
    return *std::move(corpus);
  }

  // The documents of one side, decoded.
  std::vector<std::string> Documents(const std::string& side) {
    const Corpus corpus = Side(side);
    const auto tokenizer = corpus.MakeTokenizer().value();
    std::vector<int32_t> ids(static_cast<size_t>(corpus.tokens()));
    EXPECT_TRUE(corpus.Read(0, corpus.tokens(), ids.data()).ok());
    std::vector<int64_t> starts(static_cast<size_t>(corpus.documents()));
    EXPECT_TRUE(
        corpus.ReadDocumentStarts(0, corpus.documents(), starts.data()).ok());
    starts.push_back(corpus.tokens());
    std::vector<std::string> documents;
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      const std::span<const int32_t> tokens(ids.data() + starts[i],
                                            ids.data() + starts[i + 1]);
      EXPECT_EQ(tokens.back(), corpus.end_of_document());
      documents.push_back(tokenizer->Decode(tokens));
    }
    return documents;
  }

  void ExpectAllTextIsThere() {
    std::map<std::string, int> wanted;
    for (const auto& [name, text] : texts_) ++wanted[text];
    for (const char* side : {"train", "validation"}) {
      for (const std::string& text : Documents(side)) --wanted[text];
    }
    for (const auto& [text, count] : wanted) EXPECT_EQ(count, 0);
  }

  TempDir dir_;
  std::map<std::string, std::string> texts_;
  CorpusOptions options_;
};

TEST_F(Build, BytesRoundTripInSmallShards) {
  options_.shard_tokens = 7001;
  const auto report = BuildCorpus(options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->files, 41);
  EXPECT_EQ(report->empty_documents, 1);
  ExpectAllTextIsThere();
  const Corpus train = Side("train"), validation = Side("validation");
  EXPECT_EQ(train.vocab_size(), 257);
  EXPECT_EQ(train.documents() + validation.documents(), 40);
  const double share =
      static_cast<double>(validation.tokens()) /
      static_cast<double>(validation.tokens() + train.tokens());
  EXPECT_NEAR(share, 0.1, 0.025);
  EXPECT_GT(Corpus::Open(dir_ / "out/train")->shards(), 15);
  EXPECT_THAT(*ListDirectory(dir_ / "out"), ElementsAre("train", "validation"));
}

TEST_F(Build, SentencePieceRoundTrips) {
  options_.train_vocab = 330;
  const auto report = BuildCorpus(options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(Side("train").vocab_size(), 330);
  EXPECT_LT(Side("train").tokens(), Side("train").bytes() / 2);
  ExpectAllTextIsThere();

  // The tokenizer as a file is one to build another corpus with.
  CorpusOptions again = options_;
  again.train_vocab = 0;
  again.tokenizer_file = dir_ / "out/train/tokenizer.model";
  again.out = dir_ / "again";
  ASSERT_TRUE(BuildCorpus(again).ok());
  EXPECT_EQ(Corpus::Open(dir_ / "again/train")->digest(),
            Corpus::Open(dir_ / "out/train")->digest());
}

// Of a folder that asks for a token in front of a text: also of the part of a
// document that is cut off for validation, and once for one that is read in
// pieces.
TEST_F(Build, DocumentsBeginAsTheTokenizersFolderAsks) {
  HuggingFaceTokenizer bytes = ForHuggingFace(*MakeByteTokenizer());
  auto json = nlohmann::json::parse(bytes.files["tokenizer.json"]);
  json["added_tokens"].push_back(
      {{"id", 257}, {"content", "<s>"}, {"special", true}});
  ASSERT_TRUE(MakeDirectories(dir_ / "folder").ok());
  WriteOrDie(dir_ / "folder/tokenizer.json", json.dump());
  WriteOrDie(dir_ / "folder/tokenizer_config.json",
             "{\"bos_token\": \"<s>\", \"add_bos_token\": true}");
  options_.inputs = {dir_ / "long.txt"};
  WriteOrDie(dir_ / "long.txt", SampleText(1, 300'000));
  options_.tokenizer_file = dir_ / "folder";
  const auto report = BuildCorpus(options_);
  ASSERT_TRUE(report.ok()) << report.status();
  for (const char* side : {"train", "validation"}) {
    const Corpus corpus = Side(side);
    EXPECT_EQ(corpus.documents(), 1);
    std::vector<int32_t> ids(static_cast<size_t>(corpus.tokens()));
    ASSERT_TRUE(corpus.Read(0, corpus.tokens(), ids.data()).ok());
    EXPECT_EQ(ids.front(), 257);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 257), 1);
    EXPECT_EQ(corpus.tokens(), corpus.bytes() + 2);
    EXPECT_EQ(corpus.greatest_document(), corpus.tokens());
    EXPECT_EQ(
        ForHuggingFace(**corpus.MakeTokenizer()).files.at("tokenizer.json"),
        json.dump());
  }
  EXPECT_EQ(Documents("train").front() + Documents("validation").front(),
            SampleText(1, 300'000));
}

// It ends a document too: the one in front of a document is of the one before.
TEST_F(Build, ABeginThatIsTheEndOfADocumentIsNotWrittenTwice) {
  const HuggingFaceTokenizer bytes = ForHuggingFace(*MakeByteTokenizer());
  const std::string name = "\"<|end_of_document|>\"";
  ASSERT_TRUE(MakeDirectories(dir_ / "folder").ok());
  WriteOrDie(dir_ / "folder/tokenizer.json", bytes.files.at("tokenizer.json"));
  WriteOrDie(dir_ / "folder/tokenizer_config.json",
             "{\"bos_token\": " + name + ", \"eos_token\": " + name +
                 ", \"add_bos_token\": true}");
  options_.tokenizer_file = dir_ / "folder";
  const auto report = BuildCorpus(options_);
  ASSERT_TRUE(report.ok()) << report.status();
  for (const char* side : {"train", "validation"}) {
    const Corpus corpus = Side(side);
    EXPECT_EQ(corpus.MakeTokenizer().value()->begin_of_sequence(), 256);
    EXPECT_EQ(corpus.end_of_document(), 256);
    EXPECT_EQ(corpus.tokens(), corpus.bytes() + corpus.documents());
    const auto check = CheckCorpus(corpus);
    EXPECT_TRUE(check.ok()) << check.status();
  }
  ExpectAllTextIsThere();
}

TEST_F(Build, StatisticsAreThoseOfTheTokens) {
  ASSERT_TRUE(BuildCorpus(options_).ok());
  for (const char* side : {"train", "validation"}) {
    const Corpus corpus = Side(side);
    std::map<char, double> counts;
    double total = 0;
    std::vector<int64_t> lengths;
    for (const std::string& text : Documents(side)) {
      for (const char c : text) counts[c] += 1;
      total += static_cast<double>(text.size());
      lengths.push_back(static_cast<int64_t>(text.size()) + 1);
    }
    EXPECT_EQ(corpus.bytes(), static_cast<int64_t>(total));
    const double documents = static_cast<double>(lengths.size());
    total += documents;
    EXPECT_EQ(corpus.tokens(), static_cast<int64_t>(total));
    double entropy = -documents / total * std::log(documents / total);
    for (const auto& [c, n] : counts) {
      entropy -= n / total * std::log(n / total);
    }
    EXPECT_NEAR(corpus.entropy(), entropy, 1e-10);
    std::sort(lengths.begin(), lengths.end());
    EXPECT_EQ(corpus.greatest_document(), lengths.back());
    const size_t half = lengths.size() / 2;
    EXPECT_EQ(corpus.median_document(),
              lengths.size() % 2 == 1
                  ? static_cast<double>(lengths[half])
                  : static_cast<double>(lengths[half - 1] + lengths[half]) / 2);
  }
}

TEST_F(Build, IsRepeatableByteForByteAndShardsDoNotChangeTheDigest) {
  options_.train_vocab = 330;
  ASSERT_TRUE(BuildCorpus(options_).ok());
  CorpusOptions again = options_;
  again.out = dir_ / "again";
  // HDF5 would keep times in whole seconds.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  ASSERT_TRUE(BuildCorpus(again).ok());
  for (const char* side : {"/train/", "/validation/"}) {
    EXPECT_EQ(ReadOrDie(options_.out + side + kSumsName),
              ReadOrDie(again.out + side + kSumsName));
  }
  again.out = dir_ / "sharded";
  again.shard_tokens = 9001;
  ASSERT_TRUE(BuildCorpus(again).ok());
  EXPECT_EQ(Corpus::Open(dir_ / "sharded/train")->digest(),
            Corpus::Open(dir_ / "out/train")->digest());
  again.out = dir_ / "seeded";
  again.seed = 5;
  ASSERT_TRUE(BuildCorpus(again).ok());
  EXPECT_NE(Corpus::Open(dir_ / "seeded/train")->digest(),
            Corpus::Open(dir_ / "out/train")->digest());
}

TEST_F(Build, SingleFileIsCutAtAPoint) {
  for (const bool gzipped : {false, true}) {
    for (const int64_t size : {int64_t{2}, int64_t{900}, int64_t{300'000}}) {
      const std::string text =
          size == 2 ? std::string("ab") : SampleText(9, size);
      if (gzipped) {
        WriteGzipOrDie(dir_ / "one.txt", text);
      } else {
        WriteOrDie(dir_ / "one.txt", text);
      }
      options_.inputs = {dir_ / "one.txt"};
      options_.overwrite = true;
      const auto report = BuildCorpus(options_);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(Side("train").documents(), 1);
      EXPECT_EQ(Side("validation").documents(), 1);
      EXPECT_EQ(Documents("train")[0] + Documents("validation")[0], text);
      if (size < 1000) continue;
      EXPECT_NEAR(static_cast<double>(Side("validation").bytes()) /
                      static_cast<double>(text.size()),
                  0.1, 0.026);
    }
  }
}

TEST_F(Build, ProgressEndsAtTheTotal) {
  options_.train_vocab = 330;
  std::map<std::string, CorpusProgress> last;
  ASSERT_TRUE(BuildCorpus(options_, [&](const CorpusProgress& p) {
                last[p.phase] = p;
              }).ok());
  EXPECT_EQ(last.size(), 4U);
  for (const char* phase : {"checking", "sampling"}) {
    EXPECT_EQ(last[phase].done, last[phase].total);
    EXPECT_GT(last[phase].total, 0);
  }
  EXPECT_EQ(last["encoding"].done, last["encoding"].total);
  EXPECT_GT(last["encoding"].total, 160'000);
}

TEST_F(Build, AnExistingCorpusIsKeptUnlessOverwritten) {
  ASSERT_TRUE(BuildCorpus(options_).ok());
  const std::string digest = Corpus::Open(dir_ / "out/train")->digest();
  options_.train_vocab = 330;
  const absl::Status status = BuildCorpus(options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("out/train"), HasSubstr("--overwrite")));
  EXPECT_EQ(Corpus::Open(dir_ / "out/train")->digest(), digest);
  options_.overwrite = true;
  ASSERT_TRUE(BuildCorpus(options_).ok());
  EXPECT_NE(Corpus::Open(dir_ / "out/train")->digest(), digest);
  EXPECT_THAT(*ListDirectory(dir_ / "out"), ElementsAre("train", "validation"));
}

TEST_F(Build, WithoutAValidationSideThereIsNone) {
  ASSERT_TRUE(BuildCorpus(options_).ok());
  options_.validation = 0;
  options_.overwrite = true;
  ASSERT_TRUE(BuildCorpus(options_).ok());
  EXPECT_EQ(Side("train").documents(), 40);
  EXPECT_THAT(*ListDirectory(dir_ / "out"), ElementsAre("train"));
}

TEST_F(Build, BadInputIsNamedAndNothingIsLeft) {
  const auto message = [&](const CorpusOptions& options) {
    const absl::Status status = BuildCorpus(options).status();
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(PathExists(options.out));
    return std::string(status.message());
  };
  CorpusOptions options = options_;
  options.inputs = {};
  EXPECT_THAT(message(options), HasSubstr("no input"));
  options.inputs = {dir_ / "none.txt"};
  EXPECT_THAT(message(options), HasSubstr("none.txt"));
  // In a folder; named itself: forms_test.cc.
  WriteOrDie(dir_ / "in/latin1.txt", "caf\xE9 au lait");
  EXPECT_THAT(message(options_), AllOf(HasSubstr("latin1.txt: byte 3"),
                                       HasSubstr("iconv -f latin1")));
  ASSERT_TRUE(RemoveAll(dir_ / "in/latin1.txt").ok());
  options = options_;
  options.train_vocab = 60'000;
  EXPECT_THAT(message(options), HasSubstr("60000"));
  options = options_;
  options.validation = 1;
  EXPECT_THAT(message(options), HasSubstr("--validation"));
}

TEST_F(Build, ATokenizerThatCannotBeUsedIsRefusedFirst) {
  options_.tokenizer_file = dir_ / "in/doc1.txt";
  int reports = 0;
  const absl::Status status =
      BuildCorpus(options_, [&](const CorpusProgress&) { ++reports; }).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a tokenizer"));
  EXPECT_EQ(reports, 0);
}

TEST_F(Build, FullDiskIsReportedAndTheOldCorpusSurvives) {
  const SmallDisk disk("600k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs (needs root)";
  CorpusOptions options = options_;
  options.out = disk.path() + "/out";
  options.inputs = {dir_ / "in/doc1.txt", dir_ / "in/doc2.txt"};
  ASSERT_TRUE(BuildCorpus(options).ok());
  const std::string digest = Corpus::Open(options.out + "/train")->digest();
  options.inputs = options_.inputs;
  for (int i = 0; i < 4; ++i) options.inputs.push_back(dir_ / "in");
  options.overwrite = true;
  const absl::Status status = BuildCorpus(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("free space"));
  EXPECT_EQ(Corpus::Open(options.out + "/train")->digest(), digest);
  EXPECT_THAT(*ListDirectory(options.out), ElementsAre("train", "validation"));
}

}  // namespace
}  // namespace delink::build_test
