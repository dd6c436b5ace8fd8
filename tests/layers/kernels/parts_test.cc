// Calls for a part of what one call can do, as ranks make them that share a
// row, a table or a vocabulary: the reference's parts against its whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/layers/kernels/calls.h"
#include "tests/layers/kernels/reference.h"
#include "tests/testing/documents.h"

namespace delink::testing::parts_test {
namespace {

class Parts : public Reference {
 protected:
  // Of two samples of T tokens, from position 2 on.
  DropoutArgs DropoutOf(int64_t T, int64_t D, const Vector& x, Vector& y) {
    return {.B = 2,
            .T = T,
            .D = D,
            .rate = 0.4,
            .step_key = &key_,
            .name_hash = 7,
            .sample = samples_.data(),
            .first_position = 2,
            .x = x.data(),
            .y = y.data()};
  }

  RngKey key_ = KeyFromSeed(4);
  std::vector<int64_t> samples_ = {3, 9'000'000'000};
};

Vector Slice(const Vector& values, int64_t first, int64_t count) {
  return {values.begin() + first, values.begin() + first + count};
}

// Rows 4 .. 9 of 2 x 7, and a sample whose tokens stand in two stretches.
TEST_F(Parts, OfDropoutAreThoseOfAllTokens) {
  constexpr int64_t B = 2, T = 7, D = 5;
  const Vector x(B * 20 * D, 1.0);
  Vector whole(B * T * D), rows(6 * D);
  DropoutArgs args = DropoutOf(T, D, x, whole);
  kernels_.dropout(stream_, args);
  args.first_row = 4;
  args.rows = 6;
  args.y = rows.data();
  kernels_.dropout(stream_, args);
  EXPECT_EQ(rows, Slice(whole, 4 * D, 6 * D));
  EXPECT_GT(std::count(rows.begin(), rows.end(), 0.0), 0);

  Vector longer(B * 20 * D), zigzag(B * T * D);
  args.first_row = 0;
  args.rows = -1;
  args.first_position = 0;
  args.T = 20;
  args.y = longer.data();
  kernels_.dropout(stream_, args);
  const std::vector<int32_t> places = {2, 3, 4, 15, 16, 17, 18};
  args.T = T;
  args.places = places.data();
  args.y = zigzag.data();
  kernels_.dropout(stream_, args);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < T; ++t) {
      EXPECT_EQ(Slice(zigzag, (b * T + t) * D, D),
                Slice(longer, (b * 20 + places[t]) * D, D));
    }
  }
}

// Columns 3 .. 8 and 10 .. 12 of 13, beside each other, of some rows.
TEST_F(Parts, OfDropoutHaveTheMaskOfTheirColumns) {
  constexpr int64_t B = 2, T = 7, D = 13, kFirst = 4, kRows = 6, kHere = 9;
  const Vector x(B * T * D, 1.0);
  Vector whole(B * T * D), here(kRows * kHere), expected;
  DropoutArgs args = DropoutOf(T, D, x, whole);
  kernels_.dropout(stream_, args);
  args.first_row = kFirst;
  args.rows = kRows;
  args.width = D;
  args.pitch = kHere;
  args.D = 6;
  args.first_column = 3;
  args.y = here.data();
  kernels_.dropout(stream_, args);
  args.D = 3;
  args.first_column = 10;
  args.y = here.data() + 6;
  kernels_.dropout(stream_, args);
  for (int64_t row = kFirst; row < kFirst + kRows; ++row) {
    for (const auto& [first, count] : {std::pair{3, 6}, std::pair{10, 3}}) {
      const Vector piece = Slice(whole, row * D + first, count);
      expected.insert(expected.end(), piece.begin(), piece.end());
    }
  }
  EXPECT_EQ(here, expected);
  EXPECT_GT(std::count(here.begin(), here.end(), 0.0), 0);
}

TEST_F(Parts, OfATableAddUpToTheWhole) {
  constexpr int64_t N = 40, D = 3, V = 11;
  const std::vector<int32_t> tokens = Integers("tokens", N, V);
  const Vector w = Normals<double>("w", V * D);
  const Vector dy = Normals<double>("dy", N * D);
  // What rows [first, first + count) make of the tokens, and their gradient.
  const auto run = [&](int64_t first, int64_t count) {
    std::pair<Vector, Vector> made{Vector(N * D), Vector(count * D)};
    kernels_.embedding_forward(stream_, {.B = 4,
                                         .T = N / 4,
                                         .D = D,
                                         .V = count,
                                         .tokens = tokens.data(),
                                         .w = w.data() + first * D,
                                         .y = made.first.data(),
                                         .first_token = first,
                                         .partial = count < V});
    kernels_.embedding_backward_weight(stream_, {.N = N,
                                                 .D = D,
                                                 .V = count,
                                                 .tokens = tokens.data(),
                                                 .dy = dy.data(),
                                                 .dw = made.second.data(),
                                                 .first_token = first,
                                                 .partial = count < V});
    return made;
  };
  const auto [y, dw] = run(0, V);
  Vector sum(N * D), joined;
  for (const int64_t first : {0, 4, 7}) {
    const auto [some, gradient] = run(first, first == 4 ? 3 : 4);
    for (int64_t i = 0; i < N * D; ++i) sum[i] += some[i];
    joined.insert(joined.end(), gradient.begin(), gradient.end());
  }
  EXPECT_EQ(sum, y);
  EXPECT_EQ(joined, dw);
}

// Maxima and sums of three pieces make the loss and the gradients of the whole.
TEST_F(Parts, OfAVocabularyHaveTheLossOfTheWhole) {
  constexpr int64_t N = 5, V = 9;
  constexpr double kWeight = 0.3;
  const int64_t cuts[] = {0, 4, 4, 9};
  const std::vector<int32_t> targets = {3, 4, -1, 0, 8};
  const Vector logits = Normals<double>("logits", N * V, 4.0);
  Vector row_loss(N), row_z(N), whole = logits, parts = logits;
  double loss = 0, z = 0, part_loss = 0, part_z = 0;
  int64_t count = 0, part_count = 0;
  kernels_.cross_entropy(stream_, {.N = N,
                                   .V = V,
                                   .ld = V,
                                   .logits = whole.data(),
                                   .targets = targets.data(),
                                   .ignore_index = -1,
                                   .want_grad = true,
                                   .row_loss = row_loss.data(),
                                   .loss_sum = &loss,
                                   .count = &count,
                                   .z_weight = kWeight,
                                   .row_z = row_z.data(),
                                   .z_sum = &z});
  Vector max(N, -1e300), sums(2 * N);
  for (int i = 0; i < 3; ++i) {
    Vector mine(N);
    kernels_.vocab_max(stream_, {.N = N,
                                 .V = cuts[i + 1] - cuts[i],
                                 .ld = V,
                                 .logits = parts.data() + cuts[i],
                                 .max = mine.data()});
    for (int64_t n = 0; n < N; ++n) max[n] = std::max(max[n], mine[n]);
  }
  for (int i = 0; i < 3; ++i) {
    Vector mine(2 * N);
    kernels_.vocab_sums(stream_, {.N = N,
                                  .V = cuts[i + 1] - cuts[i],
                                  .ld = V,
                                  .logits = parts.data() + cuts[i],
                                  .first_token = cuts[i],
                                  .targets = targets.data(),
                                  .ignore_index = -1,
                                  .max = max.data(),
                                  .sums = mine.data()});
    for (int64_t n = 0; n < 2 * N; ++n) sums[n] += mine[n];
  }
  for (int i = 0; i < 3; ++i) {
    Vector mine(N), mine_z(N);
    kernels_.vocab_cross_entropy(stream_,
                                 {.N = N,
                                  .V = cuts[i + 1] - cuts[i],
                                  .ld = V,
                                  .logits = parts.data() + cuts[i],
                                  .first_token = cuts[i],
                                  .targets = targets.data(),
                                  .ignore_index = -1,
                                  .want_grad = true,
                                  .counts = i == 1,
                                  .max = max.data(),
                                  .sums = sums.data(),
                                  .row_loss = mine.data(),
                                  .loss_sum = i == 1 ? &part_loss : nullptr,
                                  .count = i == 1 ? &part_count : nullptr,
                                  .z_weight = kWeight,
                                  .row_z = mine_z.data(),
                                  .z_sum = i == 1 ? &part_z : nullptr});
  }
  EXPECT_EQ(part_count, 4);
  EXPECT_EQ(part_count, count);
  // The largest logit is subtracted from all either way: the sums of
  // exponentials are of the same numbers in another order.
  EXPECT_NEAR(part_loss, loss, 1e-14 * loss);
  EXPECT_NEAR(part_z, z, 1e-14 * z);
  for (int64_t i = 0; i < N * V; ++i) EXPECT_NEAR(parts[i], whole[i], 1e-14);
}

// Of a row of documents the queries of one chunk, on the keys up to its end:
// what they get, and what both chunks together give to keys and values.
TEST_F(Parts, OfTheQueriesSeeWhatAllOfThemSee) {
  constexpr int64_t B = 2, T = 12, Dh = 3, kCut = 5;
  const std::vector<int32_t> positions = Positions(B, T, {4, 1, 6});
  const Vector q = Normals<double>("q", B * T * Dh),
               k = Normals<double>("k", B * T * Dh),
               v = Normals<double>("v", B * T * Dh),
               d_o = Normals<double>("do", B * T * Dh);
  struct Results {
    Vector o = Vector(B * T * Dh), dq = o, dk = o, dv = o;
  };
  // Queries [first, end) on keys [0, end).
  const auto attend = [&](int64_t first, int64_t end, int64_t window,
                          Results& to) {
    const int64_t from = first * Dh;
    Vector lse(B * (end - first)), delta = lse;
    const HeadStrides strides = {T * Dh, Dh};
    const AttentionForwardArgs forward = {.B = B,
                                          .H = 1,
                                          .Hkv = 1,
                                          .Dh = Dh,
                                          .Tq = end - first,
                                          .Tk = end,
                                          .scale = 0.6,
                                          .window = window,
                                          .positions = positions.data(),
                                          .positions_row = T,
                                          .q = q.data() + from,
                                          .q_strides = strides,
                                          .k = k.data(),
                                          .v = v.data(),
                                          .kv_strides = strides,
                                          .o = to.o.data() + from,
                                          .o_strides = strides,
                                          .lse = lse.data()};
    kernels_.attention_forward(stream_, forward);
    AttentionBackwardArgs backward = BackwardOf(forward);
    backward.d_o = d_o.data() + from;
    backward.dq = to.dq.data() + from;
    backward.dk = to.dk.data();
    backward.dv = to.dv.data();
    backward.delta = delta.data();
    kernels_.attention_backward(stream_, backward);
  };
  for (const int64_t window : {0, 3}) {
    SCOPED_TRACE(window);
    Results whole, low, high;
    attend(0, T, window, whole);
    attend(0, kCut, window, low);
    attend(kCut, T, window, high);
    for (int64_t i = 0; i < B * T * Dh; ++i) {
      const Results& of_query = i / Dh % T < kCut ? low : high;
      EXPECT_EQ(of_query.o[i], whole.o[i]);
      EXPECT_EQ(of_query.dq[i], whole.dq[i]);
      EXPECT_NEAR(low.dk[i] + high.dk[i], whole.dk[i], 1e-14);
      EXPECT_NEAR(low.dv[i] + high.dv[i], whole.dv[i], 1e-14);
    }
  }
}

}  // namespace
}  // namespace delink::testing::parts_test
