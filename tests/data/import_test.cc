#include "data/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
#include <utility>

#include "data/corpus/corpus.h"
#include "framework/base/file.h"
#include "tests/data/text_samples.h"
#include "tests/data/token_files.h"
#include "tests/testing/temp_dir.h"

namespace delink::import_test {
namespace {

using namespace testing;  // NOLINT: writers of files
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kVocab = 500, kEnd = 499;

Documents SampleDocuments() {
  std::mt19937_64 random(3);
  Documents documents(40);
  for (auto& document : documents) {
    document.resize(1 + random() % 30);
    for (int64_t& id : document) id = static_cast<int64_t>(random() % kEnd);
  }
  // Longer than a piece that is read at once.
  documents[7].assign(70'000, 17);
  return documents;
}

// The documents of a side, ends left out.
Documents ReadSide(const std::string& path, int64_t end) {
  const Corpus corpus = Corpus::Open(path).value();
  std::vector<int32_t> ids(static_cast<size_t>(corpus.tokens()));
  EXPECT_TRUE(corpus.Read(0, corpus.tokens(), ids.data()).ok());
  EXPECT_EQ(corpus.end_of_document(), end);
  Documents documents(1);
  for (const int32_t id : ids) {
    if (id == end) {
      documents.emplace_back();
    } else {
      documents.back().push_back(id);
    }
  }
  EXPECT_TRUE(documents.back().empty());
  documents.pop_back();
  EXPECT_EQ(static_cast<int64_t>(documents.size()), corpus.documents());
  return documents;
}

class Import : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    WriteOrDie(dir_ / name, bytes);
    return dir_ / name;
  }
  absl::Status Run(TokenImportOptions options) {
    options.out = dir_ / "out";
    if (options.vocab == 0 && options.tokenizer_file.empty()) {
      options.vocab = kVocab;
      options.end_of_document = kEnd;
    }
    return ImportCorpus(options).status();
  }
  // Both sides together are `expected`, in an order of each side's own.
  void ExpectDocuments(Documents expected, int64_t end = kEnd) {
    Documents all = ReadSide(dir_ / "out/train", end);
    const Documents validation = ReadSide(dir_ / "out/validation", end);
    EXPECT_FALSE(all.empty());
    EXPECT_FALSE(validation.empty());
    all.insert(all.end(), validation.begin(), validation.end());
    std::sort(all.begin(), all.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(all, expected);
  }
  void ExpectRefused(const absl::Status& status, const std::string& file,
                     const std::string& what) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
  }

