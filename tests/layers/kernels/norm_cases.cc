#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "tests/layers/kernels/cases.h"

namespace delink::testing {
namespace {

struct Shape {
  int64_t N, D;
  bool bias, accumulate, in_place;  // dx is dy
  // What is normalised is a sum, and dx is added to: to itself, unless
  // in_place.
  bool residual = false;
};

template <typename T>
int64_t Differing(const Guarded<T>& a, const Guarded<T>& b) {
  int64_t count = 0;
  for (int64_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 0 : 1;
  return count;
}

// Of a sum of Shifted numbers, which are up to 32 and differ by a rounding.
constexpr double kSumError = 0x1p-20;

// Inputs far from zero mean: a variance by E[x^2] - E[x]^2 would show.
template <typename T>
Guarded<T> Shifted(int64_t N, int64_t D) {
  Guarded<T> x = Input<T>("x", N * D);
  for (int64_t i = 0; i < N * D; ++i) {
    x[i] = T(static_cast<float>(x[i] * (1 + i / D % 5) + 8.0));
  }
  return x;
}

Case LayerNormCase(const Shape& p) {
  const std::string name =
      absl::StrFormat("layer_norm N%d D%d bias%d acc%d in_place%d residual%d",
                      p.N, p.D, p.bias, p.accumulate, p.in_place, p.residual);
  return MakeCase(
      name, [p]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const int64_t N = p.N, D = p.D;
        const auto x = Shifted<T>(N, D);
        auto dy = Input<T>("dy", N * D);
        const auto w = Input<T>("w", D), b = Input<T>("b", D);
        const auto branch = Input<T>("branch", N * D);
        Guarded<T> y(N * D), dx(N * D), sum(N * D);
        if (p.residual && !p.in_place) dx = Input<T>("before", N * D);
        Guarded<Wide<T>> mean(N), rstd(N), dw(D), db(D);
        if (p.accumulate) {
          dw = Input<Wide<T>>("dw", D);
          db = Input<Wide<T>>("db", D);
        }
        kernels.layer_norm_forward(stream,
                                   {.N = N,
                                    .D = D,
                                    .eps = 1e-5,
                                    .x = x.data(),
                                    .w = w.data(),
                                    .b = p.bias ? b.data() : nullptr,
                                    .y = y.data(),
                                    .mean = mean.data(),
                                    .rstd = rstd.data(),
                                    .add = p.residual ? branch.data() : nullptr,
                                    .sum = p.residual ? sum.data() : nullptr});
        const T* normed = p.residual ? sum.data() : x.data();
        kernels.layer_norm_backward_weight(stream,
                                           {.N = N,
                                            .D = D,
                                            .dy = dy.data(),
                                            .x = normed,
                                            .mean = mean.data(),
                                            .rstd = rstd.data(),
                                            .dw = dw.data(),
                                            .db = p.bias ? db.data() : nullptr,
                                            .accumulate = p.accumulate});
        kernels.layer_norm_backward_input(
            stream, {.N = N,
                     .D = D,
                     .dy = dy.data(),
                     .x = normed,
                     .w = w.data(),
                     .mean = mean.data(),
                     .rstd = rstd.data(),
                     .dx = p.in_place ? dy.data() : dx.data(),
                     .add = !p.residual  ? nullptr
                            : p.in_place ? branch.data()
                                         : dx.data()});
        // Few elements may lie close together: then rstd is up to 1 /
        // sqrt(eps), about 316, and blows up whatever rounding left in x -
        // mean.
        const double loss = D < 4 ? 2 * 316.0 : 8.0;
        Outputs outputs = {
            Result("y", y, loss * Tolerance<float>(D)),
            Result("mean", mean, Tolerance<float>(D)),
            Result("rstd", rstd, Tolerance<float>(D)),
            Result("dx", p.in_place ? dy : dx, loss * Tolerance<float>(D)),
            Result("dw", dw, loss * Tolerance<float>(N))};
        if (p.residual) outputs.push_back(Result("sum", sum, kSumError));
        if (p.bias) outputs.push_back(Result("db", db, Tolerance<float>(N)));
        return outputs;
      });
}

Case RmsNormCase(const Shape& p) {
  const std::string name =
      absl::StrFormat("rms_norm N%d D%d acc%d in_place%d residual%d", p.N, p.D,
                      p.accumulate, p.in_place, p.residual);
  return MakeCase(
      name, [p]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const int64_t N = p.N, D = p.D;
        const auto x = Shifted<T>(N, D);
        auto dy = Input<T>("dy", N * D);
        const auto w = Input<T>("w", D);
        const auto branch = Input<T>("branch", N * D);
        Guarded<T> y(N * D), dx(N * D), sum(N * D);
        if (p.residual && !p.in_place) dx = Input<T>("before", N * D);
        Guarded<Wide<T>> rstd(N), dw(D);
        if (p.accumulate) dw = Input<Wide<T>>("dw", D);
        kernels.rms_norm_forward(stream,
                                 {.N = N,
                                  .D = D,
                                  .eps = 1e-6,
                                  .x = x.data(),
                                  .w = w.data(),
                                  .y = y.data(),
                                  .rstd = rstd.data(),
                                  .add = p.residual ? branch.data() : nullptr,
                                  .sum = p.residual ? sum.data() : nullptr});
        const T* normed = p.residual ? sum.data() : x.data();
        kernels.rms_norm_backward_weight(stream, {.N = N,
                                                  .D = D,
                                                  .dy = dy.data(),
                                                  .x = normed,
                                                  .rstd = rstd.data(),
                                                  .dw = dw.data(),
                                                  .accumulate = p.accumulate});
        kernels.rms_norm_backward_input(
            stream, {.N = N,
                     .D = D,
                     .dy = dy.data(),
                     .x = normed,
                     .w = w.data(),
                     .rstd = rstd.data(),
                     .dx = p.in_place ? dy.data() : dx.data(),
                     .add = !p.residual  ? nullptr
                            : p.in_place ? branch.data()
                                         : dx.data()});
        // The error of rstd, of a sum over a row, comes on top of that over N.
        const auto wander =
            static_cast<int64_t>(std::sqrt(static_cast<double>(D)));
        Outputs outputs = {
            Result("y", y, Tolerance<float>(D)),
            Result("rstd", rstd, Tolerance<float>(D)),
            Result("dx", p.in_place ? dy : dx, Tolerance<float>(D)),
            Result("dw", dw, 2 * Tolerance<float>(N + wander))};
        if (p.residual) outputs.push_back(Result("sum", sum, kSumError));
        return outputs;
      });
}

// What is made beside a sum has the bits of what is made of it afterwards, and
// the sum those of an addition: how many numbers differ, by name.
Case SumCase(int64_t N, int64_t D) {
  return MakeCase(
      absl::StrFormat("sum and norm N%d D%d", N, D),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const auto x = Shifted<T>(N, D), branch = Input<T>("branch", N * D);
        const auto w = Input<T>("w", D), b = Input<T>("b", D);
        Guarded<T> sum(N * D), at_once(N * D), layer(N * D), layer_after(N * D),
            rms(N * D), rms_after(N * D);
        kernels.add(stream, {N * D, x.data(), branch.data(), sum.data()});
        LayerNormForwardArgs layer_args = {
            N, D, 1e-5, sum.data(), w.data(), b.data(), layer_after.data()};
        kernels.layer_norm_forward(stream, layer_args);
        layer_args.x = x.data();
        layer_args.add = branch.data();
        layer_args.sum = at_once.data();
        layer_args.y = layer.data();
        kernels.layer_norm_forward(stream, layer_args);
        const int64_t of_layer = Differing(at_once, sum);
        RmsNormForwardArgs rms_args = {N,          D,        1e-5,
                                       sum.data(), w.data(), rms_after.data()};
        kernels.rms_norm_forward(stream, rms_args);
        rms_args.x = x.data();
        rms_args.add = branch.data();
        rms_args.sum = at_once.data();
        rms_args.y = rms.data();
        kernels.rms_norm_forward(stream, rms_args);
        const auto count = [](const char* name, int64_t differing) {
          return Output{name, {static_cast<double>(differing)}, 0.0};
        };
        return {count("sum by layer norm", of_layer),
                count("sum by rms norm", Differing(at_once, sum)),
                count("layer norm", Differing(layer, layer_after)),
                count("rms norm", Differing(rms, rms_after))};
      });
}

