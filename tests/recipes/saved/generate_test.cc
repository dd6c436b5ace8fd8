// Generation with a cache against the same model without one.
#include "recipes/saved/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "layers/modules/attention.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/ops/add.h"
#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"
#include "tests/recipes/saved/causal_mean.h"
#include "tests/testing/gradcheck.h"

namespace delink::generate_test {
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

// kMean... have layers of their own that mix positions: one with a state, one
// without, and a head. kTwoAttentions has two states in a layer.
enum class Kind {
  kGpt,
  kLlama,
  kMean,
  kMeanWithoutState,
  kMeanHead,
  kTwoAttentions
};

struct MixConfig {
  Kind kind;
  // Gets the number of tokens of every visit of the first block.
  std::vector<int64_t>* seen = nullptr;
};

class MixBlock final : public Module {
 public:
  using Config = MixConfig;
  MixBlock(const Scope& s, const Config& c)
      : config_(c),
        first_(s / "first", {.dim = 24, .heads = 4, .stddev = 0.3}),
        second_(s / "second", {.dim = 24, .heads = 2, .stddev = 0.3}),
        mlp_(s / "mlp", {.dim = 24, .hidden = 40, .stddev = 0.3}) {}

  Var operator()(Var x) override {
    if (config_.seen != nullptr) config_.seen->push_back(x.dim(1));
    x = x + first_(x);
    if (config_.kind == Kind::kTwoAttentions) x = x + second_(x);
    if (config_.kind == Kind::kMean) x = x + mean_(x);
    if (config_.kind == Kind::kMeanWithoutState) {
      x = x + testing::CausalMean(x, nullptr);
    }
    return x + mlp_(x);
  }

 private:
  MixConfig config_;
  Attention first_, second_;
  testing::MeanLayer mean_;
  Mlp mlp_;
};

class MixHead final : public EpilogueModule {
 public:
  using Config = MixConfig;
  MixHead(const Scope& s, const Config& c)
      : config_(c), head_(s, {.dim = 24, .vocab = kVocab, .stddev = 0.3}) {}

  void Loss(Var x) override { head_.Loss(Mixed(x)); }
  Var Logits(Var x) override { return head_.Logits(Mixed(x)); }

 private:
  Var Mixed(Var x) { return config_.kind == Kind::kMeanHead ? mean_(x) : x; }

  MixConfig config_;
  testing::MeanLayer mean_;
  LmHead head_;
};

std::unique_ptr<Sequential> BuildMix(const Scope& s, const MixConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<Embedding>(
      "embed",
      {.vocab = kVocab, .dim = 24, .positions = kPositions, .stddev = 0.3});
  model->Block<MixBlock>(c);
  for (int64_t i = 1; i < kLayers; ++i) model->Block<MixBlock>({c.kind});
  model->Epilogue<MixHead>(c);
  return model;
}

std::unique_ptr<Sequential> Build(Kind kind, const Scope& s) {
  if (kind != Kind::kGpt && kind != Kind::kLlama) {
    return BuildMix(s, {.kind = kind});
  }
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
      : Model(dtype, [kind](const Scope& s) { return Build(kind, s); }) {}
  Model(DType dtype, const ModelRunner::Build& build)
      : sequential(build(Scope(registry, dtype))),
        store(*ParamStore::Create(
            *device, Layout::Create(registry, sequential->blocks(), {}, {}), 0,
            {.dtype = dtype,
             .gradients = false,
             .states = {},
             .master = MasterForm::kNone})) {
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

std::string NameOf(Kind kind) {
  constexpr const char* kNames[] = {"gpt",       "llama",
                                    "mean",      "mean_without_state",
                                    "mean_head", "two_attentions"};
  return kNames[static_cast<int>(kind)];
}

INSTANTIATE_TEST_SUITE_P(
    Models, Generation,
    ::testing::Combine(::testing::Values(Kind::kGpt, Kind::kLlama, Kind::kMean,
                                         Kind::kMeanWithoutState,
                                         Kind::kMeanHead, Kind::kTwoAttentions),
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

// A layer whose ops all work so sees the new tokens alone, and begins anew
// where the context is full; any other sees all, at first twice.
TEST(Generator, LayersWithoutAStateAreComputedAnew) {
  const std::pair<Kind, std::vector<int64_t>> cases[] = {
      {Kind::kMean, {10, 1, 1, 6, 1}},
      {Kind::kMeanWithoutState, {10, 10, 11, 12, 6, 7}},
      {Kind::kMeanHead, {10, 1, 1, 6, 1}}};
  for (const auto& one : cases) {
    const Kind kind = one.first;  // no lambda of clang 14's takes a binding
    std::vector<int64_t> seen;
    Model model(DType::kF32, [&](const Scope& s) {
      return BuildMix(s, {.kind = kind, .seen = &seen});
    });
    Generator generator(*model.sequential, *model.store,
                        {.positions = kPositions});
    generator.Prompt(std::vector<int32_t>(10, 1));
    for (int i = 0; i < 5; ++i) generator.Next();
    EXPECT_EQ(seen, one.second) << NameOf(kind);
  }
}

// Ids that pad a vocabulary are not drawn, at any temperature.
TEST_P(GeneratorTest, DrawsOnlyIdsOfTheVocabulary) {
  Model model(GetParam(), DType::kF32);
  constexpr int64_t kKnown = 9;
  for (const double temperature : {0.0, 1.0, 100.0}) {
    const std::vector<int32_t> tokens =
        Draw(model,
             {.sampling = {.temperature = temperature},
              .positions = kPositions,
              .vocab = kKnown},
             60);
    EXPECT_LT(*std::max_element(tokens.begin(), tokens.end()), kKnown);
    const std::vector<int32_t> all = Draw(
        model,
        {.sampling = {.temperature = temperature}, .positions = kPositions},
        60);
    EXPECT_GE(*std::max_element(all.begin(), all.end()), kKnown);
  }
  Generator generator(*model.sequential, *model.store,
                      {.positions = kPositions, .vocab = kKnown});
  generator.Prompt(std::vector<int32_t>{7});
  EXPECT_EQ(generator.Logits().size(), size_t{kKnown});
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
}  // namespace delink::generate_test
