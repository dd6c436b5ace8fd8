// The same documents in every form, on any number of threads, make the same
// corpus; what is wrong with an input is named, and leaves nothing behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

#include "data/corpus/build.h"
#include "data/corpus/corpus.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "tests/data/text_samples.h"
#include "tests/testing/temp_dir.h"

namespace delink::forms_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Gzipped;
using ::testing::HasSubstr;
using testing::JsonLine;
using testing::ReadOrDie;
using testing::SampleText;
using testing::TempDir;
using testing::WriteOrDie;
using testing::Zstandard;

class Forms : public ::testing::Test {
 protected:
  // Of many sizes, some longer than a piece, one longer than the others.
  void SetUp() override {
    for (int i = 0; i < 60; ++i) {
      const int64_t size = i == 7        ? 300'000
                           : i % 11 == 0 ? 70'000
                                         : 20 << i % 9;
      texts_.push_back(SampleText(static_cast<uint64_t>(i), size));
      lines_ += JsonLine(texts_.back());
    }
  }

  // Builds from `inputs`, and returns the digests of all files of both sides.
  std::string Sums(std::vector<std::string> inputs, CorpusOptions options) {
    options.inputs = std::move(inputs);
    options.out = dir_ / "out";
    options.overwrite = true;
    options.shard_tokens = 50'000;
    const auto report = BuildCorpus(options);
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return "";
    EXPECT_THAT(*ListDirectory(options.out),
                ElementsAre("train", "validation"));
    return ReadOrDie(dir_ / "out/train/SHA256SUMS") +
           ReadOrDie(dir_ / "out/validation/SHA256SUMS");
  }

  // A folder with a file for each text, whose names sort as they are numbered.
  std::string Folder(const std::string& name, const std::string& suffix,
                     std::string (*pack)(std::string_view)) {
    EXPECT_TRUE(MakeDirectories(dir_ / name).ok());
    for (size_t i = 0; i < texts_.size(); ++i) {
      WriteOrDie(dir_ / (name + "/" + std::to_string(1000 + i) + suffix),
                 pack ? pack(texts_[i]) : texts_[i]);
    }
    return dir_ / name;
  }

  TempDir dir_;
  std::vector<std::string> texts_;
  std::string lines_;
};

TEST_F(Forms, HoldTheSameTokensOnAnyNumberOfThreads) {
  const std::string text = Folder("text", ".txt", nullptr);
  const std::string gz = Folder("gz", ".gz", Gzipped);
  const std::string zst = Folder("zst", ".txt.zst", Zstandard);
  WriteOrDie(dir_ / "a.jsonl", lines_);
  WriteOrDie(dir_ / "a.jsonl.gz", Gzipped(lines_));
  WriteOrDie(dir_ / "a.jsonl.zst", Zstandard(lines_));
  // The first lines in one file, the rest in another, of another form.
  size_t half = 0;
  for (int i = 0; i < 30; ++i) half = lines_.find('\n', half) + 1;
  WriteOrDie(dir_ / "b1.jsonl", lines_.substr(0, half));
  WriteOrDie(dir_ / "b2.jsonl.zst", Zstandard(lines_.substr(half)));
  for (const int32_t vocab : {0, 330}) {
    CorpusOptions options;
    options.validation = 0.1;
    options.train_vocab = vocab;
    options.training_bytes = 200'000;
    options.threads = 1;
    const std::string wanted = Sums({text}, options);
    for (const int threads : {0, 3}) {
      options.threads = threads;
      EXPECT_EQ(Sums({text}, options), wanted) << threads;
    }
    // Training a tokenizer takes a while: of the rest, one form.
    if (vocab > 0) {
      EXPECT_EQ(Sums({dir_ / "a.jsonl.gz"}, options), wanted);
      continue;
    }
    for (const std::string& input :
         {gz, zst, dir_ / "a.jsonl", dir_ / "a.jsonl.gz", dir_ / "a.jsonl.zst",
          dir_ / "text/1*.txt", dir_ / "b*"}) {
      EXPECT_EQ(Sums({input}, options), wanted) << input;
    }
    for (const std::string& stored : {lines_, Gzipped(lines_)}) {
      WriteOrDie(dir_ / "stdin", stored);
      options.standard_input = ::open((dir_ / "stdin").c_str(), O_RDONLY);
      options.format = TextFormat::kJsonl;
      EXPECT_EQ(Sums({"-"}, options), wanted);
      ::close(options.standard_input);
    }
  }
}

