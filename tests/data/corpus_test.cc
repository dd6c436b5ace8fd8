#include "data/corpus/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

#include "data/corpus/build.h"
#include "data/corpus/corpus_writer.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "framework/hdf5/hdf5.h"
#include "tests/data/text_samples.h"
#include "tests/testing/temp_dir.h"

namespace delink::corpus_test {
namespace {

using ::testing::AllOf;
using testing::FlipBit;
using ::testing::HasSubstr;
using testing::SampleText;
using testing::TempDir;
using testing::WriteOrDie;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

class CorpusOnDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    text_ = SampleText(1, 20'000);
    WriteOrDie(dir_ / "a.txt", text_);
    ASSERT_TRUE(BuildCorpus({.inputs = {dir_ / "a.txt"},
                             .out = dir_ / "corpus",
                             .shard_tokens = 1000})
                    .ok());
    train_ = dir_ / "corpus/train";
  }
  TempDir dir_;
  std::string text_;
  std::string train_;
};

TEST_F(CorpusOnDisk, RandomRangesAcrossShards) {
  const auto corpus = Corpus::Open(train_);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  ASSERT_GT(corpus->shards(), 15);
  std::mt19937_64 random(4);
  for (int i = 0; i < 300; ++i) {
    const int64_t size = corpus->tokens() - 1;
    int64_t begin = static_cast<int64_t>(random() % (size + 1));
    int64_t end = static_cast<int64_t>(random() % (size + 1));
    if (begin > end) std::swap(begin, end);
    std::vector<int32_t> ids(static_cast<size_t>(end - begin));
    ASSERT_TRUE(corpus->Read(begin, end - begin, ids.data()).ok());
    for (int64_t k = begin; k < end; ++k) {
      ASSERT_EQ(ids[k - begin], static_cast<uint8_t>(text_[k]));
    }
  }
}

TEST_F(CorpusOnDisk, ThreadsReadAtOnce) {
  const auto corpus = Corpus::Open(train_);
  ASSERT_TRUE(corpus.ok());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      std::vector<int32_t> ids(700);
      for (int64_t begin = 0; begin + 700 < corpus->tokens(); begin += 531) {
        if (!corpus->Read(begin, 700, ids.data()).ok()) ++wrong[t];
        for (size_t k = 0; k < ids.size(); ++k) {
          wrong[t] += ids[k] != static_cast<uint8_t>(text_[begin + k]);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST_F(CorpusOnDisk, DamageIsFoundBeforeHdf5OpensAnything) {
  const std::string shard = train_ + "/shard-00002.h5";
  const std::string whole = testing::ReadOrDie(shard);
  FlipBit(shard);
  EXPECT_THAT(Message(Corpus::Open(train_).status()),
              AllOf(HasSubstr("shard-00002.h5"), HasSubstr("damaged")));
  WriteOrDie(shard, whole.substr(0, 1000));
  EXPECT_THAT(Message(Corpus::Open(train_).status()),
              AllOf(HasSubstr("shard-00002.h5"), HasSubstr("truncated")));
  ASSERT_TRUE(RemoveAll(shard).ok());
  EXPECT_THAT(Message(Corpus::Open(train_).status()),
              AllOf(HasSubstr("shard-00002.h5"), HasSubstr("missing")));
  WriteOrDie(shard, whole);
  EXPECT_TRUE(Corpus::Open(train_).ok());
  FlipBit(train_ + "/index.h5");
  EXPECT_FALSE(Corpus::Open(train_, {.statistics_only = true}).ok());
}

TEST_F(CorpusOnDisk, EachRankVerifiesItsShare) {
  FlipBit(train_ + "/shard-00002.h5");
  int found = 0;
  for (int rank = 0; rank < 3; ++rank) {
    found +=
        Corpus::Open(train_, {.verify_index = rank, .verify_count = 3}).ok()
            ? 0
            : 1;
  }
  EXPECT_EQ(found, 1);
  EXPECT_TRUE(Corpus::Open(train_, {.statistics_only = true}).ok());
}

TEST_F(CorpusOnDisk, WrongPlacesSayWhereToGo) {
  EXPECT_THAT(Message(Corpus::Open(dir_ / "corpus").status()),
              HasSubstr("corpus/train"));
  EXPECT_THAT(Message(Corpus::Open(dir_ / "none").status()),
              HasSubstr("no such corpus"));
  EXPECT_FALSE(Corpus::Open(dir_.path()).ok());
}

// Well-formed HDF5 with digests that fit, which no build of ours has written.
TEST_F(CorpusOnDisk, WhatMakesNoSenseIsRefused) {
  std::vector<std::string> names = *ListDirectory(train_);
  std::erase(names, kSumsName);
  const auto use = [&] {
    const auto corpus = Corpus::Open(train_);
    if (!corpus.ok()) return corpus.status();
    std::vector<int32_t> ids(1000);
    const absl::Status read = corpus->Read(0, 1000, ids.data());
    if (!read.ok()) return read;
    int64_t start = 0;
    return corpus->ReadDocumentStarts(0, 1, &start);
  };
  const std::vector<int64_t> sizes(
      static_cast<size_t>(Corpus::Open(train_)->shards()), -1);
  const std::vector<uint16_t> tokens(1000, 257);
  const struct {
    const char* file;
    std::function<absl::Status(hdf5::File&)> spoil;
    const char* said;
  } cases[] = {
      {"index.h5", [](auto& f) { return f.SetInt("/", "format", 2); },
       "format 2, this program reads up to 1; use a newer delink"},
      {"index.h5", [](auto& f) { return f.SetInt("/", "vocab", 0); },
       "a vocabulary of 0"},
      {"index.h5", [](auto& f) { return f.SetInt("/", "vocab", 1LL << 40); },
       "a vocabulary of 1099511627776"},
      {"index.h5",
       [](auto& f) { return f.SetInt("/", "end_of_document", 257); },
       "257 for the end of a document"},
      {"index.h5", [](auto& f) { return f.SetInt("/", "documents", 2); },
       "claims 2 documents, has 1"},
      {"index.h5", [](auto& f) { return f.SetInt("/", "tokens", 7); },
       "its shards"},
      {"index.h5", [](auto& f) { return f.SetText("/", "tokens", "many"); },
       "'tokens': is not an integer"},
      {"index.h5",
       [&](auto& f) {
         EXPECT_TRUE(f.Remove("/shard_tokens").ok());
         return f.WriteAll("/shard_tokens", {std::ssize(sizes)}, sizes.data());
       },
       "make no sense"},
      {"index.h5",
       [](auto& f) {
         EXPECT_TRUE(f.Remove("/tokenizer").ok());
         return f
             .CreateDataset("/tokenizer", hdf5::ElementType::kU8,
                            {int64_t{1} << 50})
             .status();
       },
       "claims 1125899906842624 bytes, of which the file holds 0"},
      {"shard-00000.h5",
       [&](auto& f) {
         EXPECT_TRUE(f.Remove("/tokens").ok());
         return f.WriteAll("/tokens", {1000}, tokens.data());
       },
       "shard-00000.h5: token 0 is 257, past the vocabulary of 257"},
  };
  for (const auto& [name, spoil, said] : cases) {
    const std::string path = JoinPath(train_, name);
    const std::string whole = testing::ReadOrDie(path);
    {
      auto file = hdf5::File::OpenReadWrite(path);
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE(spoil(*file).ok());
      ASSERT_TRUE(file->Close().ok());
    }
    ASSERT_TRUE(WriteSums(train_, names).ok());
    EXPECT_THAT(Message(use()), HasSubstr(said));
    WriteOrDie(path, whole);
    ASSERT_TRUE(WriteSums(train_, names).ok());
    EXPECT_TRUE(use().ok());
  }
}

TEST_F(CorpusOnDisk, TheIndexShowsTheWholeCorpus) {
  const auto corpus = Corpus::Open(train_);
  ASSERT_TRUE(corpus.ok());
  const auto index = hdf5::File::OpenReadOnly(train_ + "/index.h5", "shard");
  ASSERT_TRUE(index.ok());
  const auto tokens = index->ReadAll<uint16_t>("/tokens");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(static_cast<int64_t>(tokens->size()), corpus->tokens());
  for (size_t i = 0; i + 1 < tokens->size(); ++i) {
    ASSERT_EQ((*tokens)[i], static_cast<uint8_t>(text_[i]));
  }
}

// A vocabulary past 65 536, without the time to train one.
class WideTokenizer final : public Tokenizer {
 public:
  const char* kind() const override { return "wide"; }
  int32_t vocab_size() const override { return 100'000; }
  int32_t end_of_document() const override { return 99'999; }
  absl::Status Encode(std::string_view, std::vector<int32_t>*) const override {
    return absl::UnimplementedError("not for text");
  }
  std::string_view TokenBytes(int32_t) const override { return ""; }
  const std::string& Serialize() const override { return name_; }

 private:
  std::string name_ = "wide";
};

TEST(CorpusWriter, LargeVocabulariesTakeFourBytes) {
  const TempDir dir;
  const WideTokenizer tokenizer;
  CorpusWriter writer(dir.path(), tokenizer, 64);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 1000; ++i) ids.push_back(i * 99);
  ASSERT_TRUE(writer.Append(ids, 1000).ok());
  ASSERT_TRUE(writer.EndDocument().ok());
  ASSERT_TRUE(writer.Append(ids, 1000).ok());
  ASSERT_TRUE(writer.EndDocument().ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto corpus = Corpus::Open(dir.path());
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  ASSERT_EQ(corpus->tokens(), 2002);
  std::vector<int32_t> back(2002);
  ASSERT_TRUE(corpus->Read(0, 2002, back.data()).ok());
  EXPECT_EQ(back[999], 999 * 99);
  EXPECT_EQ(back[1000], 99'999);
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), back.begin() + 1001));
  int64_t start = 0;
  ASSERT_TRUE(corpus->ReadDocumentStarts(1, 1, &start).ok());
  EXPECT_EQ(start, 1001);
}

}  // namespace
}  // namespace delink::corpus_test
