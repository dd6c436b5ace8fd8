// Modules cut over ranks as their Split says, against the same on one rank:
// the rounding of sums taken in other orders apart, they are the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "layers/modules/attention.h"
#include "layers/modules/dropout.h"
#include "layers/modules/gated_mlp.h"
#include "layers/modules/linear.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "layers/ops/causal_attention.h"
#include "layers/ops/swiglu.h"
#include "tests/layers/modules/expect_cut.h"
#include "tests/testing/cut_layer.h"
#include "tests/testing/documents.h"

namespace delink::cut_test {
namespace {

using testing::CutCase;
using testing::LayerOf;
using testing::RunCut;

constexpr int64_t kB = 2, kT = 6, kD = 16;

// Sums are of up to a hundred terms, whose roundings wander: each is off by
// about ten of them. Up to eight sums are behind each other.
constexpr double kSums = 8 * 10;

CutCase CaseOf(std::function<testing::VisitRunner::Layer(const Scope&)> build) {
  return {.build = std::move(build), .B = kB, .T = kT, .D = kD};
}

void ExpectCut(const CutCase& c) { testing::ExpectCut(c, kSums); }

// Products that a user may write.
class Pair final : public Module {
 public:
  struct Config {
    bool bias = true;
  };
  Pair(const Scope& s, const Config& c)
      : up_(s / "up",
            {.in = kD, .out = 12, .bias = c.bias, .split = Split::kOut}),
        down_(s / "down",
              {.in = 12, .out = kD, .bias = c.bias, .split = Split::kIn}),
        same_(s / "same", {.in = kD, .out = kD, .bias = c.bias}) {}
  // The second one gets what is everywhere, or everybody's own.
  Var operator()(Var x) override {
    return x + same_(down_(up_(x)) + down_(up_(same_(x))));
  }

 private:
  Linear up_, down_, same_;
};

TEST(Cut, Linear) {
  for (const bool bias : {true, false}) {
    SCOPED_TRACE(bias);
    ExpectCut(CaseOf(LayerOf<Pair>({.bias = bias})));
  }
}

TEST(Cut, Mlp) {
  for (const GeluForm gelu : {GeluForm::kTanh, GeluForm::kErf}) {
    // Ranks need not have the same: 13 columns.
    for (const int64_t hidden : {24, 13}) {
      SCOPED_TRACE(hidden);
      ExpectCut(
          CaseOf(LayerOf<Mlp>({.dim = kD, .hidden = hidden, .gelu = gelu})));
    }
  }
  ExpectCut(CaseOf(LayerOf<Mlp>({.dim = kD, .hidden = 8, .bias = false})));
}

TEST(Cut, GatedMlp) {
  for (const int64_t hidden : {24, 13}) {
    SCOPED_TRACE(hidden);
    ExpectCut(CaseOf(LayerOf<GatedMlp>({.dim = kD, .hidden = hidden})));
  }
}

TEST(Cut, Norms) {
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    ExpectCut(CaseOf([kind](const Scope& s) {
      const auto a = std::make_shared<Norm>(
          s / "a", Norm::Config{.dim = kD, .kind = kind});
      const auto b = std::make_shared<Norm>(
          s / "b", Norm::Config{.dim = kD, .kind = kind});
      const auto mlp =
          std::make_shared<Mlp>(s / "mlp", Mlp::Config{.dim = kD, .hidden = 8});
      return [=](Var x) {
        const auto [sum, normed] = b->Add(x, (*mlp)((*a)(x)));
        return sum + (*mlp)(normed);
      };
    }));
  }
}

TEST(Cut, Attention) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    for (const bool bias : {true, false}) {
      SCOPED_TRACE(::testing::Message() << kv_heads << " for keys and values"
                                        << (bias ? ", biases" : ""));
      ExpectCut(CaseOf(LayerOf<Attention>(
          {.dim = kD, .heads = 4, .kv_heads = kv_heads, .bias = bias})));
    }
  }
}

TEST(Cut, AttentionWithWhatLlamasHave) {
  for (const int64_t kv_heads : {8, 4, 2, 1}) {
    SCOPED_TRACE(kv_heads);
    CutCase c = CaseOf(LayerOf<Attention>({.dim = kD,
                                           .heads = 8,
                                           .kv_heads = kv_heads,
                                           .head_dim = 6,
                                           .bias = true,
                                           .out_bias = false,
                                           .rotary = ops::RotaryConfig{},
                                           .qk_norm_eps = 1e-5,
                                           .window = 3}));
    ExpectCut(c);
    c.positions = testing::Positions(kB, kT, {4, 1, 3});
    c.documents = c.positions;
    ExpectCut(c);
  }
}

