#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "tests/layers/kernels/cases.h"

namespace delink::testing {
namespace {

Case GeluCase(int64_t count, GeluForm form, bool in_place) {
  return MakeCase(
      absl::StrFormat("gelu %d form%d in_place%d", count,
                      static_cast<int>(form), in_place),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        // Wide, so that both tails are met.
        auto x = Input<T>("x", count, 4.0);
        auto dy = Input<T>("dy", count);
        if (count > 6) {
          const float extremes[] = {0, 60, -60, 1e4F, -1e4F, 1e-6F};
          std::transform(std::begin(extremes), std::end(extremes), x.data(),
                         [](float extreme) { return T(extreme); });
        }
        Guarded<T> y(count), dx(count);
        T* to_dx = in_place ? dy.data() : dx.data();
        kernels.gelu_backward(stream, {.count = count,
                                       .form = form,
                                       .dy = dy.data(),
                                       .x = x.data(),
                                       .dx = to_dx});
        T* to_y = in_place ? x.data() : y.data();
        kernels.gelu_forward(
            stream, {.count = count, .form = form, .x = x.data(), .y = to_y});
        return {Result("y", in_place ? x : y, Tolerance<float>(1)),
                Result("dx", in_place ? dy : dx, Tolerance<float>(1))};
      });
}

Case SwiGluCase(int64_t N, int64_t F, bool in_place) {
  return MakeCase(
      absl::StrFormat("swiglu N%d F%d in_place%d", N, F, in_place),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        auto x = Input<T>("x", N * 2 * F, 4.0);
        const auto dy = Input<T>("dy", N * F);
        if (N * F > 6) {
          const float extremes[] = {0, 100, -100, 1e4F, -1e4F, 1e-6F};
          std::transform(std::begin(extremes), std::end(extremes), x.data(),
                         [](float extreme) { return T(extreme); });
        }
        Guarded<T> y(N * F), dx(N * 2 * F);
        kernels.swiglu_forward(stream,
                               {.N = N, .F = F, .x = x.data(), .y = y.data()});
        kernels.swiglu_backward(stream,
                                {.N = N,
                                 .F = F,
                                 .dy = dy.data(),
                                 .x = x.data(),
                                 .dx = in_place ? x.data() : dx.data()});
        return {Result("y", y, Tolerance<float>(8)),
                Result("dx", in_place ? x : dx, Tolerance<float>(8))};
      });
}

// From element `first` on, where no vector may be aligned.
Case AddCase(int64_t count, int64_t first = 0) {
  return MakeCase(
      absl::StrFormat("add %d from %d", count, first),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const auto a = Input<T>("a", first + count);
        const auto b = Input<T>("b", first + count);
        auto y = Input<T>("y", first + count);
        kernels.add(stream, {.count = count,
                             .a = a.data() + first,
                             .b = b.data() + first,
                             .y = y.data() + first});
        auto sum = Input<T>("c", first + count);
        kernels.accumulate(
            stream,
            {.count = count, .x = a.data() + first, .y = sum.data() + first});
        return {Result("y", y, 1e-7), Result("sum", sum, 1e-7)};
      });
}

// A gradient that is kept in bf16, whatever T is.
Case RoundGradientCase(int64_t count, int64_t first = 0) {
  return MakeCase(
      absl::StrFormat("round_gradient %d from %d", count, first),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const auto x = Input<Wide<T>>("x", first + count);
        auto added = Input<BFloat16>("y", first + count);
        Guarded<BFloat16> written(first + count);
        for (int64_t i = 0; i < first; ++i) written[i] = BFloat16(1.0F);
        kernels.round_gradient(stream, {.count = count,
                                        .x = x.data() + first,
                                        .y = written.data() + first});
        kernels.round_gradient(stream, {.count = count,
                                        .x = x.data() + first,
                                        .y = added.data() + first,
                                        .accumulate = true});
        return {Result("written", written, 1e-7), Result("added", added, 1e-7)};
      });
}

Case WidenCase(int64_t count, int64_t first = 0) {
  return MakeCase(
      absl::StrFormat("widen %d from %d", count, first),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const auto x = Input<T>("x", first + count);
        Guarded<Wide<T>> y(first + count);
        std::fill_n(y.data(), first, Wide<T>{1});
        kernels.widen(
            stream,
            {.count = count, .x = x.data() + first, .y = y.data() + first});
        return {Result("y", y, 0)};
      });
}

// Not-a-number comes through, and to no other element.
Case NotANumberCase(int64_t count) {
  return MakeCase(
      absl::StrFormat("pointwise %d with not-a-number", count),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const T nan = std::numeric_limits<T>::quiet_NaN();
        auto x = Input<T>("x", 2 * count), dy = Input<T>("dy", count);
        x[count / 2] = dy[count - 1] = x[2 * count - 1] = nan;
        Outputs outputs;
        for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
          Guarded<T> y(count), dx(count);
          kernels.gelu_forward(stream, {count, form, x.data(), y.data()});
          kernels.gelu_backward(stream,
                                {count, form, dy.data(), x.data(), dx.data()});
          outputs.push_back(WhereNotANumber("gelu", y));
          outputs.push_back(WhereNotANumber("gelu dx", dx));
        }
        Guarded<T> y(count), dx(2 * count);
        kernels.swiglu_forward(stream, {1, count, x.data(), y.data()});
        kernels.swiglu_backward(stream,
                                {1, count, dy.data(), x.data(), dx.data()});
        outputs.push_back(WhereNotANumber("swiglu", y));
        outputs.push_back(WhereNotANumber("swiglu dx", dx));
        return outputs;
      });
}

