// Activations of which each rank has its own rows, and products that want all.
#include "layers/ops/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "framework/base/at.h"
#include "layers/ops/add.h"
#include "layers/ops/causal_attention.h"
#include "layers/ops/gelu.h"
#include "layers/ops/kernels_of.h"
#include "tests/testing/cut_layer.h"
#include "tests/testing/gradcheck.h"

namespace delink::rows_test {
namespace {

using testing::CutCase;
using testing::CutOptions;
using testing::CutResult;
using testing::MemoryMode;
using testing::RunCut;

constexpr int64_t kB = 2, kT = 6, kD = 5;

CutCase CaseOf(testing::VisitRunner::Layer layer) {
  return {.build = [layer](const Scope&) { return layer; },
          .B = kB,
          .T = kT,
          .D = kD};
}

// Half of what neighbours are apart, where they are near 1.
double Unit(DType dtype) {
  if (dtype == DType::kBF16) return 0x1p-9;
  return dtype == DType::kF32 ? 0x1p-24 : 0x1p-53;
}

// So many equal numbers added up: each addition may round.
void ExpectTimes(int ranks, const CutResult& all, const CutResult& one,
                 DType dtype) {
  const auto times = [&](std::vector<double> values) {
    for (double& value : values) value *= ranks;
    return values;
  };
  const double tolerance = (ranks - 1) * Unit(dtype);
  EXPECT_LE(testing::NormError(all.y, times(one.y)), tolerance);
  EXPECT_LE(testing::NormError(all.dx, times(one.dx)), tolerance);
}

void ForEachWay(const CutCase& c,
                const std::function<void(const CutOptions&)>& expect) {
  for (const int ranks : {2, 4}) {
    for (const bool sequence : {false, true}) {
      for (const DType dtype : {DType::kF64, DType::kBF16}) {
        for (const bool remake : {true, false}) {
          for (const bool halves : {false, true}) {
            SCOPED_TRACE(::testing::Message()
                         << ranks << " ranks, sequence " << sequence << ", "
                         << ToString(dtype) << ", remake " << remake
                         << ", halves " << halves);
            expect({.ranks = ranks,
                    .sequence = sequence,
                    .dtype = dtype,
                    .memory = MemoryMode::kPlanned,
                    .halves = halves,
                    .remake = remake});
          }
        }
      }
    }
  }
}

// What every rank makes of all rows, added up, is so many times what one does.
TEST(Rows, AreGatheredAndSummed) {
  const CutCase cut = CaseOf([](Var x) {
    // Read by GELU's backward, which has it made again.
    const Var all = ops::GatherRows(x);
    EXPECT_EQ(all.shape(), (Shape{kB, kT, kD}));
    return ops::ScatterRows(ops::Gelu(all, GeluForm::kErf));
  });
  const CutCase whole =
      CaseOf([](Var x) { return ops::Gelu(x, GeluForm::kErf); });
  ForEachWay(cut, [&](const CutOptions& options) {
    ExpectTimes(options.ranks, RunCut(cut, options),
                RunCut(whole, {.dtype = options.dtype}), options.dtype);
  });
}

// As many numbers as ranks do not divide.
TEST(Rows, AreSummedWhateverTheirNumber) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const int64_t tokens : {1, 3}) {
      CutCase cut = CaseOf([](Var x) {
        return ops::ScatterRows(ops::Gelu(ops::GatherRows(x), GeluForm::kErf));
      });
      CutCase whole =
          CaseOf([](Var x) { return ops::Gelu(x, GeluForm::kErf); });
      cut.B = whole.B = 1;
      cut.T = whole.T = tokens;
      ExpectTimes(4, RunCut(cut, {.ranks = 4, .dtype = dtype}),
                  RunCut(whole, {.dtype = dtype}), dtype);
    }
  }
}

// The gradient of what is gathered may have come to more than one, and what is
// gathered may be the visit's input or be made again itself.
TEST(Rows, HaveGradientsBesideOthers) {
  const CutCase cut = CaseOf([](Var x) {
    const Var y = ops::Gelu(x, GeluForm::kTanh);
    const Var all = ops::GatherRows(y);
    const Var sum =
        ops::ScatterRows(ops::Gelu(all, GeluForm::kErf) +
                         ops::Gelu(ops::GatherRows(x), GeluForm::kErf));
    return (x + y) + sum;
  });
  ForEachWay(cut, [&](const CutOptions& options) {
    const double n = options.ranks;
    const CutCase whole = CaseOf([n](Var x) {
      const Var y = ops::Gelu(x, GeluForm::kTanh);
      Var sum = x + y;
      for (int i = 0; i < n; ++i) {
        sum =
            sum + (ops::Gelu(y, GeluForm::kErf) + ops::Gelu(x, GeluForm::kErf));
      }
      return sum;
    });
    // Up to a dozen additions on each side, each rounded.
    ExpectSame(RunCut(cut, options), RunCut(whole, {.dtype = options.dtype}),
               2 * 12 * Unit(options.dtype));
  });
}