// Not-a-number comes through to its own row, and to no other.
Case NotANumberCase(int64_t D) {
  return MakeCase(
      absl::StrFormat("norms D%d with not-a-number", D),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        constexpr int64_t kRows = 3;
        auto x = Input<T>("x", kRows * D);
        x[2 * D - 1] = std::numeric_limits<T>::quiet_NaN();
        const auto w = Input<T>("w", D), dy = Input<T>("dy", kRows * D);
        Guarded<T> layer(kRows * D), rms(kRows * D), dx(kRows * D);
        Guarded<Wide<T>> rstd(kRows);
        kernels.layer_norm_forward(stream, {kRows, D, 1e-5, x.data(), w.data(),
                                            nullptr, layer.data()});
        kernels.rms_norm_forward(stream, {kRows, D, 1e-6, x.data(), w.data(),
                                          rms.data(), rstd.data()});
        kernels.rms_norm_backward_input(
            stream,
            {kRows, D, dy.data(), x.data(), w.data(), rstd.data(), dx.data()});
        return {WhereNotANumber("layer norm", layer),
                WhereNotANumber("rms norm", rms), WhereNotANumber("rstd", rstd),
                WhereNotANumber("dx", dx)};
      });
}

Case QkNormCase(int64_t N, int64_t H, int64_t Hkv, int64_t Dh, bool in_place,
                bool accumulate) {
  const std::string name =
      absl::StrFormat("qk_norm N%d H%d/%d Dh%d in_place%d acc%d", N, H, Hkv, Dh,
                      in_place, accumulate);
  return MakeCase(
      name, [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const int64_t width = (H + 2 * Hkv) * Dh;
        const auto x = Shifted<T>(N * (H + 2 * Hkv), Dh);
        auto dy = Input<T>("dy", N * width);
        const auto q_w = Input<T>("q_w", Dh), k_w = Input<T>("k_w", Dh);
        Guarded<T> y(N * width), dx(N * width);
        Guarded<Wide<T>> rstd(N * (H + Hkv)), dq_w(Dh), dk_w(Dh);
        if (accumulate) dq_w = Input<Wide<T>>("dq_w", Dh);
        if (accumulate) dk_w = Input<Wide<T>>("dk_w", Dh);
        kernels.qk_norm_forward(stream, {.N = N,
                                         .H = H,
                                         .Hkv = Hkv,
                                         .Dh = Dh,
                                         .eps = 1e-6,
                                         .x = x.data(),
                                         .q_w = q_w.data(),
                                         .k_w = k_w.data(),
                                         .y = y.data(),
                                         .rstd = rstd.data()});
        QkNormBackwardWeightArgs weight = {.N = N,
                                           .Dh = Dh,
                                           .row_heads = H + 2 * Hkv,
                                           .rstd_heads = H + Hkv,
                                           .first_head = 0,
                                           .heads = H,
                                           .dy = dy.data(),
                                           .x = x.data(),
                                           .rstd = rstd.data(),
                                           .dw = dq_w.data(),
                                           .accumulate = accumulate};
        kernels.qk_norm_backward_weight(stream, weight);
        weight.first_head = H;
        weight.heads = Hkv;
        weight.dw = dk_w.data();
        kernels.qk_norm_backward_weight(stream, weight);
        kernels.qk_norm_backward_input(
            stream, {.N = N,
                     .H = H,
                     .Hkv = Hkv,
                     .Dh = Dh,
                     .dy = dy.data(),
                     .x = x.data(),
                     .q_w = q_w.data(),
                     .k_w = k_w.data(),
                     .rstd = rstd.data(),
                     .dx = in_place ? dy.data() : dx.data()});
        return {Result("y", y, Tolerance<float>(Dh)),
                Result("rstd", rstd, Tolerance<float>(Dh)),
                Result("dx", in_place ? dy : dx, Tolerance<float>(Dh)),
                Result("dq_w", dq_w, 2 * Tolerance<float>(N * H)),
                Result("dk_w", dk_w, 2 * Tolerance<float>(N * Hkv))};
      });
}

}  // namespace

