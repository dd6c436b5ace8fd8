// Prompts in a file, and where their continuations end.
#include "recipes/saved/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/tokenizer/huggingface_files.h"
#include "data/tokenizer/tokenizer_json.h"
#include "framework/base/file.h"
#include "framework/comm/self_communicator.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/saved_model.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/recipes/saved/words.h"

namespace delink::testing::prompts_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReadPromptsTest, WhatALineDoesNotSayTheOptionsDo) {
  const TempDir dir;
  const std::string path = dir / "p.jsonl";
  ASSERT_TRUE(
      WriteFile(path,
                "{\"prompt\": \"a\"}\n"
                "{\"prompt\": \"\", \"until\": \"x\", \"tokens\": 3, "
                "\"temperature\": 0, \"top_k\": 0, \"top_p\": 0.25, \"seed\": "
                "9, \"id\": 1}\n"
                "{\"prompt\": \"b\", \"until\": [\"x\", \"\\n\"]}\n")
          .ok());
  const auto read = ReadPrompts(
      path, {.tokens = 7, .sampling = {.temperature = 2, .top_k = 4}});
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].options.tokens, 7);
  EXPECT_EQ((*read)[0].options.sampling.temperature, 2);
  EXPECT_EQ((*read)[0].options.sampling.top_k, 4);
  EXPECT_EQ((*read)[0].options.seed, 1u);
  EXPECT_TRUE((*read)[0].until.empty());
  EXPECT_EQ((*read)[1].line, 2);
  EXPECT_EQ((*read)[1].options.tokens, 3);
  EXPECT_EQ((*read)[1].options.sampling.temperature, 0);
  EXPECT_EQ((*read)[1].options.sampling.top_k, 0);
  EXPECT_EQ((*read)[1].options.sampling.top_p, 0.25);
  EXPECT_EQ((*read)[1].options.seed, 9u);
  EXPECT_THAT((*read)[1].until, ElementsAre("x"));
  EXPECT_THAT((*read)[2].until, ElementsAre("x", "\n"));
}

TEST(ReadPromptsTest, NamesEveryWrongLine) {
  const TempDir dir;
  const std::string path = dir / "p.jsonl";
  ASSERT_TRUE(WriteFile(path,
                        "{}\n"
                        "{\"prompt\": \"a\", \"tokens\": 0}\n"
                        "{\"prompt\": \"a\", \"tokens\": 1.5}\n"
                        "{\"prompt\": \"a\", \"temperature\": -1}\n"
                        "{\"prompt\": \"a\", \"top_p\": \"x\"}\n"
                        "{\"prompt\": \"a\", \"until\": [\"x\", \"\"]}\n"
                        "{\"prompt\": \"a\", \"until\": 3}\n"
                        "{\"prompt\": \"a\", \"seed\": -1}\n")
                  .ok());
  const absl::Status status = ReadPrompts(path, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("p.jsonl:1: the line has no `prompt`"),
                    HasSubstr("p.jsonl:2: the line has `tokens` 0"),
                    HasSubstr("p.jsonl:3: the line has `tokens` 1.5"),
                    HasSubstr("p.jsonl:4: the line has `temperature` -1"),
                    HasSubstr("p.jsonl:5: the line has `top_p` \"x\""),
                    HasSubstr("p.jsonl:6: the line has an `until`"),
                    HasSubstr("p.jsonl:7: the line has an `until`"),
                    HasSubstr("p.jsonl:8: the line has `seed` -1")));
}

