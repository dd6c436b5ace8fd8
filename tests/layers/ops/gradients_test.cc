// Every op against central differences.
#include <gtest/gtest.h>

#include "layers/ops/add.h"
#include "layers/ops/causal_attention.h"
#include "layers/ops/dropout.h"
#include "layers/ops/embedding_lookup.h"
#include "layers/ops/gelu.h"
#include "layers/ops/head_loss.h"
#include "layers/ops/layer_norm.h"
#include "layers/ops/linear.h"
#include "layers/ops/rms_norm.h"
#include "tests/testing/gradcheck.h"

namespace delink {
namespace {

using testing::ExpectGradients;
using Params = std::vector<Param*>;

TEST(Gradients, Linear) {
  for (const int64_t in : {1, 5, 8}) {
    for (const int64_t out : {1, 7}) {
      SCOPED_TRACE(::testing::Message() << in << " to " << out);
      ExpectGradients({.x = {2, 3, in},
                       .params = {{out, in}, {out}},
                       .op = [](Var x, const Params& p) {
                         return ops::Linear(x, *p[0], p[1]);
                       }});
      ExpectGradients({.x = {4, in},
                       .params = {{out, in}},
                       .op = [](Var x, const Params& p) {
                         return ops::Linear(x, *p[0], nullptr);
                       }});
    }
  }
}

TEST(Gradients, Add) {
  ExpectGradients({.x = {2, 3, 4}, .op = [](Var x, const Params&) {
                     return x + ops::Gelu(x, GeluForm::kErf);
                   }});
}

TEST(Gradients, LayerNorm) {
  for (const int64_t width : {1, 2, 7, 16}) {
    // Without much of an epsilon a short row is a step function of its input.
    const double eps = width > 2 ? 1e-5 : 0.5;
    ExpectGradients({.x = {2, 3, width},
                     .params = {{width}, {width}},
                     .op = [eps](Var x, const Params& p) {
                       return ops::LayerNorm(x, *p[0], *p[1], eps);
                     }});
  }
}

TEST(Gradients, RmsNorm) {
  for (const int64_t width : {1, 7, 16}) {
    ExpectGradients({.x = {2, 3, width},
                     .params = {{width}},
                     .op = [](Var x, const Params& p) {
                       return ops::RmsNorm(x, *p[0], 1e-2);
                     }});
  }
}

TEST(Gradients, Gelu) {
  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
    ExpectGradients({.x = {3, 17}, .op = [form](Var x, const Params&) {
                       return ops::Gelu(x, form);
                     }});
  }
}

TEST(Gradients, Dropout) {
  for (const bool training : {true, false}) {
    ExpectGradients({.x = {2, 3, 9},
                     .op =
                         [](Var x, const Params&) {
                           return ops::Dropout(ops::Gelu(x, GeluForm::kErf),
                                               0.4, HashName("here"));
                         },
                     .training = training,
                     .first_position = 2});
  }
}

TEST(Gradients, EmbeddingLookup) {
  // A token that comes often, and rows that nobody looks up.
  const std::vector<int32_t> tokens = {4, 0, 4, 1, 4, 2};
  ExpectGradients({.x = {2, 3},
                   .params = {{6, 5}, {7, 5}},
                   .op =
                       [](Var x, const Params& p) {
                         return ops::EmbeddingLookup(x, *p[0], p[1]);
                       },
                   .tokens = tokens,
                   .first_position = 2});
  ExpectGradients({.x = {3, 2},
                   .params = {{6, 5}},
                   .op =
                       [](Var x, const Params& p) {
                         return ops::EmbeddingLookup(x, *p[0], nullptr);
                       },
                   .tokens = tokens});
}

TEST(Gradients, CausalAttention) {
  struct Case {
    int64_t B, T, H, Hkv, Dh;
  };
  for (const Case c : {Case{1, 1, 1, 1, 1}, Case{2, 5, 2, 2, 3},
                       Case{1, 7, 4, 2, 2}, Case{2, 3, 3, 1, 5}}) {
    SCOPED_TRACE(::testing::Message() << c.T << " tokens, " << c.H << " heads");
    ExpectGradients({.x = {c.B, c.T, (c.H + 2 * c.Hkv) * c.Dh},
                     .op = [c](Var x, const Params&) {
                       return ops::CausalAttention(x, c.H, c.Hkv);
                     }});
  }
}

TEST(Gradients, HeadLoss) {
  ExpectGradients(
      {.x = {2, 3, 4},
       .params = {{11, 4}},
       .op =
           [](Var x, const Params& p) {
             ops::HeadLoss(x, *p[0]);
             return Var();
           },
       .loss = true,
       .targets = {3, ops::kIgnoreIndex, 10, 0, 3, ops::kIgnoreIndex}});
}

}  // namespace
}  // namespace delink
