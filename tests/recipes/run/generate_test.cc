// Generation with a cache against the same model without one.
#include "recipes/run/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"
#include "tests/testing/gradcheck.h"

namespace delink {
namespace {

using testing::ModelRunner;

constexpr int64_t kVocab = 23, kPositions = 12;
constexpr int64_t kLayers = 3, kKvHeads = 2, kHeadDim = 6;

template <typename Config>
Config Tiny() {
  Config c;
  c.layers = kLayers;
  c.vocab = kVocab;
  c.max_seq = kPositions;
  c.dim = 24;
  c.heads = 4;
  c.kv_heads = kKvHeads;
  c.ffn = 40;
  c.init_std = 0.3;
  c.dropout = 0.5;  // must be off
  return c;
}

enum class Kind { kGpt, kLlama };

std::unique_ptr<Sequential> Build(Kind kind, const Scope& s) {
  if (kind == Kind::kGpt) return BuildGpt(s, Tiny<GptConfig>());
  auto c = Tiny<LlamaConfig>();
  c.rotary.base = 100;
  c.rotary.scaling = ops::RotaryScaling::kLlama3;
  c.rotary.factor = 4;
  c.rotary.original_length = 40;
  c.qk_norm = true;
  c.qkv_bias = true;
  c.window = 4;  // shorter than prompt and context
  return BuildLlama(s, c);
}

// A model of its own for a generator: nothing is shared with ModelRunner's.
struct Model {
  Model(Kind kind, DType dtype)
      : sequential(Build(kind, Scope(registry, dtype))),
        store(*ParamStore::Create(*device, registry, sequential->blocks(),
                                  SharingMap(), 0,
                                  {.dtype = dtype,
                                   .gradients = false,
                                   .states = {},
                                   .master = Master::kNone})) {
    store->InitWeights(1);
  }
  std::unique_ptr<Device> device = NewCpuDevice();
  ParamRegistry registry;
  std::unique_ptr<Sequential> sequential;
  std::unique_ptr<ParamStore> store;
};

std::vector<double> LogitsWithoutCache(Kind kind,
                                       const std::vector<int32_t>& tokens,
                                       DType dtype) {
  const auto T = static_cast<int64_t>(tokens.size());
  ModelRunner model(
      [kind](const Scope& s) { return Build(kind, s); },
      {.B = 1, .T = T, .tokens = tokens, .targets = tokens, .samples = {0}},
      {.dtype = dtype});
  const std::vector<double> all = model.Logits();
  return {all.end() - kVocab, all.end()};
}

class Generation : public ::testing::TestWithParam<std::tuple<Kind, DType>> {};

TEST_P(Generation, CacheChangesNothing) {
  const auto [kind, dtype] = GetParam();
  const double tolerance = dtype == DType::kF64 ? 1e-13 : 1e-5;
  Model model(kind, dtype);
  Generator generator(*model.sequential, *model.store,
                      {.seed = 5, .positions = kPositions});
  std::vector<int32_t> tokens = {3, 1, 4, 1, 5};
  generator.Prompt(tokens);
  while (tokens.size() < 12) {
    EXPECT_LT(testing::NormError(generator.Logits(),
                                 LogitsWithoutCache(kind, tokens, dtype)),
              tolerance)
        << tokens.size() << " tokens";
    tokens.push_back(generator.Next());
  }
  EXPECT_LT(testing::NormError(generator.Logits(),
                               LogitsWithoutCache(kind, tokens, dtype)),
            tolerance);
  // Full: the newer half, and the token that did not fit, go on.
  tokens.push_back(generator.Next());
  const std::vector<int32_t> newer(tokens.end() - 6, tokens.end());
  EXPECT_LT(testing::NormError(generator.Logits(),
                               LogitsWithoutCache(kind, newer, dtype)),
            tolerance);
}

std::string NameOf(Kind kind) { return kind == Kind::kGpt ? "gpt" : "llama"; }

INSTANTIATE_TEST_SUITE_P(
    Models, Generation,
    ::testing::Combine(::testing::Values(Kind::kGpt, Kind::kLlama),
                       ::testing::Values(DType::kF64, DType::kF32)),
    [](const auto& info) {
      return NameOf(std::get<0>(info.param)) + "_" +
             std::string(ToString(std::get<1>(info.param)));
    });

class GeneratorTest : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Models, GeneratorTest,
                         ::testing::Values(Kind::kGpt, Kind::kLlama),
                         [](const auto& info) { return NameOf(info.param); });

std::vector<int32_t> Draw(Model& model, const Generator::Options& options,
                          int count) {
  Generator generator(*model.sequential, *model.store, options);
  generator.Prompt(std::vector<int32_t>{7, 2});
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(generator.Next());
  return tokens;
}

TEST_P(GeneratorTest, SameSeedSameTokens) {
  Model model(GetParam(), DType::kF32);
  const Generator::Options options{.seed = 1, .positions = kPositions};
  Generator::Options other = options;
  other.seed = 2;
  const std::vector<int32_t> tokens = Draw(model, options, 40);
  EXPECT_EQ(tokens, Draw(model, options, 40));
  EXPECT_NE(tokens, Draw(model, other, 40));
  for (const int32_t token : tokens) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, kVocab);
  }
}

TEST_P(GeneratorTest, PromptBeginsAnew) {
  Model model(GetParam(), DType::kF32);
  Generator generator(*model.sequential, *model.store,
                      {.positions = kPositions});
  std::vector<int32_t> first, second;
  for (std::vector<int32_t>* tokens : {&first, &second}) {
    generator.Prompt(std::vector<int32_t>{7, 2});
    for (int i = 0; i < 20; ++i) tokens->push_back(generator.Next());
  }
  EXPECT_EQ(first, second);
}

TEST_P(GeneratorTest, ZeroTemperatureFollowsTheLogits) {
  Model model(GetParam(), DType::kF32);
  Generator generator(
      *model.sequential, *model.store,
      {.sampling = {.temperature = 0}, .positions = kPositions});
  generator.Prompt(std::vector<int32_t>{7});
  for (int i = 0; i < 15; ++i) {
    const std::vector<double> logits = generator.Logits();
    const auto best = std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(generator.Next(), best - logits.begin());
  }
}

TEST_P(GeneratorTest, APromptLongerThanTheContextIsCut) {
  Model model(GetParam(), DType::kF64);
  Generator generator(*model.sequential, *model.store,
                      {.positions = kPositions});
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 20; ++i) tokens.push_back(i);
  generator.Prompt(tokens);
  const std::vector<int32_t> newer(tokens.end() - 6, tokens.end());
  EXPECT_LT(
      testing::NormError(generator.Logits(),
                         LogitsWithoutCache(GetParam(), newer, DType::kF64)),
      1e-13);
}

TEST_P(GeneratorTest, HoldsCachesAndNothingElse) {
  Model model(GetParam(), DType::kF32);
  const int64_t before = model.device->bytes_in_use();
  {
    Generator generator(*model.sequential, *model.store,
                        {.positions = kPositions});
    generator.Prompt(std::vector<int32_t>{7, 2});
    for (int i = 0; i < 30; ++i) generator.Next();
    constexpr int64_t kWidth = 2 * kKvHeads * kHeadDim;
    EXPECT_EQ(model.device->bytes_in_use() - before,
              kLayers * kPositions * kWidth * 4);
  }
  EXPECT_EQ(model.device->bytes_in_use(), before);
}

}  // namespace
}  // namespace delink
