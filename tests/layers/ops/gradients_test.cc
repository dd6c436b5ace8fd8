// Every op against central differences.
#include <gtest/gtest.h>

#include "layers/ops/add.h"
#include "layers/ops/causal_attention.h"
#include "layers/ops/dropout.h"
#include "layers/ops/embedding_lookup.h"
#include "layers/ops/gelu.h"
#include "layers/ops/head_loss.h"
#include "layers/ops/linear.h"
#include "layers/ops/norm.h"
#include "layers/ops/qk_norm.h"
#include "layers/ops/rotary.h"
#include "layers/ops/swiglu.h"
#include "tests/testing/documents.h"
#include "tests/testing/gradcheck.h"

namespace delink::gradients_test {
namespace {

using testing::ExpectGradients;
using testing::Positions;
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

// As a block has it: the stream goes on beside what becomes of its norm.
TEST(Gradients, SumAndLayerNorm) {
  for (const int64_t width : {2, 7, 16}) {
    const double eps = width > 2 ? 1e-5 : 0.5;
    ExpectGradients({.x = {2, 3, width},
                     .params = {{width}, {width}},
                     .op = [eps](Var x, const Params& p) {
                       const auto [sum, norm] = ops::AddLayerNorm(
                           x, ops::Gelu(x, GeluForm::kErf), *p[0], *p[1], eps);
                       return sum + ops::Gelu(norm, GeluForm::kErf);
                     }});
  }
}

TEST(Gradients, SumAndRmsNorm) {
  for (const int64_t width : {1, 7, 16}) {
    ExpectGradients({.x = {2, 3, width},
                     .params = {{width}},
                     .op = [](Var x, const Params& p) {
                       const auto [sum, norm] = ops::AddRmsNorm(
                           x, ops::Gelu(x, GeluForm::kErf), *p[0], 1e-2);
                       return sum + ops::Gelu(norm, GeluForm::kErf);
                     }});
  }
}

// The gradient of x has arrived, alone or in memory that is another's too, or
// arrives later.
TEST(Gradients, ANormAddsToTheGradientOfItsInput) {
  ExpectGradients(
      {.x = {2, 3, 7}, .params = {{7}, {7}}, .op = [](Var x, const Params& p) {
         const Var y = ops::Gelu(x, GeluForm::kErf);
         const Var late = ops::Gelu(y, GeluForm::kTanh);
         const Var norm = ops::LayerNorm(y, *p[0], *p[1], 1e-5);
         const Var again = ops::LayerNorm(y, *p[0], *p[1], 1e-5);
         return (y + (late + norm)) + (y + again);
       }});
  ExpectGradients(
      {.x = {2, 3, 7}, .params = {{7}}, .op = [](Var x, const Params& p) {
         const Var norm = ops::RmsNorm(x, *p[0], 1e-2);
         return x + ops::RmsNorm(x + norm, *p[0], 1e-2);
       }});
}

TEST(Gradients, LinearGelu) {
  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
    ExpectGradients({.x = {2, 3, 5},
                     .params = {{7, 5}, {7}, {4, 7}, {4}},
                     .op = [form](Var x, const Params& p) {
                       return ops::Linear(ops::LinearGelu(x, *p[0], p[1], form),
                                          *p[2], p[3]);
                     }});
    // Whoever else reads the value or what GELU is taken of.
    ExpectGradients(
        {.x = {2, 5},
         .params = {{5, 5}, {5, 5}},
         .op = [form](Var x, const Params& p) {
           const ops::Activated y = ops::LinearGelu(x, *p[0], nullptr, form);
           return (ops::Linear(y, *p[1], nullptr) + y.value) + y.pre;
         }});
  }
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

TEST(Gradients, AttentionWithinAWindow) {
  for (const int64_t window : {1, 2, 6, 7, 20}) {
    SCOPED_TRACE(window);
    ExpectGradients(
        {.x = {2, 7, (4 + 2 * 2) * 2}, .op = [window](Var x, const Params&) {
           return ops::CausalAttention(x, 4, 2, window);
         }});
  }
}

TEST(Gradients, AttentionWithinDocuments) {
  for (const std::vector<int64_t>& lengths :
       std::vector<std::vector<int64_t>>{{1}, {3, 1, 5}, {6, 1}, {20}}) {
    for (const int64_t window : {0, 2}) {
      SCOPED_TRACE(lengths[0]);
      ExpectGradients({.x = {2, 7, (4 + 2 * 2) * 2},
                       .op =
                           [window](Var x, const Params&) {
                             return ops::CausalAttention(x, 4, 2, window);
                           },
                       .positions = Positions(2, 7, lengths)});
    }
  }
}

TEST(Gradients, PositionsWithinDocuments) {
  const RotaryAngles angles = ops::RotaryFrequencies({.dim = 4, .base = 10});
  ExpectGradients(
      {.x = {2, 5, (2 + 2 * 1) * 4},
       .op = [&](Var x,
                 const Params&) { return ops::Rotary(x + x, 2, 1, angles); },
       .positions = Positions(2, 5, {2, 1, 4})});
  ExpectGradients({.x = {2, 5},
                   .params = {{7, 3}, {6, 3}},
                   .op =
                       [](Var x, const Params& p) {
                         return ops::EmbeddingLookup(x, *p[0], p[1]);
                       },
                   .tokens = {0, 6, 2, 2, 1, 5, 0, 0, 3, 4},
                   .positions = Positions(2, 5, {2, 1, 4})});
}

TEST(Gradients, SwiGlu) {
  for (const int64_t width : {2, 6, 16}) {
    ExpectGradients({.x = {2, 3, width}, .op = [](Var x, const Params&) {
                       return ops::SwiGlu(x);
                     }});
  }
}

TEST(Gradients, Rotary) {
  for (const RotaryPairing pairing :
       {RotaryPairing::kHalf, RotaryPairing::kInterleaved}) {
    for (const int64_t turned : {2, 4, 6}) {
      const RotaryAngles angles = ops::RotaryFrequencies(
          {.dim = turned, .base = 10, .pairing = pairing});
      ExpectGradients({.x = {2, 3, (2 + 2 * 1) * 6},
                       .op =
                           [&](Var x, const Params&) {
                             return ops::Rotary(x + x, 2, 1, angles);
                           },
                       .first_position = 3});
      // As in a model, where attention saves the result.
      ExpectGradients({.x = {2, 5, 4},
                       .params = {{(2 + 2 * 1) * 6, 4}},
                       .op = [&](Var x, const Params& p) {
                         const Var qkv = ops::Linear(x, *p[0], nullptr);
                         return ops::CausalAttention(
                             ops::Rotary(qkv, 2, 1, angles), 2, 1, 3);
                       }});
    }
  }
}

TEST(Gradients, QkNorm) {
  const RotaryAngles angles = ops::RotaryFrequencies({.dim = 4, .base = 10});
  ExpectGradients({.x = {2, 3, (2 + 2 * 1) * 4},
                   .params = {{4}, {4}},
                   .op = [](Var x, const Params& p) {
                     return ops::QkNorm(
                         x, {.heads = 2, .kv_heads = 1, .eps = 1e-2}, *p[0],
                         *p[1]);
                   }});
  ExpectGradients(
      {.x = {2, 3, (3 + 2 * 3) * 4},
       .params = {{4}, {4}},
       .op = [&](Var x, const Params& p) {
         const Var y = ops::QkNorm(x, {.heads = 3, .kv_heads = 3, .eps = 1e-2},
                                   *p[0], *p[1]);
         return ops::CausalAttention(ops::Rotary(y, 3, 3, angles), 3, 3);
       }});
}

TEST(Gradients, HeadLossWithZLoss) {
  ExpectGradients(
      {.x = {2, 3, 4},
       .params = {{11, 4}},
       .op =
           [](Var x, const Params& p) {
             ops::HeadLoss(x, *p[0], 0.3);
             return Var();
           },
       .loss = true,
       .targets = {3, ops::kIgnoreIndex, 10, 0, 3, ops::kIgnoreIndex}});
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
}  // namespace delink::gradients_test