struct Dropped {
  int64_t B, T, D;
  double rate = 0.3;
  int64_t first_position = 0;
  // Some tokens alone, and places that jump, as where ranks share them.
  int64_t first_row = 0, rows = -1;
  bool places = false;
  // Columns [first, first + D) of rows of `width`, and behind them `more` that
  // are those from 1 on; 0: all there are.
  int64_t first = 0, width = 0, more = 0;
};

Case DropoutCase(const Dropped& p) {
  return MakeCase(
      absl::StrFormat(
          "dropout B%d T%d D%d rate%g first%d rows %d+%d places%d columns %d "
          "of %d, %d more",
          p.B, p.T, p.D, p.rate, p.first_position, p.first_row, p.rows,
          p.places, p.first, p.width, p.more),
      [p]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const int64_t pitch = p.D + p.more;
        const int64_t count = (p.rows < 0 ? p.B * p.T : p.rows) * pitch;
        const auto x = Input<T>("x", count);
        const Guarded<RngKey> key(std::vector{KeyFromSeed(3)});
        Guarded<int64_t> sample(p.B);
        for (int64_t b = 0; b < p.B; ++b) sample[b] = 1 + b * 10'000'000'000;
        Guarded<int32_t> jumps(p.T);
        for (int64_t t = 0; t < p.T; ++t) {
          jumps[t] = static_cast<int32_t>(t < p.T / 2 ? t + 3 : t + 2 * p.T);
        }
        Guarded<T> y(count);
        DropoutArgs args = {.B = p.B,
                            .T = p.T,
                            .D = p.D,
                            .rate = p.rate,
                            .step_key = key.data(),
                            .name_hash = 99,
                            .sample = sample.data(),
                            .first_position = p.first_position,
                            .places = p.places ? jumps.data() : nullptr,
                            .first_row = p.first_row,
                            .rows = p.rows,
                            .x = x.data(),
                            .y = y.data()};
        if (p.width > 0) {
          args.width = p.width;
          args.first_column = p.first;
          args.pitch = pitch;
        }
        kernels.dropout(stream, args);
        if (p.width > 0) {
          args.D = p.more;
          args.first_column = 1;
          args.x = x.data() + p.D;
          args.y = y.data() + p.D;
          kernels.dropout(stream, args);
        }
        return {Result("y", y, 3e-7)};
      });
}

}  // namespace

std::vector<Case> PointwiseCases() {
  std::vector<Case> cases;
  std::vector<int64_t> sizes(std::begin(kUglySizes), std::end(kUglySizes));
  sizes.insert(sizes.end(), {0, 4095, 4096, 4097, 70'000});
  for (const int64_t count : sizes) {
    cases.push_back(GeluCase(count, GeluForm::kTanh, count % 2 == 0));
    cases.push_back(GeluCase(count, GeluForm::kErf, count % 2 == 1));
    cases.push_back(AddCase(count));
    cases.push_back(RoundGradientCase(count));
    cases.push_back(WidenCase(count));
    if (count < 100) cases.push_back(SwiGluCase(3, count, count % 2 == 0));
  }
  for (const int64_t count : {1, 9, 1000}) {
    cases.push_back(AddCase(count, 1));
    cases.push_back(RoundGradientCase(count, 1));
    cases.push_back(WidenCase(count, 1));
  }
  cases.push_back(SwiGluCase(70, 1000, false));
  cases.push_back(SwiGluCase(0, 16, false));
  for (const int64_t count : {3, 16, 40}) {
    cases.push_back(NotANumberCase(count));
  }
  const auto drop = [&cases](const Dropped& p) {
    cases.push_back(DropoutCase(p));
  };
  // Even and odd words of the generator, and rows that start inside a block.
  for (const int64_t D : {1, 3, 4, 16, 33, 64, 130}) {
    drop({2, 5, D, 0.1});
    drop({1, 3, D, 0.5, 7});
  }
  drop({2, 3, 8, 0.0});
  drop({3, 180, 129, 0.3, 1});
  drop({2, 300, 64, 0.2, 5});
  drop({2, 3, 8, 0.99999999});  // 1 in f32
  for (const int64_t D : {1, 3, 4, 8, 33, 64, 130}) {
    drop({2, 7, D, 0.3, 0, 0, -1, true});
    drop({2, 7, D, 0.3, 0, 5, 4, true});
    drop({3, 7, D, 0.3, 3, 6, 15});
  }
  drop({3, 180, 129, 0.3, 0, 100, 300, true});
  drop({2, 300, 64, 0.3, 3, 599, 1});
  drop({2, 3, 1100, 0.3, 0, 2, 2, true});
  drop({2, 3, 8, 0.3, 0, 6, 0, true});
  // Whole packs of numbers, and not.
  for (const int64_t more : {0, 3, 8}) {
    drop({2, 3, 8, 0.3, 3, 0, -1, false, 16, 32, more});
    drop({2, 3, 16, 0.3, 3, 0, -1, false, 8, 33, more});
    drop({2, 3, 16, 0.3, 3, 0, -1, false, 3, 64, more});
    drop({3, 7, 5, 0.3, 3, 0, -1, false, 6, 11, more});
  }
  return cases;
}

}  // namespace delink::testing
