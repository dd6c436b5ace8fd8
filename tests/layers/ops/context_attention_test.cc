// Attention over ranks that have parts of each row, which are threads: it is
// that of one rank that has all of it, as far as rounding goes. With heads that
// are cut over ranks besides: cut_test.cc of layers/modules.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "layers/ops/add.h"
#include "layers/ops/causal_attention.h"
#include "tests/testing/cut_layer.h"
#include "tests/testing/documents.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/noted_group.h"
#include "tests/testing/visit_runner.h"

namespace delink::context_attention_test {
namespace {

using testing::CutCase;
using testing::CutResult;
using testing::Exchange;
using testing::MemoryMode;
using testing::RunCut;
using testing::VisitRunner;

struct Case {
  int64_t B = 2, T = 24, H = 4, Hkv = 2, Dh = 8, window = 0;
  std::vector<int32_t> documents = {};  // [B, T], or none
  int doublings = 0;                    // of qkv
  int64_t row() const { return (H + 2 * Hkv) * Dh; }
};

VisitRunner::Layer AttentionOf(const Case& c) {
  return [c](Var x) {
    for (int i = 0; i < c.doublings; ++i) x = x + x;
    return ops::CausalAttention(x, c.H, c.Hkv, c.window);
  };
}

CutCase CutOf(const Case& c) {
  return {.build = [c](const Scope&) { return AttentionOf(c); },
          .B = c.B,
          .T = c.T,
          .D = c.row(),
          .positions = c.documents,
          .documents = c.documents};
}

void ExpectWhole(const Case& c, DType dtype, double tolerance) {
  const CutCase cut = CutOf(c);
  const CutResult whole = RunCut(cut, {.dtype = dtype});
  for (const int ranks : {2, 4}) {
    for (const bool remake : {true, false}) {
      SCOPED_TRACE(::testing::Message()
                   << "context " << ranks << ", remake " << remake);
      ExpectSame(RunCut(cut, {.context = ranks,
                              .dtype = dtype,
                              .memory = MemoryMode::kPlanned,
                              .halves = remake,
                              .remake = remake}),
                 whole, tolerance);
    }
  }
}

// A sum of at most T products, rounded in another order.
void ExpectWhole(const Case& c) { ExpectWhole(c, DType::kF64, 1e-14); }

TEST(ContextAttention, IsThatOfWholeRows) { ExpectWhole({}); }

TEST(ContextAttention, WithAHeadOfKeysForEachOfQueries) {
  ExpectWhole({.B = 1, .T = 16, .H = 2, .Hkv = 2});
}

// Of one token, across chunks, and of more than a chunk.
TEST(ContextAttention, WithinWindows) {
  for (const int64_t window : {1, 5, 14}) {
    SCOPED_TRACE(window);
    ExpectWhole({.window = window});
  }
}

// Documents begin in the middle of chunks, and some go over several.
TEST(ContextAttention, WithinDocuments) {
  const std::vector<int32_t> documents = testing::Positions(2, 24, {7, 11, 1});
  ExpectWhole({.documents = documents});
  ExpectWhole({.window = 4, .documents = documents});
}

// Scores of thousands, so that all but one weight of a row are nothing: what a
// rank has in its own chunks alone must not be taken for the largest.
TEST(ContextAttention, WithScoresFarApart) {
  const Case c{.T = 32, .doublings = 6};
  ExpectWhole(c);
  ExpectWhole(c, DType::kBF16, 0.02);
}

// Gradients of keys are sums over more and more ranks: what one rank rounds
// once is rounded by chunk, by rank and where ranks are added up.
TEST(ContextAttention, ErrorsInBf16DoNotGrowWithRanks) {
  const CutCase c = CutOf({.T = 64});
  const CutResult exact = RunCut(c, {});
  const auto errors = [&](int context) {
    const CutResult found =
        RunCut(c, {.context = context, .dtype = DType::kBF16});
    return std::pair{testing::NormError(found.y, exact.y),
                     testing::NormError(found.dx, exact.dx)};
  };
  const auto [y, dx] = errors(1);
  for (const int context : {2, 4, 8}) {
    SCOPED_TRACE(context);
    const auto [cut_y, cut_dx] = errors(context);
    EXPECT_LE(cut_y, 1.1 * y);
    EXPECT_LE(cut_dx, std::sqrt(3.0) * dx);
  }
}

// Gradients of keys are rounded by chunk and by rank before they are added.
TEST(ContextAttention, InBf16) { ExpectWhole({}, DType::kBF16, 0.02); }

// Keys and values alone, and those that are not kept once more.
TEST(ContextAttention, ExchangesKeysAndValues) {
  const Case c;
  const int64_t tokens = c.T / 2, count = c.B * tokens * 2 * c.Hkv * c.Dh;
  const Shape shape{c.B, tokens, c.row()}, out{c.B, tokens, c.H * c.Dh};
  std::vector<double> x(static_cast<size_t>(shape.elements()), 0.5), dx(x),
      y(static_cast<size_t>(out.elements())), dy(y);
  const auto tensor = [](std::vector<double>& values, const Shape& of) {
    return Tensor(values.data(), DType::kF64, of);
  };
  for (const bool remake : {true, false}) {
    testing::NotedGroup group(1, 2);
    const std::unique_ptr<Device> device = NewCpuDevice();
    const VisitInputs inputs{.remake = remake, .sequences = c.B};
    VisitRunner visit({.device = device.get(),
                       .memory = MemoryMode::kPlanned,
                       .layer = AttentionOf(c),
                       .x = shape,
                       .inputs = inputs,
                       .groups = {.context = &group}});
    visit.Forward(Phase::kRecord, inputs, tensor(x, shape), tensor(y, out));
    group.TakeNotes();
    visit.Backward(tensor(dy, out), tensor(dx, shape));
    std::vector<Exchange> expected;
    if (remake) {
      expected.push_back({Exchange::Kind::kAllGather, count, DType::kF64});
    }
    expected.push_back({Exchange::Kind::kReduceScatter, count, DType::kF64});
    EXPECT_EQ(group.TakeNotes(), expected) << remake;
  }
}

}  // namespace
}  // namespace delink::context_attention_test
