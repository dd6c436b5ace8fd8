// Generation with a cache against the same model without one.
#include "recipes/run/generate.h"

#include <gtest/gtest.h>

#include "recipes/models/gpt.h"
#include "tests/testing/gradcheck.h"

namespace delink {
namespace {

using testing::ModelRunner;

GptConfig Tiny() {
  GptConfig c;
  c.layers = 3;
  c.vocab = 23;
  c.max_seq = 12;
  c.dim = 24;
  c.heads = 4;
  c.kv_heads = 2;
  c.ffn = 40;
  c.init_std = 0.3;
  c.dropout = 0.5;  // must be off
  return c;
}

// A model of its own for a generator: nothing is shared with ModelRunner's.
struct Model {
  explicit Model(DType dtype, const GptConfig& c = Tiny())
      : sequential(BuildGpt(Scope(registry, dtype), c)),
        store(*ParamStore::Create(
            *device, registry, sequential->blocks(), SharingMap(), 0,
            {.dtype = dtype, .gradients = false, .states = 0})) {
    store->InitWeights(1);
  }
  std::unique_ptr<Device> device = NewCpuDevice();
  ParamRegistry registry;
  std::unique_ptr<Sequential> sequential;
  std::unique_ptr<ParamStore> store;
};

std::vector<double> LogitsWithoutCache(const std::vector<int32_t>& tokens,
                                       DType dtype) {
  const auto T = static_cast<int64_t>(tokens.size());
  ModelRunner model(
      [](const Scope& s) { return BuildGpt(s, Tiny()); },
      {.B = 1, .T = T, .tokens = tokens, .targets = tokens, .samples = {0}},
      {.dtype = dtype});
  const std::vector<double> all = model.Logits();
  return {all.end() - Tiny().vocab, all.end()};
}

class Generation : public ::testing::TestWithParam<DType> {};

TEST_P(Generation, CacheChangesNothing) {
  const DType dtype = GetParam();
  const double tolerance = dtype == DType::kF64 ? 1e-13 : 1e-5;
  Model model(dtype);
  Generator generator(*model.sequential, *model.store,
                      {.seed = 5, .positions = Tiny().max_seq});
  std::vector<int32_t> tokens = {3, 1, 4, 1, 5};
  generator.Prompt(tokens);
  while (tokens.size() < 12) {
    EXPECT_LT(testing::NormError(generator.Logits(),
                                 LogitsWithoutCache(tokens, dtype)),
              tolerance)
        << tokens.size() << " tokens";
    tokens.push_back(generator.Next());
  }
  EXPECT_LT(
      testing::NormError(generator.Logits(), LogitsWithoutCache(tokens, dtype)),
      tolerance);
  // Full: the newer half, and the token that did not fit, go on.
  tokens.push_back(generator.Next());
  const std::vector<int32_t> newer(tokens.end() - 6, tokens.end());
  EXPECT_LT(
      testing::NormError(generator.Logits(), LogitsWithoutCache(newer, dtype)),
      tolerance);
}

INSTANTIATE_TEST_SUITE_P(DTypes, Generation,
                         ::testing::Values(DType::kF64, DType::kF32),
                         [](const auto& info) {
                           return std::string(ToString(info.param));
                         });

std::vector<int32_t> Draw(Model& model, const Generator::Options& options,
                          int count) {
  Generator generator(*model.sequential, *model.store, options);
  generator.Prompt(std::vector<int32_t>{7, 2});
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(generator.Next());
  return tokens;
}

TEST(Generator, SameSeedSameTokens) {
  Model model(DType::kF32);
  const Generator::Options options{.seed = 1, .positions = 12};
  Generator::Options other = options;
  other.seed = 2;
  const std::vector<int32_t> tokens = Draw(model, options, 40);
  EXPECT_EQ(tokens, Draw(model, options, 40));
  EXPECT_NE(tokens, Draw(model, other, 40));
  for (const int32_t token : tokens) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, Tiny().vocab);
  }
}

TEST(Generator, PromptBeginsAnew) {
  Model model(DType::kF32);
  Generator generator(*model.sequential, *model.store, {.positions = 12});
  std::vector<int32_t> first, second;
  for (std::vector<int32_t>* tokens : {&first, &second}) {
    generator.Prompt(std::vector<int32_t>{7, 2});
    for (int i = 0; i < 20; ++i) tokens->push_back(generator.Next());
  }
  EXPECT_EQ(first, second);
}

TEST(Generator, ZeroTemperatureFollowsTheLogits) {
  Model model(DType::kF32);
  Generator generator(*model.sequential, *model.store,
                      {.sampling = {.temperature = 0}, .positions = 12});
  generator.Prompt(std::vector<int32_t>{7});
  for (int i = 0; i < 15; ++i) {
    const std::vector<double> logits = generator.Logits();
    const auto best = std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(generator.Next(), best - logits.begin());
  }
}

TEST(Generator, APromptLongerThanTheContextIsCut) {
  Model model(DType::kF64);
  Generator generator(*model.sequential, *model.store, {.positions = 12});
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 20; ++i) tokens.push_back(i);
  generator.Prompt(tokens);
  const std::vector<int32_t> newer(tokens.end() - 6, tokens.end());
  EXPECT_LT(testing::NormError(generator.Logits(),
                               LogitsWithoutCache(newer, DType::kF64)),
            1e-13);
}

TEST(Generator, HoldsCachesAndNothingElse) {
  Model model(DType::kF32);
  const int64_t before = model.device->bytes_in_use();
  {
    Generator generator(*model.sequential, *model.store, {.positions = 12});
    generator.Prompt(std::vector<int32_t>{7, 2});
    for (int i = 0; i < 30; ++i) generator.Next();
    const GptConfig c = Tiny();
    const int64_t width = 2 * c.kv_heads * c.head_dim();
    EXPECT_EQ(model.device->bytes_in_use() - before,
              c.layers * c.max_seq * width * 4);
  }
  EXPECT_EQ(model.device->bytes_in_use(), before);
}

}  // namespace
}  // namespace delink