// Each rank's rows have the masks that one rank's have.
TEST(Cut, Dropout) {
  ExpectCut(CaseOf(LayerOf<Dropout, double>(0.4)));
  ExpectCut(CaseOf(LayerOf<Mlp>({.dim = kD, .hidden = 8, .dropout = 0.4})));
  ExpectCut(
      CaseOf(LayerOf<Attention>({.dim = kD, .heads = 4, .dropout = 0.4})));
}

// Gradients that are kept in bf16, beside those of other ranks' rows too.
TEST(Cut, InTheTypesOfRuns) {
  const CutCase cases[] = {
      CaseOf(LayerOf<Mlp>({.dim = kD, .hidden = 24})),
      CaseOf(LayerOf<GatedMlp>({.dim = kD, .hidden = 24})),
      CaseOf(LayerOf<Attention>({.dim = kD,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .rotary = ops::RotaryConfig{},
                                 .qk_norm_eps = 1e-5}))};
  // Of bf16 some ten values behind each other are rounded, both ways.
  for (const CutCase& c : cases) {
    testing::ExpectCutInTypesOfRuns(c, kSums, 16);
  }
}

// What a user may put between products: masks of a rank's own columns, also of
// several matrices, of those that gates and attention make of them, and of
// keys and values that several ranks have.
class Masked final : public Module {
 public:
  struct Config {
    int64_t kv_heads = 4;
  };
  Masked(const Scope& s, const Config& c)
      : heads_(kHeads),
        kv_heads_(c.kv_heads),
        qkv_(s / "qkv", {.in = kD,
                         .out = (kHeads + 2 * c.kv_heads) * kHead,
                         .split = Split::kOut,
                         .stacked = {kHeads * kHead, c.kv_heads * kHead,
                                     c.kv_heads * kHead},
                         .unit = kHead}),
        out_(s / "out", {.in = kHeads * kHead,
                         .out = kD,
                         .split = Split::kIn,
                         .unit = kHead}),
        gate_up_(s / "gate_up", {.in = kD,
                                 .out = 2 * kHidden,
                                 .split = Split::kOut,
                                 .stacked = {kHidden, kHidden}}),
        down_(s / "down", {.in = kHidden, .out = kD, .split = Split::kIn}),
        of_qkv_(s / "of_qkv", 0.3),
        of_heads_(s / "of_heads", 0.3),
        of_gates_(s / "of_gates", 0.3),
        of_hidden_(s / "of_hidden", 0.3),
        of_rows_(s / "of_rows", 0.3) {}

  Var operator()(Var x) override {
    const VisitGroup* const group = x.tape().groups().tensor;
    const int64_t n = group != nullptr ? group->size() : 1;
    const Var heads =
        ops::CausalAttention(of_qkv_(qkv_(x)), heads_ / n,
                             std::max<int64_t>(1, kv_heads_ / n), /*window=*/0);
    x = x + of_rows_(out_(of_heads_(heads)));
    const Var gates = of_gates_(gate_up_(x));
    return x + down_(of_hidden_(ops::SwiGlu(gates)));
  }

 private:
  static constexpr int64_t kHeads = 4, kHead = 6, kHidden = 13;
  int64_t heads_, kv_heads_;
  Linear qkv_, out_, gate_up_, down_;
  Dropout of_qkv_, of_heads_, of_gates_, of_hidden_, of_rows_;
};

TEST(Cut, DropoutOfColumns) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    SCOPED_TRACE(kv_heads);
    const auto build = LayerOf<Masked>({.kv_heads = kv_heads});
    ExpectCut(CaseOf(build));
    // Of a row's tokens a rank has two pieces.
    CutCase longer = CaseOf(build);
    longer.T = 8;
    for (const bool sequence : {false, true}) {
      ExpectSame(
          RunCut(longer, {.ranks = 2, .sequence = sequence, .context = 2}),
          RunCut(longer, {}), kSums * 0x1p-53);
    }
  }
}

// A GELU that is one kernel with its product hands its columns on, too.
TEST(Cut, DropoutOfWhatAGeluMakes) {
  ExpectCut(CaseOf([](const Scope& s) {
    const auto up = std::make_shared<Linear>(
        s / "up", Linear::Config{.in = kD, .out = 13, .split = Split::kOut});
    const auto down = std::make_shared<Linear>(
        s / "down", Linear::Config{.in = 13, .out = kD, .split = Split::kIn});
    const auto drop = std::make_shared<Dropout>(s / "drop", 0.4);
    return [=](Var x) {
      return x + (*down)((*drop)(up->Gelu(x, GeluForm::kTanh).value));
    };
  }));
}

}  // namespace
}  // namespace delink::cut_test
