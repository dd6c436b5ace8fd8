#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/layers/kernels/cases.h"
#include "tests/testing/documents.h"

namespace delink::testing {
namespace {

struct Shape {
  int64_t B, T, D, V, first_position;
  bool accumulate;
  // Of so many tokens one after the other all but the last are the same; 1:
  // nothing of the kind.
  int64_t frequent = 1;

  int64_t Tmax() const { return first_position + T + 2; }
};

// Any, with one that stands at most places.
std::vector<int32_t> TokensOf(const Shape& p) {
  const int64_t N = p.B * p.T;
  std::vector<int32_t> tokens =
      Integers("tokens", N, static_cast<int32_t>(p.V));
  for (int64_t n = 0; n < N; ++n) {
    if ((n + 1) % p.frequent != 0) tokens[n] = static_cast<int32_t>(p.V / 2);
  }
  return tokens;
}

// Those of the vocabulary and of positions, of type P.
template <typename P>
std::pair<Guarded<P>, Guarded<P>> GradientsOf(const Kernels& kernels,
                                              Stream& stream, const Shape& p,
                                              const int32_t* tokens,
                                              const void* dy,
                                              bool narrow = false) {
  Guarded<P> dw(p.V * p.D), dp(p.Tmax() * p.D);
  if (p.accumulate) {
    dw = Input<P>("dw", p.V * p.D);
    dp = Input<P>("dp", p.Tmax() * p.D);
  }
  kernels.embedding_backward_weight(stream, {.N = p.B * p.T,
                                             .D = p.D,
                                             .V = p.V,
                                             .tokens = tokens,
                                             .dy = dy,
                                             .dw = dw.data(),
                                             .accumulate = p.accumulate,
                                             .narrow = narrow});
  kernels.embedding_backward_position(stream,
                                      {.B = p.B,
                                       .T = p.T,
                                       .D = p.D,
                                       .Tmax = p.Tmax(),
                                       .first_position = p.first_position,
                                       .dy = dy,
                                       .dp = dp.data(),
                                       .accumulate = p.accumulate,
                                       .narrow = narrow});
  return {std::move(dw), std::move(dp)};
}

Case EmbeddingCase(const Shape& p) {
  const std::string name = absl::StrFormat(
      "embedding B%d T%d D%d V%d first%d acc%d frequent%d", p.B, p.T, p.D, p.V,
      p.first_position, p.accumulate, p.frequent);
  return MakeCase(
      name, [p]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const int64_t N = p.B * p.T, D = p.D, V = p.V;
        const Guarded<int32_t> tokens(TokensOf(p));
        const auto w = Input<T>("w", V * D), pos = Input<T>("p", p.Tmax() * D);
        const auto dy = Input<T>("dy", N * D);
        Guarded<T> y(N * D), y_masked(N * D), bare(N * D);
        EmbeddingForwardArgs forward = {.B = p.B,
                                        .T = p.T,
                                        .D = D,
                                        .V = V,
                                        .first_position = p.first_position,
                                        .tokens = tokens.data(),
                                        .w = w.data(),
                                        .p = pos.data(),
                                        .y = y.data()};
        kernels.embedding_forward(stream, forward);
        const Guarded<int32_t> places(Positions(p.B, p.T, {3, 1, 5}));
        EmbeddingForwardArgs masked = forward;
        masked.first_position = 0;
        masked.positions = places.data();
        masked.y = y_masked.data();
        kernels.embedding_forward(stream, masked);
        forward.p = nullptr;
        forward.y = bare.data();
        kernels.embedding_forward(stream, forward);
        const auto [dw, dp] =
            GradientsOf<Wide<T>>(kernels, stream, p, tokens.data(), dy.data());
        const auto [narrow_dw, narrow_dp] = GradientsOf<T>(
            kernels, stream, p, tokens.data(), dy.data(), /*narrow=*/true);
        const double of_dw = Tolerance<float>(p.frequent > 1 ? N : N / V + 1);
        const double of_dp = Tolerance<float>(p.B);
        return {Result("y", y, 1e-7),
                Result("y masked", y_masked, 1e-7),
                Result("bare", bare, 0.0),
                Result("dw", dw, of_dw),
                Result("dp", dp, of_dp),
                Result("narrow dw", narrow_dw, of_dw),
                Result("narrow dp", narrow_dp, of_dp)};
      });
}

// Rows [first, first + V) of a table of `ids`, as where ranks share it.
struct Slice {
  int64_t N, D, V, first, ids;
  bool accumulate;
};

template <typename P>
Guarded<P> SliceGradient(const Kernels& kernels, Stream& stream, const Slice& p,
                         const int32_t* tokens, const void* dy, bool narrow) {
  Guarded<P> dw(p.V * p.D);
  if (p.accumulate) dw = Input<P>("dw", p.V * p.D);
  kernels.embedding_backward_weight(stream, {.N = p.N,
                                             .D = p.D,
                                             .V = p.V,
                                             .tokens = tokens,
                                             .dy = dy,
                                             .dw = dw.data(),
                                             .accumulate = p.accumulate,
                                             .narrow = narrow,
                                             .first_token = p.first,
                                             .partial = true});
  return dw;
}

Case SliceCase(const Slice& p) {
  const std::string name =
      absl::StrFormat("embedding N%d D%d rows %d+%d of %d acc%d", p.N, p.D,
                      p.first, p.V, p.ids, p.accumulate);
  return MakeCase(
      name, [p]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const Guarded<int32_t> tokens(
            Integers("tokens", p.N, static_cast<int32_t>(p.ids)));
        const auto w = Input<T>("w", p.V * p.D), dy = Input<T>("dy", p.N * p.D);
        Guarded<T> y(p.N * p.D);
        kernels.embedding_forward(stream, {.B = 1,
                                           .T = p.N,
                                           .D = p.D,
                                           .V = p.V,
                                           .tokens = tokens.data(),
                                           .w = w.data(),
                                           .y = y.data(),
                                           .first_token = p.first,
                                           .partial = true});
        const auto dw = SliceGradient<Wide<T>>(
            kernels, stream, p, tokens.data(), dy.data(), /*narrow=*/false);
        const auto narrow_dw = SliceGradient<T>(
            kernels, stream, p, tokens.data(), dy.data(), /*narrow=*/true);
        const double tolerance = Tolerance<float>(p.N / p.ids + 1);
        return {Result("y", y, 0.0), Result("dw", dw, tolerance),
                Result("narrow dw", narrow_dw, tolerance)};
      });
}

}  // namespace

