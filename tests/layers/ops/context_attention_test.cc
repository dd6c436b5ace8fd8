// Attention over ranks that have parts of each row, which are threads: it is
// that of one rank that has all of it, as far as rounding goes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/at.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "framework/tensor/bfloat16.h"
#include "layers/ops/causal_attention.h"
#include "tests/testing/documents.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/numbers.h"
#include "tests/testing/visit_runner.h"

namespace delink::context_attention_test {
namespace {

using testing::Exchange;
using testing::MemoryMode;
using testing::NotedGroup;
using testing::VisitRunner;

struct Case {
  int64_t B = 2, T = 24, H = 4, Hkv = 2, Dh = 8, window = 0;
  std::vector<int32_t> documents = {};  // [B, T], or none
  double gain = 1;                      // of qkv: a power of two
  int64_t row() const { return (H + 2 * Hkv) * Dh; }
};

struct Options {
  int context = 1, tensor = 1;
  bool halves = false, remake = true;
  MemoryMode memory = MemoryMode::kPlanned;
};

// What a rank has of [B, T, columns]: some tokens, and of these some columns.
struct Part {
  std::vector<int64_t> tokens, columns;
};

// Of qkv, or of the output, whose heads are queries' alone.
Part PartOf(const Case& c, const Options& options, int rank, bool qkv) {
  Part part;
  const int context = rank / options.tensor, tensor = rank % options.tensor;
  const int64_t chunk = c.T / (2 * options.context);
  for (const int number : {context, 2 * options.context - 1 - context}) {
    for (int64_t t = 0; t < chunk; ++t) {
      part.tokens.push_back(number * chunk + t);
    }
  }
  const auto take = [&](int64_t first, int64_t heads) {
    const int64_t here = heads / options.tensor * c.Dh;
    for (int64_t i = 0; i < here; ++i) {
      part.columns.push_back(first * c.Dh + tensor * here + i);
    }
  };
  take(0, c.H);
  if (qkv) {
    take(c.H, c.Hkv);
    take(c.H + c.Hkv, c.Hkv);
  }
  return part;
}

// Calls visit(i, w): element i of the part is number w of [B, T, columns].
template <typename Visit>
void ForEach(const Case& c, const Part& part, int64_t columns, Visit visit) {
  int64_t i = 0;
  for (int64_t b = 0; b < c.B; ++b) {
    for (const int64_t t : part.tokens) {
      for (const int64_t column : part.columns) {
        visit(i++, (b * c.T + t) * columns + column);
      }
    }
  }
}

struct Result {
  std::vector<double> y, dx;
};

template <typename T>
constexpr DType DTypeOf() {
  return std::is_same_v<T, double> ? DType::kF64 : DType::kBF16;
}

template <typename T>
Tensor TensorOf(std::vector<T>& values, const Shape& shape) {
  return {values.data(), DTypeOf<T>(), shape};
}

// One rank's visit. Groups are null where it is alone.
template <typename T>
absl::Status RunRank(const Case& c, const Options& options, int rank,
                     NotedGroup* context, Result& result, Mutex& mutex) {
  const Part part = PartOf(c, options, rank, true);
  const Part out = PartOf(c, options, rank, false);
  const auto tokens = static_cast<int64_t>(part.tokens.size());
  const Shape x_shape{c.B, tokens, static_cast<int64_t>(part.columns.size())};
  const Shape y_shape{c.B, tokens, static_cast<int64_t>(out.columns.size())};
  const auto all_x = testing::Normals<BFloat16>("x", c.B * c.T * c.row());
  const auto all_dy = testing::Normals<BFloat16>("dy", c.B * c.T * c.H * c.Dh);
  std::vector<T> x(static_cast<size_t>(x_shape.elements())), dx(x),
      y(static_cast<size_t>(y_shape.elements())), dy(y);
  ForEach(c, part, c.row(), [&](int64_t i, int64_t w) {
    At(x, i) = static_cast<T>(c.gain * float{At(all_x, w)});
  });
  ForEach(c, out, c.H * c.Dh, [&](int64_t i, int64_t w) {
    At(dy, i) = static_cast<T>(float{At(all_dy, w)});
  });
  const VisitInputs inputs{
      .remake = options.remake,
      .documents = c.documents.empty() ? nullptr : c.documents.data(),
      .sequences = c.B};
  const auto device = NewCpuDevice();
  VisitRunner visit({.device = device.get(),
                     .memory = options.memory,
                     .layer =
                         [&](Var v) {
                           return ops::CausalAttention(v, c.H / options.tensor,
                                                       c.Hkv / options.tensor,
                                                       c.window);
                         },
                     .x = x_shape,
                     .x_dtype = DTypeOf<T>(),
                     .inputs = inputs,
                     .groups = {.context = context}});
  visit.Forward(Phase::kForward, inputs, TensorOf(x, x_shape),
                TensorOf(y, y_shape));
  const std::vector<T> first = y;
  visit.Forward(Phase::kRecord, inputs, TensorOf(x, x_shape),
                TensorOf(y, y_shape));
  if (context != nullptr) context->TakeNotes();
  if (options.halves) {
    visit.BackwardInput(TensorOf(dy, y_shape), TensorOf(dx, x_shape));
    visit.BackwardWeight();
  } else {
    visit.Backward(TensorOf(dy, y_shape), TensorOf(dx, x_shape));
  }
  if (context != nullptr) {
    DELINK_RETURN_IF_ERROR(context->status());
    std::vector<Exchange> expected;
    const int64_t count = c.B * tokens * 2 * c.Hkv / options.tensor * c.Dh;
    if (options.remake) {
      expected.push_back({Exchange::Kind::kAllGather, count, DTypeOf<T>()});
    }
    expected.push_back({Exchange::Kind::kReduceScatter, count, DTypeOf<T>()});
    EXPECT_EQ(context->TakeNotes(), expected);
  }
  const MutexLock lock(mutex);
  ForEach(c, part, c.row(), [&](int64_t i, int64_t w) {
    At(result.dx, w) = static_cast<double>(At(dx, i));
  });
  ForEach(c, out, c.H * c.Dh, [&](int64_t i, int64_t w) {
    EXPECT_EQ(static_cast<double>(At(first, i)), static_cast<double>(At(y, i)));
    At(result.y, w) = static_cast<double>(At(y, i));
  });
  return absl::OkStatus();
}

template <typename T>
Result Run(const Case& c, const Options& options) {
  Result result;
  result.y.resize(static_cast<size_t>(c.B * c.T * c.H * c.Dh));
  result.dx.resize(static_cast<size_t>(c.B * c.T * c.row()));
  Mutex mutex;
  const int ranks = options.context * options.tensor;
  const absl::Status status =
      RunRanks(ranks, [&](Communicator& comm) -> absl::Status {
        if (options.context == 1) {
          return RunRank<T>(c, options, comm.rank(), nullptr, result, mutex);
        }
        DELINK_ASSIGN_OR_RETURN(const auto split,
                                comm.Split(comm.rank() % options.tensor, 0));
        NotedGroup context(*split);
        return RunRank<T>(c, options, comm.rank(), &context, result, mutex);
      });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return result;
}

template <typename T>
void ExpectWhole(const Case& c, double tolerance) {
  const Result whole = Run<T>(c, {});
  for (const int ranks : {2, 4}) {
    for (const int tensor : {1, 2}) {
      for (const bool remake : {true, false}) {
        const bool halves = remake;
        SCOPED_TRACE(::testing::Message() << "context " << ranks << ", tensor "
                                          << tensor << ", remake " << remake);
        const Result cut = Run<T>(c, {.context = ranks,
                                      .tensor = tensor,
                                      .halves = halves,
                                      .remake = remake});
        EXPECT_LE(testing::NormError(cut.y, whole.y), tolerance);
        EXPECT_LE(testing::NormError(cut.dx, whole.dx), tolerance);
      }
    }
  }
}

// A sum of at most T products, rounded in another order.
constexpr double kF64 = 1e-14;

TEST(ContextAttention, IsThatOfWholeRows) { ExpectWhole<double>({}, kF64); }

TEST(ContextAttention, WithAHeadOfKeysForEachOfQueries) {
  ExpectWhole<double>({.B = 1, .T = 16, .H = 2, .Hkv = 2}, kF64);
}

// Of one token, across chunks, and of more than a chunk.
TEST(ContextAttention, WithinWindows) {
  for (const int64_t window : {1, 5, 14}) {
    SCOPED_TRACE(window);
    ExpectWhole<double>({.window = window}, kF64);
  }
}

// Documents begin in the middle of chunks, and some go over several.
TEST(ContextAttention, WithinDocuments) {
  ExpectWhole<double>({.documents = testing::Positions(2, 24, {7, 11, 1})},
                      kF64);
  ExpectWhole<double>(
      {.window = 4, .documents = testing::Positions(2, 24, {7, 11, 1})}, kF64);
}

// Scores of thousands, so that all but one weight of a row are nothing: what a
// rank has in its own chunks alone must not be taken for the largest.
TEST(ContextAttention, WithScoresFarApart) {
  const Case c{.T = 32, .gain = 64};
  ExpectWhole<double>(c, kF64);
  ExpectWhole<BFloat16>(c, 0.02);
}

// {of y, of dx} in bf16.
std::pair<double, double> Bf16Errors(const Case& c, const Result& exact,
                                     int context) {
  const Result found = Run<BFloat16>(c, {.context = context});
  return {testing::NormError(found.y, exact.y),
          testing::NormError(found.dx, exact.dx)};
}

// What one rank rounds once, a gradient of keys, is rounded by chunk, by rank
// and where ranks are added up.
void ExpectErrorsOfOneRank(const Case& c) {
  const double roundings = std::sqrt(3.0);
  const Result exact = Run<double>(c, {});
  const auto [y, dx] = Bf16Errors(c, exact, 1);
  for (const int context : {2, 4, 8}) {
    SCOPED_TRACE(context);
    const auto [cut_y, cut_dx] = Bf16Errors(c, exact, context);
    EXPECT_LE(cut_y, 1.1 * y);
    EXPECT_LE(cut_dx, roundings * dx);
  }
}

// Gradients of keys are sums over more and more ranks.
TEST(ContextAttention, ErrorsInBf16DoNotGrowWithRanks) {
  ExpectErrorsOfOneRank({.T = 64});
}

// Gradients of keys are rounded by chunk and by rank before they are added.
TEST(ContextAttention, InBf16) { ExpectWhole<BFloat16>({}, 0.02); }

}  // namespace
}  // namespace delink::context_attention_test
