// Tokens of texts that are cut into words, against the library's of the whole.
#include "data/tokenizer/word_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "data/tokenizer/sentencepiece_bridge.h"
#include "data/tokenizer/tokenizer.h"

namespace delink::word_cache_test {
namespace {

const std::vector<std::string>& Words() {
  static const std::vector<std::string> words = {
      "the",   "horse",   "runs",         "over",
      "Wiese", "kůň",     "běží",         "sing",
      "ing",   "s",       "12",           "x+y",
      "under", "lightly", "\xE4\xB8\xAD", "\xF0\x9F\x90\x8E",
      "\t"};
  return words;
}

// Words with hardly any, one, or many spaces and newlines between them.
std::string Text(std::mt19937_64& random, int words) {
  std::string text;
  for (int i = 0; i < words; ++i) {
    text += Words()[random() % Words().size()];
    static constexpr const char* kBetween[] = {"",   " ",   " ",   " ",   "   ",
                                               "\n", " \n", "\n ", "\n\n"};
    text += kBetween[random() % std::size(kBetween)];
  }
  return text;
}

using sentencepiece_bridge::Arguments;

struct Kind {
  const char* name;
  Arguments arguments;
};

// A .model file.
std::string Trained(Arguments arguments,
                    const std::vector<std::string>& lines) {
  arguments.insert({{"minloglevel", "3"}, {"num_threads", "1"}});
  std::string model;
  EXPECT_EQ(sentencepiece_bridge::Train(arguments, lines, &model), "");
  return model;
}

std::vector<Kind> Kinds() {
  const Arguments plain = {{"normalization_rule_name", "identity"},
                           {"add_dummy_prefix", "false"},
                           {"remove_extra_whitespaces", "false"},
                           {"vocab_size", "340"},
                           {"byte_fallback", "true"},
                           {"hard_vocab_limit", "false"}};
  const auto with = [&](Arguments changes) {
    changes.insert(plain.begin(), plain.end());
    return changes;
  };
  const std::pair<const std::string, std::string> newline = {
      "user_defined_symbols", "\n"};
  return {{"bpe", with({{"model_type", "bpe"}, newline})},
          {"bpe_newline_in_bytes", with({{"model_type", "bpe"}})},
          {"bpe_without_bytes", with({{"model_type", "bpe"},
                                      {"byte_fallback", "false"},
                                      {"character_coverage", "0.98"},
                                      {"vocab_size", "60"}})},
          {"bpe_over_spaces", with({{"model_type", "bpe"},
                                    {"split_by_whitespace", "false"},
                                    newline})},
          {"bpe_spaces_behind", with({{"model_type", "bpe"},
                                      {"treat_whitespace_as_suffix", "true"},
                                      newline})},
          {"bpe_as_the_library_does",
           {{"model_type", "bpe"}, {"vocab_size", "60"}}},
          {"unigram", with({{"model_type", "unigram"}, newline})},
          {"unigram_of_symbols",
           with({{"model_type", "unigram"},
                 {"user_defined_symbols", "\n,the horse,x+y\nthe"}})},
          {"characters", with({{"model_type", "char"}, newline})}};
}

class WordsTest : public ::testing::TestWithParam<Kind> {};

TEST_P(WordsTest, EncodeAsTheWholeText) {
  std::mt19937_64 random(5);
  std::vector<std::string> lines;
  for (int i = 0; i < 300; ++i) {
    std::string line;
    for (int k = 0; k < 9; ++k) {
      line += Words()[random() % Words().size()] + " ";
    }
    lines.push_back(line);
  }
  const std::string bytes = Trained(GetParam().arguments, lines);
  const auto tokenizer = LoadTokenizer(bytes, GetParam().name);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::unique_ptr<sentencepiece_bridge::Model> library;
  ASSERT_EQ(sentencepiece_bridge::Load(bytes, &library), "");
  for (int i = 0; i < 300; ++i) {
    const std::string text = Text(random, i % 40);
    std::vector<int> whole;
    ASSERT_EQ(library->Encode(text, &whole), "");
    ASSERT_EQ(*(*tokenizer)->Encode(text), whole) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, WordsTest, ::testing::ValuesIn(Kinds()),
                         [](const auto& kind) {
                           return std::string(kind.param.name);
                         });

TEST(WordCuts, WhereNoPieceReachesOver) {
  const std::vector<std::string> plain = {" ", "\n", " the", "   ", "x"};
  const WordCuts both = FindWordCuts(plain);
  EXPECT_TRUE(both.before_spaces && both.around_newlines);
  const std::vector<std::string> over = {" ", "\n", "the horse"};
  EXPECT_FALSE(FindWordCuts(over).before_spaces);
  EXPECT_TRUE(FindWordCuts(over).around_newlines);
  for (const char* piece : {"\n\n", "x\n", "\nx"}) {
    const std::vector<std::string> newlines = {" ", "\n", piece};
    EXPECT_TRUE(FindWordCuts(newlines).before_spaces);
    EXPECT_FALSE(FindWordCuts(newlines).around_newlines);
  }
  const std::vector<std::string> unknown = {"a"};
  EXPECT_FALSE(FindWordCuts(unknown).any());
}

TEST(WordCuts, Words) {
  const WordCuts both{.before_spaces = true, .around_newlines = true};
  const std::string text = "one  two\n\n three";
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = both.End(text, begin);
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(words,
            (std::vector<std::string>{"one", "  two", "\n", "\n", " three"}));
}

TEST(WordCache, ForgetsRatherThanGrows) {
  WordCache cache;
  const std::vector<int32_t> ids = {1, 2, 3};
  for (int i = 0; i < 200'000; ++i) cache.Add(std::to_string(i), ids);
  std::vector<int32_t> found = {7};
  EXPECT_TRUE(cache.Append("199999", &found));
  EXPECT_EQ(found, (std::vector<int32_t>{7, 1, 2, 3}));
  EXPECT_FALSE(cache.Append("0", &found));
  const std::string word(WordCache::kLongest + 1, 'x');
  cache.Add(word, ids);
  EXPECT_FALSE(cache.Append(word, &found));
}

TEST(Tokenizer, ManyThreadsEncodeAlike) {
  std::mt19937_64 random(5);
  std::vector<std::string> lines;
  for (int i = 0; i < 200; ++i) lines.push_back(Text(random, 9) + " ");
  for (std::string& line : lines) std::erase(line, '\n');
  const auto tokenizer =
      LoadTokenizer(Trained(Kinds().front().arguments, lines), "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = Text(random, 3000);
  const std::vector<int32_t> expected = *(*tokenizer)->Encode(text);
  std::vector<std::vector<int32_t>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<int32_t>& ids : found) {
    threads.emplace_back([&] { ids = *(*tokenizer)->Encode(text); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<int32_t>& ids : found) EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace delink::word_cache_test