// As deep as a hundred kilobytes can be, which is deeper than a stack.
TEST(ReadPromptsTest, WhatNestsDeeplyIsAnError) {
  const TempDir dir;
  const std::string path = dir / "p.jsonl";
  const std::string deep =
      std::string(100'000, '[') + std::string(100'000, ']');
  std::string lines;
  for (const char* key : {"until", "tokens", "temperature", "prompt"}) {
    lines +=
        "{\"prompt\": \"a\", \"" + std::string(key) + "\": " + deep + "}\n";
  }
  ASSERT_TRUE(WriteFile(path, lines + deep + "\n").ok());
  const absl::Status status = ReadPrompts(path, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message,
              AllOf(HasSubstr("p.jsonl:1: the line has an `until` that is no"),
                    HasSubstr("p.jsonl:2: the line has `tokens` of another"),
                    HasSubstr("p.jsonl:3: the line has `temperature` of anoth"),
                    HasSubstr("p.jsonl:4: the line has no `prompt`"),
                    HasSubstr("p.jsonl:5: the line is no JSON object")));
  EXPECT_LT(message.size(), 1000u);
}

class ContinuePromptTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPositions = 32;

  void SetUp() override {
    ASSERT_TRUE(runs_.Run({.sets = {"optimizer.lr=0.01"}, .out = "run"}).ok());
    auto saved = SavedModel::Open(self_, runs_.Folder("run"), BuiltInModels());
    ASSERT_TRUE(saved.ok()) << saved.status();
    saved_ = *std::move(saved);
    ASSERT_EQ(saved_->recipe().model->max_seq, kPositions);
    auto store = saved_->Load(self_, *device_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    tokenizer_ = saved_->MakeTokenizer().value();
  }

  Continuation Continue(Prompt prompt) {
    prompt.options.sampling.temperature = 0;
    const auto done = ContinuePrompt(prompt, *tokenizer_, saved_->model(),
                                     *store_, kPositions);
    EXPECT_TRUE(done.ok()) << done.status();
    return done.value_or(Continuation());
  }

  TinyRuns runs_;
  SelfCommunicator self_;
  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<SavedModel> saved_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(ContinuePromptTest, EndsWhereItIsToldTo) {
  const Continuation all =
      Continue({.text = "the slab", .options = {.tokens = 12}});
  EXPECT_EQ(all.tokens, 12);
  EXPECT_EQ(all.ended_by, "tokens");
  EXPECT_FALSE(all.truncated);
  ASSERT_EQ(all.text.size(), 12u);  // bytes of ASCII
  // Before the first of them, wherever it stands in the list.
  const std::string late = all.text.substr(8, 3);
  const std::string early = all.text.substr(3, 2);
  const Continuation cut = Continue({.text = "the slab",
                                     .until = {"none of it", late, early},
                                     .options = {.tokens = 12}});
  const size_t end = std::min(all.text.find(early), all.text.find(late));
  EXPECT_EQ(cut.text, all.text.substr(0, end));
  EXPECT_EQ(cut.ended_by, "until");
  EXPECT_LT(cut.tokens, 12);
}

TEST_F(ContinuePromptTest, OfALongPromptTheEndIsTaken) {
  const std::string prompt = "holds its weights and moves. the slab of a layer";
  const Continuation cut =
      Continue({.text = prompt, .options = {.tokens = 10}});
  EXPECT_TRUE(cut.truncated);
  const std::string end = prompt.substr(prompt.size() - 22);
  const Continuation same = Continue({.text = end, .options = {.tokens = 10}});
  EXPECT_FALSE(same.truncated);
  EXPECT_EQ(cut.text, same.text);
  // Without room for it the model's context rolls.
  const Continuation rolled =
      Continue({.text = end, .options = {.tokens = 40}});
  EXPECT_FALSE(rolled.truncated);
  EXPECT_EQ(rolled.tokens, 40);
  // Of a prompt that does not fit either it begins with the newer half.
  const Continuation half =
      Continue({.text = prompt, .options = {.tokens = 40}});
  EXPECT_TRUE(half.truncated);
  EXPECT_EQ(half.text, Continue({.text = prompt.substr(prompt.size() - 16),
                                 .options = {.tokens = 40}})
                           .text);
}

// As a chat's folder does, whose turns end otherwise than its documents. Here a
// letter is in the place of its eos_token.
TEST_F(ContinuePromptTest, EndsWhereTheTokenizersFolderSays) {
  const Continuation all =
      Continue({.text = "the slab", .options = {.tokens = 12}});
  ASSERT_EQ(all.text.size(), 12u);
  const char letter = all.text.back();
  const std::string name = BytesToText(std::string(1, letter));
  const TempDir folder;
  auto json = nlohmann::json::parse(
      ForHuggingFace(*tokenizer_).files.at("tokenizer.json"));
  json["added_tokens"][0]["content"] = "<|endoftext|>";
  json["added_tokens"].push_back({{"id", static_cast<int32_t>(letter)},
                                  {"content", name},
                                  {"special", true}});
  ASSERT_TRUE(WriteFile(folder / "tokenizer.json", json.dump()).ok());
  ASSERT_TRUE(WriteFile(folder / "tokenizer_config.json",
                        nlohmann::json{{"eos_token", name}}.dump())
                  .ok());
  auto loaded = LoadTokenizerFolder(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  tokenizer_ = *std::move(loaded);
  ASSERT_EQ(tokenizer_->vocab_size(), 257);
  ASSERT_EQ(tokenizer_->end_of_document(), 256);
  const Continuation cut =
      Continue({.text = "the slab", .options = {.tokens = 12}});
  const size_t end = all.text.find(letter);
  ASSERT_LT(end, 11u);
  EXPECT_EQ(cut.text, all.text.substr(0, end));
  EXPECT_EQ(cut.tokens, static_cast<int64_t>(end) + 1);
  EXPECT_EQ(cut.ended_by, "end_of_document");
}

TEST(EncodePromptTest, ABeginOfSequenceIsInFrontOnce) {
  Words words;
  words.begin = 998;
  EXPECT_THAT(*EncodePrompt(words, "who is"),
              ElementsAre(998, Words::IdOf("who"), Words::IdOf(" is")));
  EXPECT_THAT(*EncodePrompt(words, ""), ElementsAre(998));
}

TEST_F(ContinuePromptTest, WhatANothingFollows) {
  EXPECT_THAT(*EncodePrompt(*tokenizer_, ""), ElementsAre(256));
  EXPECT_THAT(*EncodePrompt(*tokenizer_, "a"), ElementsAre('a'));
}

}  // namespace
}  // namespace delink::testing::prompts_test