std::vector<Case> NormCases() {
  std::vector<Case> cases;
  int64_t i = 0;
  const auto add = [&](int64_t N, int64_t D) {
    ++i;
    const Shape p = {N,         D, (i & 1) != 0, (i & 2) != 0, (i & 4) != 0,
                     i % 3 != 0};
    cases.push_back(LayerNormCase(p));
    cases.push_back(RmsNormCase(p));
  };
  for (const int64_t D : kUglySizes) {
    for (const int64_t N : {1, 2, 65}) add(N, D);
  }
  for (const int64_t Dh : kUglySizes) {
    cases.push_back(QkNormCase(3, 2, 1, Dh, Dh % 2 == 0, Dh % 3 == 0));
  }
  cases.push_back(QkNormCase(0, 2, 1, 16, false, false));
  cases.push_back(QkNormCase(200, 6, 2, 64, false, true));
  cases.push_back(QkNormCase(41, 3, 3, 128, true, false));
  for (const int64_t D : {3, 16, 600, 2051}) cases.push_back(NotANumberCase(D));
  for (const int64_t D : {7, 64, 768, 1500, 2051, 3584}) {
    cases.push_back(SumCase(3, D));
  }
  add(0, 16);
  add(301, 257);
  add(64, 768);
  // Where a row is read by a team of threads: a block, with and without whole
  // vectors of 16 bytes, and more rows than a grid has blocks in y.
  for (int copies = 0; copies < 3; ++copies) {  // all of add's flags
    add(5, 12288);
    add(3, 2051);
  }
  cases.push_back(RmsNormCase({65'600, 3, false, true, true}));
  return cases;
}

}  // namespace delink::testing
