// The chunked head loss against its formula, at sizes that take several chunks.
#include "layers/ops/head_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "framework/base/at.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/numbers.h"
#include "tests/testing/visit_runner.h"

namespace delink::head_loss_test {
namespace {

using Values = std::vector<double>;
constexpr DeviceKind kCpu = DeviceKind::kCpu;

struct Expected {
  double loss = 0;
  double z = 0;
  int64_t tokens = 0;
  Values dx, dw;
};

Expected Formula(const Values& x, const Values& w,
                 const std::vector<int32_t>& targets, int64_t V, int64_t D,
                 double z_weight) {
  const auto N = static_cast<int64_t>(targets.size());
  Expected e{.dx = Values(x.size(), 0.0), .dw = Values(w.size(), 0.0)};
  Values p(static_cast<size_t>(V));
  for (int64_t n = 0; n < N; ++n) {
    if (targets[n] < 0) continue;
    double sum = 0;
    for (int64_t v = 0; v < V; ++v) {
      double logit = 0;
      for (int64_t d = 0; d < D; ++d) logit += x[n * D + d] * w[v * D + d];
      p[v] = std::exp(logit);
      sum += p[v];
    }
    e.loss += std::log(sum / p[targets[n]]);
    const double lse = std::log(sum);
    e.z += z_weight * lse * lse;
    ++e.tokens;
    for (int64_t v = 0; v < V; ++v) {
      const double g = p[v] / sum * (1.0 + 2.0 * z_weight * lse) -
                       (v == targets[n] ? 1.0 : 0.0);
      for (int64_t d = 0; d < D; ++d) {
        e.dx[n * D + d] += g * w[v * D + d];
        e.dw[v * D + d] += g * x[n * D + d];
      }
    }
  }
  return e;
}

TEST(HeadLoss, ChunksAreEvenAndBounded) {
  EXPECT_EQ(ops::HeadLossChunk(1, 50'304, DType::kF32, kCpu), 1);
  EXPECT_EQ(ops::HeadLossChunk(257, 50'304, DType::kF32, kCpu), 129);
  EXPECT_EQ(ops::HeadLossChunk(1024, 50'304, DType::kF32, kCpu), 256);
  EXPECT_EQ(ops::HeadLossChunk(1024, 1, DType::kF32, kCpu), 1024);
  EXPECT_LE(ops::HeadLossChunk(1 << 20, 2000, DType::kF32, kCpu) * 2000 * 4,
            8 << 20);
  // A GPU's are larger, planned or run.
  for (const DeviceKind cuda : {DeviceKind::kCuda, DeviceKind::kMetaCuda}) {
    EXPECT_EQ(ops::HeadLossChunk(65'536, 50'304, DType::kBF16, cuda), 9472);
  }
}

class HeadLossOfZ : public ::testing::TestWithParam<double> {};

TEST_P(HeadLossOfZ, SeveralChunksFollowTheFormula) {
  const double z_weight = GetParam();
  constexpr int64_t B = 2, T = 300, V = 5'003, D = 3;
  ASSERT_GT(B * T / ops::HeadLossChunk(B * T, V, DType::kF64, kCpu), 1);
  Values x = testing::Normals<double>("x", B * T * D);
  Values w = testing::Normals<double>("w", V * D);
  std::vector<int32_t> targets = testing::Integers("targets", B * T, V);
  targets[0] = targets[199] = targets[200] = targets[599] = ops::kIgnoreIndex;
  const Expected expected = Formula(x, w, targets, V, D, z_weight);

  Values dx(x.size()), dw(w.size());
  Param param;
  const auto bind = [&] {
    param.Bind(Tensor(w.data(), DType::kF64, {V, D}),
               Tensor(dw.data(), DType::kF64, {V, D}), false);
  };
  LossRecord loss;
  const VisitInputs inputs{.targets = targets.data(), .loss = &loss};
  const std::unique_ptr<Device> device = NewCpuDevice();
  testing::VisitRunner visit({.device = device.get(),
                              .memory = testing::MemoryMode::kPlanned,
                              .layer =
                                  [&](Var v) {
                                    ops::HeadLoss(v, param, z_weight);
                                    return Var();
                                  },
                              .x = {B, T, D},
                              .loss = true,
                              .bind = bind,
                              .inputs = inputs});
  // The plan holds no more than the gradient of x, one chunk of logits and the
  // losses of its rows.
  const int64_t chunk = ops::HeadLossChunk(B * T, V, DType::kF64, kCpu);
  const PhasePlan& record = At(visit.plan(), Phase::kRecord);
  EXPECT_LE(record.slot_bytes, AlignUp(B * T * D * 8));
  EXPECT_LE(record.workspace_bytes,
            AlignUp(chunk * ops::HeadLossPitch(V, DType::kF64) * 8) +
                AlignUp((z_weight > 0 ? 2 : 1) * chunk * 8));

  const Tensor input(x.data(), DType::kF64, {B, T, D});
  bind();
  visit.Forward(Phase::kRecord, inputs, input, Tensor());
  visit.Backward(Tensor(), Tensor(dx.data(), DType::kF64, {B, T, D}));
  EXPECT_NEAR(loss.loss_sum, expected.loss, 1e-10 * expected.loss);
  EXPECT_NEAR(loss.z_sum, expected.z, 1e-10 * expected.loss);
  EXPECT_EQ(loss.tokens, expected.tokens);
  EXPECT_LT(testing::NormError(dx, expected.dx), 1e-12);
  EXPECT_LT(testing::NormError(dw, expected.dw), 1e-12);

  // Without a backward to come: the same loss, added on.
  const double once = loss.loss_sum;
  visit.Forward(Phase::kEval, inputs, input, Tensor());
  EXPECT_NEAR(loss.loss_sum, 2 * once, 1e-10 * once);
  EXPECT_EQ(loss.tokens, 2 * expected.tokens);
}

// Of a vocabulary that is cut over ranks: for each row of a chunk its largest
// logit, the sum of exponentials and the target's logit, whatever the rank has;
// no logits. The memory is that of the rank's own.
TEST(HeadLoss, ExchangesThreeNumbersForEachRow) {
  constexpr int64_t B = 2, T = 300, V = 20'011, D = 3;
  constexpr int kRanks = 2;
  const int64_t chunk =
      ops::HeadLossChunk(B * T, V / kRanks + 1, DType::kF64, kCpu);
  ASSERT_GT(B * T, chunk);
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    const int64_t own = V / kRanks + rank;
    Values w(own * D), dw(w.size());
    Param param;
    const std::vector<int32_t> targets(B * T);
    LossRecord loss;
    testing::NotedGroup group(rank, kRanks);
    const std::unique_ptr<Device> device = NewCpuDevice();
    const testing::VisitRunner visit(
        {.device = device.get(),
         .memory = testing::MemoryMode::kPlanned,
         .layer =
             [&](Var v) {
               ops::HeadLoss(v, param, /*z_weight=*/0, V);
               return Var();
             },
         .x = {B, T, D},
         .loss = true,
         .bind =
             [&] {
               param.Bind(Tensor(w.data(), DType::kF64, {own, D}),
                          Tensor(dw.data(), DType::kF64, {own, D}), false);
             },
         .inputs = {.targets = targets.data(), .loss = &loss},
         .groups = {.tensor = &group}});
    std::vector<testing::Exchange> expected;
    for (int64_t row = 0; row < B * T; row += chunk) {
      const int64_t rows = std::min(chunk, B * T - row);
      for (const int64_t count : {rows, 2 * rows}) {
        expected.push_back({.kind = testing::Exchange::Kind::kAllReduce,
                            .count = count,
                            .dtype = DType::kF64});
      }
    }
    EXPECT_EQ(At(visit.exchanges(), Phase::kRecord), expected);
    EXPECT_EQ(At(visit.exchanges(), Phase::kEval), expected);
    EXPECT_EQ(At(visit.exchanges(), Phase::kBackward),
              std::vector<testing::Exchange>());
    EXPECT_LE(At(visit.plan(), Phase::kRecord).workspace_bytes,
              AlignUp(chunk * ops::HeadLossPitch(own, DType::kF64) * 8) +
                  AlignUp(chunk * 8) + AlignUp(3 * chunk * 8));
  }
}

INSTANTIATE_TEST_SUITE_P(Weight, HeadLossOfZ, ::testing::Values(0.0, 0.1));

}  // namespace
}  // namespace delink::head_loss_test