TEST_F(Forms, StandardInputIsOneDocumentAmongOthers) {
  WriteOrDie(dir_ / "one.txt", texts_[0]);
  WriteOrDie(dir_ / "two.txt", texts_[1]);
  CorpusOptions options;
  const std::string wanted =
      Sums({dir_ / "one.txt", dir_ / "two.txt"}, options);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], texts_[1].data(), texts_[1].size()),
            static_cast<ssize_t>(texts_[1].size()));
  ::close(ends[1]);
  options.standard_input = ends[0];
  EXPECT_EQ(Sums({dir_ / "one.txt", "-"}, options), wanted);
  ::close(ends[0]);
}

TEST_F(Forms, InputsThatChangeMeanwhileAreFoundOut) {
  const std::string path = dir_ / "a.jsonl";
  const size_t newline = lines_.find('\n');
  const std::string longer = JsonLine(texts_[0] + "more");
  for (const std::string& changed :
       {lines_ + JsonLine("another"), lines_.substr(newline + 1),
        longer + lines_.substr(newline + 1), std::string()}) {
    WriteOrDie(path, lines_);
    CorpusOptions options;
    options.inputs = {path};
    options.out = dir_ / "out";
    options.threads = 2;
    const auto report = BuildCorpus(options, [&](const CorpusProgress& p) {
      if (std::strcmp(p.phase, "encoding") == 0) WriteOrDie(path, changed);
    });
    ASSERT_FALSE(report.ok());
    EXPECT_THAT(std::string(report.status().message()),
                HasSubstr("changed while it was read"));
    EXPECT_FALSE(PathExists(options.out));
  }
}

TEST_F(Forms, BadInputIsNamedAndLeavesNothing) {
  const std::string text = SampleText(1, 100'000);
  std::string latin1 = text;
  const size_t space = latin1.find(' ', 70'000);
  latin1[space] = '\xE9';
  const std::string at = "byte " + std::to_string(space) + " (0xe9)";
  const std::string gz = Gzipped(text), zst = Zstandard(text);
  std::string flipped = gz;
  flipped[gz.size() / 2] ^= 16;
  const struct {
    const char* name;  // of the file; "-" for standard input
    std::string stored;
    std::vector<std::string> said;
  } cases[] = {
      {"a.txt", latin1, {"a.txt: ", at, "iconv"}},
      {"a.txt.gz", Gzipped(latin1), {"a.txt.gz: ", at, "iconv"}},
      {"a.txt.zst", Zstandard(latin1), {"a.txt.zst: ", at, "iconv"}},
      {"-", latin1, {"standard input: ", at, "iconv"}},
      {"a.gz", gz.substr(0, gz.size() / 2), {"a.gz: byte ", "cut short"}},
      {"a.zst", zst.substr(0, zst.size() / 2), {"a.zst: byte ", "cut short"}},
      {"-", gz.substr(0, 100), {"standard input: byte ", "cut short"}},
      {"a.gz", flipped, {"a.gz: byte ", "damaged"}},
      {"a.gz", text, {"a.gz: byte 0", "its name promises gzip"}},
      {"a.zst", "", {"a.zst: byte 0", "its name promises zstd"}},
      {"a.jsonl", lines_ + "{\"text\": 1}\n", {"a.jsonl:61: byte ", "number"}},
      {"a.jsonl.gz",
       Gzipped(lines_ + "oops"),
       {"a.jsonl.gz:61: byte ", "JSON"}},
      {"a.txt", "\xFF\xFE" + text, {"byte 0 (0xff)", "iconv -f utf-16"}},
      {"a.txt", "", {"the corpus is empty"}},
      {"-", "", {"-: the corpus is empty"}},
      {"a.jsonl", JsonLine(""), {"the corpus is empty"}},
      {"a.jsonl", JsonLine("a"), {"too small to split"}},
  };
  for (const auto& [name, stored, said] : cases) {
    for (const bool existed : {false, true}) {
      SCOPED_TRACE(std::string(name) + " " + said.back());
      const TempDir in;
      WriteOrDie(in / name, stored);
      CorpusOptions options;
      options.out = dir_ / "out";
      options.inputs = {in / name};
      if (std::strcmp(name, "-") == 0) {
        options.inputs = {"-"};
        options.standard_input = ::open((in / name).c_str(), O_RDONLY);
      }
      if (existed) {
        ASSERT_TRUE(MakeDirectories(options.out).ok());
        WriteOrDie(options.out + "/mine", "kept");
      }
      const auto report = BuildCorpus(options);
      if (options.standard_input != 0) ::close(options.standard_input);
      ASSERT_FALSE(report.ok());
      const std::string message(report.status().message());
      for (const std::string& part : said) {
        EXPECT_THAT(message, HasSubstr(part));
      }
      EXPECT_EQ(PathExists(options.out), existed);
      if (existed) {
        EXPECT_THAT(*ListDirectory(options.out), ElementsAre("mine"));
        ASSERT_TRUE(RemoveAll(options.out).ok());
      }
    }
  }
}

}  // namespace
}  // namespace delink::forms_test
