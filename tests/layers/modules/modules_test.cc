// What modules declare: names, parts, shapes, and what may be left out.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "layers/modules/attention.h"
#include "layers/modules/embedding.h"
#include "layers/modules/gated_mlp.h"
#include "layers/modules/linear.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "tests/testing/gradcheck.h"

namespace delink::modules_test {
namespace {

using Names = std::vector<std::string>;

template <typename M>
Names Declared(const typename M::Config& config) {
  ParamRegistry registry;
  const M module(Scope(registry).Layer(1, "blocks/0") / "here", config);
  Names names;
  for (const ParamDecl& decl : registry.decls) {
    names.push_back(decl.part + ": " + decl.local + " " +
                    decl.spec.shape.ToString());
  }
  return names;
}

TEST(Modules, Declare) {
  EXPECT_EQ(Declared<Linear>({.in = 3, .out = 5}),
            (Names{"other: here/weight [5, 3]", "other: here/bias [5]"}));
  EXPECT_EQ(Declared<Linear>({.in = 3, .out = 5, .bias = false}),
            (Names{"other: here/weight [5, 3]"}));
  EXPECT_EQ(Declared<Norm>({.dim = 4}),
            (Names{"norm: here/weight [4]", "norm: here/bias [4]"}));
  EXPECT_EQ(Declared<Norm>({.dim = 4, .kind = NormKind::kRmsNorm}),
            (Names{"norm: here/weight [4]"}));
  EXPECT_EQ(Declared<Attention>(
                {.dim = 12, .heads = 6, .kv_heads = 2, .bias = false}),
            (Names{"attention: here/qkv/weight [20, 12]",
                   "attention: here/out/weight [12, 12]"}));
  EXPECT_EQ(Declared<Attention>({.dim = 12,
                                 .heads = 3,
                                 .kv_heads = 1,
                                 .head_dim = 8,
                                 .out_bias = false,
                                 .qk_norm_eps = 1e-6}),
            (Names{"attention: here/qkv/weight [40, 12]",
                   "attention: here/qkv/bias [40]",
                   "attention: here/q_norm/weight [8]",
                   "attention: here/k_norm/weight [8]",
                   "attention: here/out/weight [12, 24]"}));
  EXPECT_EQ(Declared<GatedMlp>({.dim = 4, .hidden = 9}),
            (Names{"mlp: here/gate_up/weight [18, 4]",
                   "mlp: here/down/weight [4, 9]"}));
  EXPECT_EQ(Declared<Mlp>({.dim = 4, .hidden = 9}),
            (Names{"mlp: here/up/weight [9, 4]", "mlp: here/up/bias [9]",
                   "mlp: here/down/weight [4, 9]", "mlp: here/down/bias [4]"}));
  EXPECT_EQ(Declared<Embedding>({.vocab = 7, .dim = 3}),
            (Names{"embedding: here/token/weight [7, 3]"}));
  EXPECT_EQ(Declared<LmHead>({.dim = 3, .vocab = 7}),
            (Names{"norm: here/norm/weight [3]", "norm: here/norm/bias [3]",
                   "head: here/head/weight [7, 3]"}));
}

// What a parameter's name is followed by says how tensor parallelism cuts it.
template <typename M>
Names Cut(const typename M::Config& config) {
  ParamRegistry registry;
  const M module(Scope(registry).Layer(1, "blocks/0"), config);
  Names names;
  for (const ParamDecl& decl : registry.decls) {
    const ParamSpec& spec = decl.spec;
    std::string& name = names.emplace_back(decl.local);
    if (spec.split == Split::kOut) name += ": rows";
    if (spec.split == Split::kIn) name += ": columns";
    if (spec.by_head) name += ": by head";
    for (const int64_t rows : spec.stacked) name += " " + std::to_string(rows);
    if (spec.unit > 1) name += ", units of " + std::to_string(spec.unit);
  }
  return names;
}

TEST(Modules, SayHowTheyAreCut) {
  EXPECT_EQ(Cut<Mlp>({.dim = 4, .hidden = 9}),
            (Names{"up/weight: rows", "up/bias: rows", "down/weight: columns",
                   "down/bias"}));
  EXPECT_EQ(Cut<GatedMlp>({.dim = 4, .hidden = 9}),
            (Names{"gate_up/weight: rows 9 9", "down/weight: columns"}));
  EXPECT_EQ(Cut<Embedding>({.vocab = 7, .dim = 3, .positions = 5}),
            (Names{"token/weight: rows", "position/weight"}));
  EXPECT_EQ(Cut<LmHead>({.dim = 3, .vocab = 7}),
            (Names{"norm/weight", "norm/bias", "head/weight: rows"}));
}

// Residuals inside blocks, an embedding without positions, a head of its own:
// a model as a user may write it.
class Plain final : public Module {
 public:
  struct Config {
    int64_t dim;
  };
  Plain(const Scope& s, const Config& c)
      : mlp_(s / "mlp", {.dim = c.dim,
                         .hidden = c.dim,
                         .gelu = GeluForm::kErf,
                         .stddev = 0.7,
                         .out_stddev = 0.7}) {}
  Var operator()(Var x) override { return mlp_(mlp_(x)); }

 private:
  Mlp mlp_;
};

TEST(Modules, AParameterUsedTwiceInAVisitGetsBothGradients) {
  testing::ExpectModelGradients(
      [](const Scope& s) {
        auto model = std::make_unique<Sequential>(s);
        model->Prologue<Embedding>("embed",
                                   {.vocab = 9, .dim = 5, .stddev = 0.8});
        model->Block<Plain>({.dim = 5});
        model->Epilogue<LmHead>({.dim = 5, .vocab = 9, .stddev = 0.8});
        return model;
      },
      testing::RandomBatch(2, 4, 9, 4));
}

}  // namespace
}  // namespace delink::modules_test
