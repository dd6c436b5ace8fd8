// A small good recipe for tests to spoil.
#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "recipes/models/gpt_config.h"
#include "recipes/schema/recipe_io.h"

namespace delink {

inline constexpr char kSample[] = R"([model]
kind = "gpt"
layers = 4
dim = 32
heads = 4

[data]
train = "corpus/train"
seq = 64
batch = 8

[optimizer]
lr = 1e-3

[schedule]
steps = 100
warmup = 10

[[stage]]
name = "pseudo"
share = "all"
until = { fraction = 0.3 }

[[stage]]
name = "real"
share = "none"

[run]
micro_batch = 2
)";

inline absl::StatusOr<Recipe> Parse(const std::string& text,
                                    const std::vector<std::string>& sets = {}) {
  return ParseRecipe(text, "gpt.toml", "/data", sets, {GptKind()});
}

inline const GptConfig& GptOf(const Recipe& recipe) {
  return dynamic_cast<const GptConfig&>(*recipe.model);
}

// The sample changed by `sets`, which must be good.
inline Recipe Sample(const std::vector<std::string>& sets = {}) {
  auto recipe = Parse(kSample, sets);
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  return *recipe;
}

// The sample with the only `from` in it replaced by `to`.
inline std::string Spoiled(const std::string& from, const std::string& to) {
  std::string text = kSample;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(text.find(from, at + 1), std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

}  // namespace delink