std::vector<Case> EmbeddingCases() {
  std::vector<Case> cases;
  int64_t i = 0;
  for (const int64_t D : kUglySizes) {
    ++i;
    cases.push_back(EmbeddingCase({1 + i % 3, 7, D, 5, i % 2, i % 2 == 0}));
  }
  cases.push_back(EmbeddingCase({0, 4, 8, 3, 0, false}));
  cases.push_back(EmbeddingCase({4, 130, 129, 1000, 0, false}));
  cases.push_back(EmbeddingCase({2, 520, 64, 2, 3, true}));
  // One token at every place, at most, and among many that occur once.
  cases.push_back(EmbeddingCase({1, 333, 20, 3, 0, false, 1000}));
  cases.push_back(EmbeddingCase({2, 160, 24, 7, 0, true, 1000}));
  cases.push_back(EmbeddingCase({3, 190, 8, 1000, 0, false, 3}));
  cases.push_back(EmbeddingCase({1, 700, 5, 300, 0, true, 50}));
  // More tokens than ids, and ids of more than two bytes.
  cases.push_back(EmbeddingCase({2, 1250, 4, 40, 0, false}));
  cases.push_back(EmbeddingCase({1, 70, 3, 70'000, 0, false}));
  for (const int64_t D : {1, 7, 16, 40}) {
    cases.push_back(SliceCase({50, D, 4, 3, 11, false}));
    cases.push_back(SliceCase({333, D, 1, 0, 3, true}));
  }
  // The first and the last piece, one that is empty, all of the table, and one
  // row fewer than a byte tells apart; many tokens of other rows.
  cases.push_back(SliceCase({200, 8, 5, 0, 13, false}));
  cases.push_back(SliceCase({200, 8, 5, 8, 13, true}));
  cases.push_back(SliceCase({20, 8, 0, 2, 13, false}));
  cases.push_back(SliceCase({90, 5, 13, 0, 13, false}));
  cases.push_back(SliceCase({700, 12, 256, 300, 1000, false}));
  cases.push_back(SliceCase({700, 12, 255, 0, 1000, true}));
  cases.push_back(SliceCase({1500, 4, 40, 70'000, 70'041, false}));
  return cases;
}

}  // namespace delink::testing
