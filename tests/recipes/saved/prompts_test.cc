// Prompts in a file, and where their continuations end.
#include "recipes/saved/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "framework/base/file.h"
#include "framework/comm/self_communicator.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/saved_model.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
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
}

TEST_F(ContinuePromptTest, WhatANothingFollows) {
  EXPECT_THAT(*EncodePrompt(*tokenizer_, ""), ElementsAre(256));
  EXPECT_THAT(*EncodePrompt(*tokenizer_, "a"), ElementsAre('a'));
}

}  // namespace
}  // namespace delink::testing
