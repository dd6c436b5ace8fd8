#include <limits>

#include "absl/strings/str_format.h"
#include "tests/layers/kernels/cases.h"

namespace delink::testing {
namespace {

Case CrossEntropyCase(int64_t N, int64_t V, int64_t pad, bool want_grad,
                      double size, double z_weight = 0) {
  return MakeCase(
      absl::StrFormat("cross_entropy N%d V%d pad%d grad%d size%g z%g", N, V,
                      pad, want_grad, size, z_weight),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        auto logits = Input<T>("logits", N * (V + pad), size);
        Guarded<int32_t> targets(
            Integers("targets", N, static_cast<int32_t>(V)));
        for (int64_t n = 2; n < N; n += 3) targets[n] = -100;
        Guarded<double> row_loss(N), row_z(z_weight != 0 ? N : 0);
        Guarded<double> loss_sum(std::vector{1.5}), z_sum(std::vector{2.5});
        Guarded<int64_t> count(std::vector<int64_t>{10});
        kernels.cross_entropy(stream, {.N = N,
                                       .V = V,
                                       .ld = V + pad,
                                       .logits = logits.data(),
                                       .targets = targets.data(),
                                       .ignore_index = -100,
                                       .want_grad = want_grad,
                                       .row_loss = row_loss.data(),
                                       .loss_sum = loss_sum.data(),
                                       .count = count.data(),
                                       .z_weight = z_weight,
                                       .row_z = row_z.data(),
                                       .z_sum = z_sum.data()});
        const double z_tolerance = 1e-6 * (1.0 + size);
        return {Result("logits", logits, want_grad ? Tolerance<float>(1) : 0.0),
                Result("row_loss", row_loss, 1e-6 * (1.0 + size)),
                Result("loss_sum", loss_sum, 1e-6 * (1.0 + size)),
                Result("row_z", row_z, z_tolerance),
                Result("z_sum", z_sum, z_tolerance),
                Result("count", count, 0.0)};
      });
}

// Logits that rise along the row by far more than exp can bear, after a stretch
// of masked ones.
Case RisingCase(int64_t V, double rise, int64_t masked) {
  return MakeCase(
      absl::StrFormat("cross_entropy V%d rise%g masked%d", V, rise, masked),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        constexpr int64_t kRows = 3;
        auto logits = Input<T>("logits", kRows * V);
        std::vector<int32_t> targets =
            Integers("targets", kRows, static_cast<int32_t>(V - masked));
        for (int32_t& target : targets) target += static_cast<int32_t>(masked);
        const Guarded<int32_t> of_rows(targets);
        for (int64_t i = 0; i < kRows * V; ++i) {
          const int64_t v = i % V;
          logits[i] =
              v < masked
                  ? T(-std::numeric_limits<float>::infinity())
                  : T(static_cast<float>(double{logits[i]} + rise * v / V));
        }
        Guarded<double> row_loss(kRows);
        Guarded<double> loss_sum(std::vector{0.0});
        Guarded<int64_t> count(std::vector<int64_t>{0});
        kernels.cross_entropy(stream, {.N = kRows,
                                       .V = V,
                                       .ld = V,
                                       .logits = logits.data(),
                                       .targets = of_rows.data(),
                                       .ignore_index = -100,
                                       .want_grad = true,
                                       .row_loss = row_loss.data(),
                                       .loss_sum = loss_sum.data(),
                                       .count = count.data()});
        return {Result("logits", logits, Tolerance<float>(1)),
                Result("row_loss", row_loss, 1e-6)};
      });
}

}  // namespace

std::vector<Case> CrossEntropyCases() {
  std::vector<Case> cases;
  for (const int64_t V : kUglySizes) {
    cases.push_back(CrossEntropyCase(4, V, V % 3, true, 3.0));
    cases.push_back(CrossEntropyCase(2, V, V % 2, false, 30.0));
    cases.push_back(CrossEntropyCase(4, V, V % 2, true, 3.0, 0.25));
    cases.push_back(CrossEntropyCase(4, V, 0, false, 10.0, 1e-4));
  }
  for (const int64_t V : {1023, 1024, 1025, 3000}) {
    cases.push_back(CrossEntropyCase(7, V, 0, true, 1.0));
    cases.push_back(CrossEntropyCase(7, V, 0, true, 40.0));
  }
  cases.push_back(CrossEntropyCase(23, 3000, 0, true, 1.0, 1e-4));
  // Vocabularies as they are, in rows that start anywhere.
  cases.push_back(CrossEntropyCase(3, 20'011, 2, true, 3.0));
  cases.push_back(CrossEntropyCase(2, 52'003, 5, true, 3.0, 1e-4));
  cases.push_back(CrossEntropyCase(2, 20'011, 0, false, 3.0));
  cases.push_back(CrossEntropyCase(300, 5, 0, true, 2.0, 1e-2));
  cases.push_back(CrossEntropyCase(0, 16, 0, true, 1.0));
  for (const double rise : {0.0, 100.0, 1000.0, -300.0}) {
    cases.push_back(RisingCase(5000, rise, 0));
    cases.push_back(RisingCase(5000, rise, 1100));
    cases.push_back(RisingCase(40, rise, 30));
  }
  return cases;
}

}  // namespace delink::testing