// Each rank's own rows alone are kept where all can be gathered again.
TEST(Rows, AreKeptOnceAcrossRanks) {
  const auto slot = [](bool sequence, bool remake) {
    const std::unique_ptr<Device> device = NewCpuDevice();
    testing::NotedGroup four(1, 4);
    testing::VisitRunner visit(
        {.device = device.get(),
         .memory = MemoryMode::kPlanned,
         .layer =
             [](Var x) {
               const Var y = ops::ScatterRows(ops::GatherRows(x));
               return ops::ScatterRows(
                   ops::Gelu(ops::GatherRows(y), GeluForm::kErf));
             },
         .x = sequence ? Shape{1, 16, 8} : Shape{4, 16, 8},
         .inputs = {.remake = remake, .sequences = 4},
         .groups = {.tensor = &four, .sequence = sequence}});
    return At(visit.plan(), Phase::kRecord).slot_bytes;
  };
  constexpr int64_t kAll = 64 * 8 * 8;
  EXPECT_EQ(slot(true, true), kAll / 4);
  EXPECT_EQ(slot(true, false), kAll);
}

// An op that makes tokens of several others would make them of some of these.
TEST(Rows, OfOneRankAreNotForOpsThatMixTokens) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  testing::NotedGroup two(0, 2);
  std::vector<double> x(kT * 3 * kD);
  const auto attend = [&](bool gather) {
    testing::VisitRunner visit({.device = device.get(),
                                .layer =
                                    [gather](Var v) {
                                      if (gather) v = ops::GatherRows(v);
                                      return ops::CausalAttention(v, 1, 1);
                                    },
                                .groups = {.tensor = &two, .sequence = true}});
    visit.Forward(Phase::kForward, {.sequences = 2},
                  Tensor(x.data(), DType::kF64, {1, kT, 3 * kD}), Tensor());
    return visit.output().shape();
  };
  EXPECT_EQ(attend(true), (Shape{2, kT, kD}));
  EXPECT_DEATH(attend(false),
               "attention is given a rank's own rows and does not say");
}

// Forward only.
Var Flagged(Var x, bool by_token, bool own_rows) {
  const Var y = x.tape().Output(x.shape(), x.dtype());
  x.tape().Record({.name = "flagged",
                   .inputs = {x},
                   .outputs = {y},
                   .by_token = by_token,
                   .own_rows = own_rows});
  return y;
}

// Whether an op takes them and whether it goes by token are two questions.
TEST(Rows, OfOneRankAreForOpsThatTakeThem) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  testing::NotedGroup two(0, 2);
  std::vector<double> x(kT * kD);
  for (const bool by_token : {false, true}) {
    for (const bool own_rows : {false, true}) {
      SCOPED_TRACE(::testing::Message() << by_token << ", " << own_rows);
      const auto run = [&](bool gather) {
        testing::VisitRunner visit(
            {.device = device.get(),
             .layer =
                 [&](Var v) {
                   return Flagged(gather ? ops::GatherRows(v) : v, by_token,
                                  own_rows);
                 },
             .groups = {.tensor = &two, .sequence = true}});
        visit.Forward(Phase::kForward, {.sequences = 2},
                      Tensor(x.data(), DType::kF64, {1, kT, kD}), Tensor());
        EXPECT_EQ(visit.tape().by_token(), by_token);
      };
      run(/*gather=*/true);
      if (own_rows) {
        run(/*gather=*/false);
      } else {
        EXPECT_DEATH(run(/*gather=*/false),
                     "flagged is given a rank's own rows and does not say that "
                     "it takes them .OpRecord::own_rows.: it is to take all "
                     "rows .ops::GatherRows.");
      }
    }
  }
}

constexpr int64_t kCapacity = 3;

double* Row(const Tensor& x, int64_t row) {
  return static_cast<double*>(x.data()) + row * x.dim(-1);
}

// Calls visit(i, token) for each of the rows [kCapacity, D] that has a token.
template <typename Visit>
void ForEachRow(const Tape& tape, const Tensor& tokens, Visit visit) {
  if (tape.device().kind() == DeviceKind::kMeta) return;
  const auto* const of = static_cast<const int32_t*>(tokens.data());
  for (int64_t i = 0; i < kCapacity; ++i) {
    if (of[i] >= 0) visit(i, of[i]);
  }
}

