// Token by token over ranks: each keeps the keys and values of its own heads,
// has its own part of the vocabulary, and all have the logits that one rank
// computes of all tokens at once.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/at.h"
#include "framework/comm/thread_communicator.h"
#include "framework/module/binder.h"
#include "framework/module/param_store.h"
#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"
#include "tests/recipes/models/model_checks.h"
#include "tests/testing/documents.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/noted_group.h"
#include "tests/testing/numbers.h"

namespace delink::cut_generation_test {
namespace {

using testing::ModelRunner;
using Tokens = std::vector<int32_t>;
using Values = std::vector<double>;

constexpr int64_t kT = 7, kD = 16;
constexpr int32_t kVocab = 11;

// A model on one rank of a group, whose layers keep states.
class Generator {
 public:
  Generator(const ModelRunner::Build& build, VisitGroup* group)
      : model_(build(Scope(registry_, DType::kF64))),
        device_(NewCpuDevice()),
        stream_(device_->NewStream()),
        group_(group),
        states_(static_cast<size_t>(model_->layers())) {
    Layout::Options options;
    options.mesh.tensor = group != nullptr ? group->size() : 1;
    store_ = *ParamStore::Create(
        *device_, Layout::Create(registry_, model_->blocks(), {}, options),
        group != nullptr ? group->rank() : 0,
        {.dtype = DType::kF64,
         .gradients = false,
         .states = {},
         .master = MasterForm::kNone});
    store_->InitWeights(1);
    binder_ = std::make_unique<Binder>(*store_);
    for (VisitStates& states : states_) states.positions = kT;
  }

  // The logits of tokens, the first of which is number `first`, with what is
  // kept of those before.
  Values operator()(Tokens tokens, int64_t first) {
    return Visit(std::move(tokens), 1,
                 {.training = false, .first_position = first, .sequences = 1},
                 true);
  }
  // Those of `rows` rows of tokens, all at once: whether ranks have rows of
  // their own between products or not.
  Values Logits(Tokens tokens, int64_t rows, bool sequence) {
    sequence_ = sequence;
    const auto T = static_cast<int64_t>(tokens.size()) / rows;
    const Tokens positions = testing::Positions(rows, T, {T});
    return Visit(
        std::move(tokens), rows,
        {.training = false, .positions = positions.data(), .sequences = rows},
        false);
  }

 private:
  Values Visit(Tokens tokens, int64_t rows, VisitInputs inputs, bool keeps) {
    const auto T = static_cast<int64_t>(tokens.size()) / rows;
    Tensor x(tokens.data(), DType::kI32, {rows, T});
    Values values;
    for (int i = 0; i < model_->layers(); ++i) {
      binder_->Bind(i, nullptr);
      HeapMemory memory(*device_);
      Tape tape({.device = device_.get(),
                 .stream = stream_.get(),
                 .groups = {.tensor = group_, .sequence = sequence_}},
                memory);
      if (keeps) inputs.states = &At(states_, i);
      tape.BeginForward(Phase::kEval, inputs);
      const Var y = model_->layer(i)(tape.Input(x, false));
      EXPECT_TRUE(tape.by_token() || !keeps);
      const auto* const numbers = static_cast<const double*>(y.data());
      Values next(numbers, numbers + y.shape().elements());
      values = std::move(next);
      x = Tensor(values.data(), DType::kF64, y.shape());
    }
    return values;
  }

  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  VisitGroup* group_;
  bool sequence_ = false;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Binder> binder_;
  std::vector<VisitStates> states_;
};

std::vector<ModelRunner::Build> Models(int64_t kv_heads) {
  auto gpt = testing::Sized<GptConfig>({.vocab = kVocab,
                                        .max_seq = kT,
                                        .dim = kD,
                                        .kv_heads = kv_heads,
                                        .ffn = 24});
  gpt.init_std = 0.4;
  auto llama = testing::Sized<LlamaConfig>(
      {.vocab = kVocab, .dim = kD, .kv_heads = kv_heads, .ffn = 20});
  llama.head_dim = 6;
  llama.qk_norm = true;
  llama.window = 4;
  llama.init_std = 0.4;
  return {[gpt](const Scope& s) { return BuildGpt(s, gpt); },
          [llama](const Scope& s) { return BuildLlama(s, llama); }};
}

void ExpectSameOnAllRanks(const ModelRunner::Build& build, int ranks) {
  const Tokens tokens = testing::Integers("tokens", kT, kVocab);
  const Values all = Generator(build, nullptr)(tokens, 0);
  const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
    testing::NotedGroup group(comm);
    Generator generator(build, &group);
    int64_t first = 0;
    Values joined;
    for (const int64_t count : {3, 1, 1, 2}) {
      const Values y = generator(
          {tokens.begin() + first, tokens.begin() + first + count}, first);
      joined.insert(joined.end(), y.begin(), y.end());
      first += count;
    }
    // Two blocks and the head are some twenty sums of about ten roundings.
    EXPECT_LE(testing::NormError(joined, all), 20 * 10 * 0x1p-53);
    return group.status();
  });
  EXPECT_EQ(status, absl::OkStatus());
}

// As for tests of a model's words.
TEST(CutLogits, AreThoseOfOneRankForAllTokens) {
  constexpr int64_t kRows = 4;
  const Tokens tokens = testing::Integers("tokens", kRows * kT, kVocab);
  for (const int64_t kv_heads : {1, 4}) {
    for (const ModelRunner::Build& build : Models(kv_heads)) {
      const Values all = Generator(build, nullptr).Logits(tokens, kRows, false);
      ASSERT_EQ(all.size(), static_cast<size_t>(kRows * kT * kVocab));
      for (const int ranks : {2, 4}) {
        for (const bool sequence : {false, true}) {
          SCOPED_TRACE(::testing::Message() << ranks << ", " << sequence);
          const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
            testing::NotedGroup group(comm);
            const Values y =
                Generator(build, &group).Logits(tokens, kRows, sequence);
            EXPECT_LE(testing::NormError(y, all), 20 * 10 * 0x1p-53);
            return group.status();
          });
          EXPECT_EQ(status, absl::OkStatus());
        }
      }
    }
  }
}

TEST(CutGeneration, IsThatOfOneRank) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    for (const ModelRunner::Build& build : Models(kv_heads)) {
      for (const int ranks : {2, 4}) {
        SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << kv_heads
                                          << " for keys and values");
        ExpectSameOnAllRanks(build, ranks);
      }
    }
  }
}

}  // namespace
}  // namespace delink::cut_generation_test