  TempDir dir_;
  const Documents documents_ = SampleDocuments();
};

TEST_F(Import, MegatronInEveryTypeAndByEitherName) {
  const struct {
    int type;
    int64_t width;
    std::function<std::string(const std::vector<int64_t>&)> numbers;
  } kinds[] = {{8, 2, Numbers<uint16_t>},
               {3, 2, Numbers<int16_t>},
               {4, 4, Numbers<int32_t>},
               {5, 8, Numbers<int64_t>}};
  for (const auto& kind : kinds) {
    const std::string bin = Write("a.bin", kind.numbers(Joined(documents_)));
    const std::string index =
        Write("a.idx", MegatronIndex(documents_, kind.type, kind.width));
    for (const std::vector<std::string>& inputs :
         {std::vector{bin}, std::vector{index}, std::vector{bin, index}}) {
      const absl::Status status = Run({.inputs = inputs, .overwrite = true});
      ASSERT_TRUE(status.ok()) << status;
      ExpectDocuments(documents_);
    }
  }
}

// Sequences between two bounds are one document; an end in a sequence cuts.
TEST_F(Import, MegatronsSequencesAndEnds) {
  const std::string index = MegatronIndex({.lengths = {2, 1, 0, 4},
                                           .begins = {0, 4, 6, 6},
                                           .bounds = {0, 2, 3, 4}});
  Write("a.idx", index);
  const std::string bin =
      Write("a.bin", Numbers<uint16_t>({1, 2, 3, 4, kEnd, 5, kEnd}));
  const absl::Status status = Run({.inputs = {bin}, .validation = 0.2});
  ASSERT_TRUE(status.ok()) << status;
  ExpectDocuments({{1, 2, 3}, {4}, {5}});
}

TEST_F(Import, WithoutAValidationSideThereIsNone) {
  const std::string bin = Write("a.bin", Numbers<uint16_t>({1, 2, kEnd, 5}));
  const absl::Status status =
      Run({.inputs = {bin}, .layout = {.dtype = "u16"}, .validation = 0});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(*ListDirectory(dir_ / "out"), ElementsAre("train"));
}

// Whatever the index leaves out would be lost without a word.
TEST_F(Import, AMegatronIndexIsOfAllOfItsTokens) {
  const std::string bin = Write("a.bin", Numbers<uint16_t>({1, 2, 3, 4}));
  const struct {
    MegatronParts parts;
    std::string what;
  } cases[] = {
      {{{2, 1}, {0, 4}, {0, 1, 2}}, "the last sequence ends at byte 6, but"},
      {{{1, 2}, {0, 4}, {0, 1, 2}},
       "sequence 1 is 2 tokens at byte 4, but th"
       "ose before end at byte 2"},
      {{{2, 2}, {4, 0}, {0, 1, 2}},
       "sequence 0 is 2 tokens at byte 4, but th"
       "ose before end at byte 0"},
      {{{3, 2}, {0, 4}, {0, 1, 2}}, "sequences must follow each other"},
      {{{4, 0}, {0, 9}, {0, 1, 2}}, "sequence 1 is 0 tokens at byte 9"},
      {{{4, -1}, {0, 8}, {0, 1, 2}}, "sequence 1 is -1 tokens"},
      {{{2, 2}, {0, 4}, {}}, "has no documents"},
      {{{2, 2}, {0, 4}, {0, 1}}, "span sequences 0 to 1, but it has 2"},
      {{{2, 2}, {0, 4}, {1, 2}}, "span sequences 1 to 2, but it has 2"}};
  for (const auto& one : cases) {
    const std::string index = Write("a.idx", MegatronIndex(one.parts));
    ExpectRefused(Run({.inputs = {bin}}), index, one.what);
  }
}

TEST_F(Import, StreamsAreCutAtTheEndOfADocument) {
  std::vector<int64_t> stream;  // with ends before documents, as llm.c has them
  for (const auto& document : documents_) {
    stream.push_back(kEnd);
    stream.insert(stream.end(), document.begin(), document.end());
  }
  const int64_t count = static_cast<int64_t>(stream.size());
  const std::string shape = "(" + std::to_string(count) + ",)";
  const std::pair<std::string, std::string> files[] = {
      {"a.bin", LlmCHeader(20240520, 1, count) + Numbers<uint16_t>(stream)},
      {"b.bin", LlmCHeader(20240801, 7, count) + Numbers<uint32_t>(stream)},
      {"a.npy", NumpyHeader("<u2", shape) + Numbers<uint16_t>(stream)},
      {"b.npy", NumpyHeader("<i8", shape) + Numbers<int64_t>(stream)},
      {"c.npy", NumpyHeader("<u4", "(1, " + std::to_string(count) + ")") +
                    Numbers<uint32_t>(stream)},
      {"a.u16", Numbers<uint16_t>(stream)},
      {"a.i32", Numbers<int32_t>(stream)}};
  for (const auto& [name, bytes] : files) {
    const bool wide = name == "a.i32";
    const absl::Status status = Run({.inputs = {Write(name, bytes)},
                                     .layout = {.dtype = wide ? "i32" : "u16"},
                                     .overwrite = true});
    ASSERT_TRUE(status.ok()) << name << ": " << status;
    ExpectDocuments(documents_);
  }
}

TEST_F(Import, RowsMayBeDocuments) {
  const std::string rows =
      Write("a.npy", NumpyHeader("<u2", "(3, 2)") +
                         Numbers<uint16_t>({1, 2, 3, 4, 5, 6}));
  ASSERT_TRUE(
      Run({.inputs = {rows}, .layout = {.rows = true}, .validation = 0.34})
          .ok());
  ExpectDocuments({{1, 2}, {3, 4}, {5, 6}});
  ASSERT_TRUE(
      Run({.inputs = {rows}, .validation = 0.5, .overwrite = true}).ok());
  ExpectDocuments({{1, 2, 3}, {4, 5, 6}});
}

TEST_F(Import, SeveralFilesAreOneCorpusWithIdsAlone) {
  const std::string a = Write("1.u16", Numbers<uint16_t>({1, 2, 3, 4}));
  const std::string b = Write("2.u16", Numbers<uint16_t>({5, 6}));
  ASSERT_TRUE(Run({.inputs = {dir_ / "*.u16"},
                   .layout = {.dtype = "u16"},
                   .vocab = 7,
                   .validation = 0.3})
                  .ok());
  // Nothing in the files ends a document: an id of ours does.
  ExpectDocuments({{1, 2, 3, 4}, {5, 6}}, 7);
  const Corpus corpus = Corpus::Open(dir_ / "out/train").value();
  EXPECT_EQ(corpus.vocab_size(), 8);
  EXPECT_EQ(corpus.bytes(), 0);
  const auto tokenizer = corpus.MakeTokenizer().value();
  EXPECT_STREQ(tokenizer->kind(), "ids");
  EXPECT_EQ(tokenizer->Encode("3 4").value(), (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{3, 7, 4}), " 3 4");
  EXPECT_FALSE(tokenizer->Encode("3 7").ok());
  EXPECT_FALSE(tokenizer->Encode("three").ok());
}

TEST_F(Import, ATokenizerComesAlong) {
  const std::string model = Write("m", MakeByteTokenizer()->Serialize());
  const std::string ids =
      Write("a.u16", Numbers<uint16_t>({'h', 'i', 256, 'y', 'o', 'u', 256}));
  TokenImportOptions options = {.inputs = {ids},
                                .layout = {.dtype = "u16"},
                                .tokenizer_file = model,
                                .validation = 0.4};
  ASSERT_TRUE(Run(options).ok());
  ExpectDocuments({{'h', 'i'}, {'y', 'o', 'u'}}, 256);
  EXPECT_EQ(Corpus::Open(dir_ / "out/train").value().bytes() +
                Corpus::Open(dir_ / "out/validation").value().bytes(),
            5);
  std::filesystem::remove_all(std::string(dir_ / "out"));
  options.end_of_document = 5;
  ExpectRefused(Run(options), "--eot 5", "ends documents with 256");
}

TEST_F(Import, TheSameFilesMakeTheSameCorpus) {
  const std::string file =
      Write("a.u16", Numbers<uint16_t>(Joined(documents_)));
  std::string digests[2];
  for (std::string& digest : digests) {
    ASSERT_TRUE(Run({.inputs = {file},
                     .layout = {.dtype = "u16"},
                     .overwrite = true,
                     .shard_tokens = &digest == &digests[0] ? 1000 : 1 << 20})
                    .ok());
    digest = Corpus::Open(dir_ / "out/train").value().digest();
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST_F(Import, FilesThatAreWrongAreRefusedByName) {
  const std::string tokens = Numbers<uint16_t>({1, 2, 3, 4});
  const Documents two = {{1, 2}, {3, 4}};
  const std::string index = MegatronIndex(two, 8, 2);
  std::string beyond = index, backwards = index, version = index;
  beyond[34 + 4] = 9;          // tokens of sequence 1
  backwards[34 + 8 + 16] = 2;  // where document 0 begins
  backwards[34 + 8 + 16 + 8] = 1;
  version[9] = 2;
  std::string newer = NumpyHeader("<u2", "(4,)") + tokens, no_order = newer;
  newer[6] = 9;
  no_order.replace(no_order.find("False"), 5, "false");
  const struct {
    std::string name, bytes, index, what;
  } cases[] = {
      {"a.bin", tokens, "MMIDIDY" + index.substr(7), "wrong magic"},
      {"a.bin", tokens, version, "version 2"},
      {"a.bin", tokens, index.substr(0, 20), "cut short"},
      {"a.bin", tokens, index.substr(0, index.size() - 1), "cut short"},
      {"a.bin", tokens, index + "12", "longer than its header says"},
      {"a.bin", tokens, MegatronIndex(two, 7, 4), "floating-point"},
      {"a.bin", tokens, MegatronIndex(two, 9, 2), "type 9"},
      {"a.bin", tokens, beyond, "not a pair, or one is cut short"},
      {"a.bin", tokens.substr(1), index, "sequence 1 is 2 tokens at byte 4"},
      {"a.bin", tokens, backwards, "document 1 begins at sequence 1"},
      {"b.bin", tokens, "", "wrong magic"},
      {"c.bin", LlmCHeader(20240520, 1, 5) + tokens, "", "cut short"},
      {"c.bin", LlmCHeader(20240520, 1, 3) + tokens, "", "not what it was"},
      {"c.bin", LlmCHeader(20240520, 2, 4) + tokens, "",
       "magic 20240520, version 2 is no token file of llm.c"},
      {"d.npy", "\x93NUMPY", "", "cut short or damaged"},
      {"d.npy", newer, "", "version 9.0 of the format"},
      {"d.npy", no_order, "", "cut short or damaged"},
      {"d.npy", NumpyHeader("<f4", "(2,)") + tokens + tokens, "",
       "floating-point"},
      {"d.npy", NumpyHeader(">u2", "(4,)") + tokens, "", "dtype '>u2'"},
      {"d.npy", NumpyHeader("<u2", "(5,)") + tokens, "", "5 tokens of 2 bytes"},
      {"d.npy", NumpyHeader("<u2", "(1, 2, 2)") + tokens, "", "3 dimensions"},
      {"d.npy", NumpyHeader("<u2", "(-4,)") + tokens, "", "damaged"},
      {"d.npy", NumpyHeader("<u2", "(9223372036854775807, 4)") + tokens, "",
       "damaged"},
      {"e.npy", NumpyHeader("<u2", "(3,)") + Numbers<uint16_t>({1, 500, 2}), "",
       "token 500 at byte 130 is beyond the vocabulary of 500"},
      {"e.npy", NumpyHeader("<i4", "(2,)") + Numbers<int32_t>({1, -1}), "",
       "token -1"},
  };
  for (const auto& one : cases) {
    const std::string file = Write(one.name, one.bytes);
    if (!one.index.empty()) Write("a.idx", one.index);
    ExpectRefused(Run({.inputs = {file}}), dir_ / one.name.substr(0, 2),
                  one.what);
  }
}

TEST_F(Import, WhatIsAskedMustMakeSense) {
  const std::string ids = Write("a.u16", Numbers<uint16_t>({1, 2, 3}));
  ExpectRefused(Run({.inputs = {ids}, .layout = {.format = TokenFormat::kRaw}}),
                ids, "--dtype");
  ExpectRefused(Run({.inputs = {ids}, .layout = {.dtype = "i32"}}), ids,
                "6 bytes are no whole number of i32");
  ExpectRefused(
      Run({.inputs = {ids}, .layout = {.format = TokenFormat::kNumpy}}), ids,
      "not a .npy");
  ExpectRefused(
      Run({.inputs = {ids}, .layout = {.format = TokenFormat::kLlmC}}), ids,
      "less than the 1024");
  ExpectRefused(Run({.inputs = {ids}, .vocab = 3, .end_of_document = 3}),
                "--eot 3", "beyond the 3 ids");
  ExpectRefused(Run({.inputs = {ids}, .vocab = -1}), "--vocab -1", "1 to");
  ExpectRefused(Run({.inputs = {ids}, .validation = 1}), "--validation 1",
                "at least 0 and below 1");
  const std::string one = Write("b.u16", Numbers<uint16_t>({1}));
  ExpectRefused(Run({.inputs = {one}, .layout = {.dtype = "u16"}}), one,
                "too small to split: 2 tokens");
  // Without its index there is no pair.
  EXPECT_EQ(Run({.inputs = {Write("c.idx", "x")}}).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Run({.inputs = {}}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace delink::import_test