// The first kCapacity tokens of all ranks whose first number is positive, as
// rows [kCapacity, D] of their own: those of this rank, and zeros. `tokens`
// [kCapacity]: where they are in x, or -1.
struct Dispatched {
  Var rows, tokens;
};
Dispatched Dispatch(Var x) {
  Tape& tape = x.tape();
  const int64_t N = ops::RowsOf(x.shape()), D = x.dim(-1);
  VisitGroup* const group =
      tape.groups().sequence ? tape.groups().tensor : nullptr;
  const int ranks = group != nullptr ? group->size() : 1;
  const int rank = group != nullptr ? group->rank() : 0;
  const Tensor wanted = tape.Scratch({ranks}, DType::kF64);
  const Var rows = tape.Output({kCapacity, D}, x.dtype());
  const Var tokens = tape.Output({kCapacity}, DType::kI32);
  const bool meta = tape.device().kind() == DeviceKind::kMeta;
  const auto wants = [&](int64_t t) { return Row(x.value(), t)[0] > 0; };
  auto* const counts = static_cast<double*>(wanted.data());
  for (int64_t t = 0; !meta && t < N; ++t) {
    if (t == 0) counts[rank] = 0;
    counts[rank] += wants(t) ? 1 : 0;
  }
  if (group != nullptr) group->AllGather(counts, 1, DType::kF64);
  if (!meta) {
    std::fill_n(Row(rows.value(), 0), kCapacity * D, 0.0);
    auto* const of = static_cast<int32_t*>(tokens.data());
    std::fill_n(of, kCapacity, -1);
    double before = std::accumulate(counts, counts + rank, 0.0);
    int64_t taken = 0;
    for (int32_t t = 0; t < N && before < kCapacity; ++t) {
      if (!wants(t)) continue;
      ++before;
      std::copy_n(Row(x.value(), t), D, Row(rows.value(), taken));
      of[taken++] = t;
    }
  }
  tape.Record({.name = "dispatch",
               .inputs = {x},
               .outputs = {rows, tokens},
               .saves = {tokens},
               .own_rows = true,
               .input = [=](Backward& back) {
                 const Tensor dx = back.NewGrad(x), drows = back.grad(rows);
                 back.device().FillZero(back.stream(), dx.data(), dx.bytes());
                 ForEachRow(x.tape(), tokens.value(),
                            [&](int64_t i, int64_t t) {
                              std::copy_n(Row(drows, i), D, Row(dx, t));
                            });
               }});
  return {rows, tokens};
}

// x, and on the tokens that have rows those added.
Var Combine(Var x, const Dispatched& d) {
  Tape& tape = x.tape();
  const int64_t D = x.dim(-1);
  const Var y = tape.Output(x.shape(), x.dtype());
  tape.device().Copy(tape.stream(), y.data(), x.data(), x.value().bytes());
  ForEachRow(tape, d.tokens.value(), [&](int64_t i, int64_t t) {
    for (int64_t j = 0; j < D; ++j) {
      Row(y.value(), t)[j] += Row(d.rows.value(), i)[j];
    }
  });
  tape.Record(
      {.name = "combine",
       .inputs = {x, d.rows},
       .outputs = {y},
       .saves = {d.tokens},
       .own_rows = true,
       .input = [=](Backward& back) {
         const Tensor drows = back.NewGrad(d.rows), dy = back.grad(y);
         back.device().FillZero(back.stream(), drows.data(), drows.bytes());
         ForEachRow(x.tape(), d.tokens.value(), [&](int64_t i, int64_t t) {
           std::copy_n(Row(dy, t), D, Row(drows, i));
         });
         back.PassGrad(y, x);
       }});
  return y;
}

// Ops that take a rank's own rows though a token's output depends on others'.
// Between them is an op by token, whose rows are no tokens.
TEST(Rows, OfOneRankCompeteForACapacity) {
  const CutCase c = CaseOf([](Var x) {
    const Dispatched d = Dispatch(x);
    return Combine(x, {ops::Gelu(d.rows, GeluForm::kErf), d.tokens});
  });
  const CutResult whole = RunCut(c, {});
  for (const int ranks : {2, 4}) {
    for (const bool halves : {false, true}) {
      testing::ExpectSame(RunCut(c, {.ranks = ranks,
                                     .sequence = true,
                                     .memory = MemoryMode::kPlanned,
                                     .halves = halves}),
                          whole, 0);
    }
  }
}

TEST(Rows, OfOneRankAreTheValueItself) {
  const CutCase c = CaseOf([](Var x) {
    EXPECT_EQ(ops::GatherRows(x).data(), x.data());
    EXPECT_EQ(ops::ScatterRows(x).data(), x.data());
    return ops::Gelu(ops::ScatterRows(ops::GatherRows(x)), GeluForm::kErf);
  });
  EXPECT_EQ(RunCut(c, {}).y.size(), static_cast<size_t>(kB * kT * kD));
}

}  // namespace
}  // namespace delink::rows_test
