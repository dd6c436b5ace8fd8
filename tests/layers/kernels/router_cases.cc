#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/layers/kernels/cases.h"

namespace delink::testing {
namespace {

struct Shape {
  int64_t N, E, k;
  RouterForm form = {};
  bool bias = false;
  bool ties = false;
  bool masked = false;
};

Case RouteCase(const Shape& p) {
  return MakeCase(
      absl::StrFormat("route N%d E%d k%d prototypes%d sigmoid%d normalise%d "
                      "groups%d of %d bias%d ties%d masked%d",
                      p.N, p.E, p.k, p.form.prototypes, p.form.sigmoid,
                      p.form.normalise, p.form.top_groups, p.form.groups,
                      p.bias, p.ties, p.masked),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        using S = Wide<T>;
        auto logits = Input<S>("logits", p.N * p.E, 3.0);
        for (int64_t i = 0; p.ties && i < p.N * p.E; ++i) {
          logits[i] = static_cast<S>(static_cast<int>(logits[i]));
        }
        const auto bias = Input<S>("bias", p.E);
        const auto dgates = Input<S>("dgates", p.N * p.k);
        const int64_t tokens = p.N % 2 == 0 ? p.N / 2 : p.N;
        const int64_t first = p.masked ? tokens / 2 : 0;
        const int64_t groups = (first + p.N + tokens - 1) / tokens;
        const auto dshares = Input<S>("dshares", groups * p.E);
        const auto targets = Targets(p.N);
        Guarded<S> gates(p.N * p.k), dlogits(p.N * p.E), all(p.N * p.E);
        Guarded<int32_t> ids(p.N * p.k);
        kernels.route(stream, {.N = p.N,
                               .E = p.E,
                               .k = p.k,
                               .form = p.form,
                               .logits = logits.data(),
                               .bias = p.bias ? bias.data() : nullptr,
                               .gates = gates.data(),
                               .ids = ids.data()});
        RouteBackwardArgs back = {.N = p.N,
                                  .E = p.E,
                                  .k = p.k,
                                  .form = p.form,
                                  .logits = logits.data(),
                                  .ids = ids.data(),
                                  .dgates = dgates.data(),
                                  .dlogits = dlogits.data()};
        kernels.route_backward(stream, back);
        back.dlogits = all.data();
        back.dshares = dshares.data();
        back.tokens = tokens;
        back.first = first;
        back.dz = 0.25;
        back.targets = p.masked ? targets.data() : nullptr;
        Guarded<double> of_shares(p.N);
        back.balance = of_shares.data();
        kernels.route_backward(stream, back);
        return {
            Result("sum of share * gradient", of_shares,
                   4 * Tolerance<float>(p.E)),
            Result("gates", gates, Tolerance<float>(p.E)),
            Result("ids", ids, 0),
            Result("dlogits", dlogits, 4 * Tolerance<float>(p.E)),
            Result("dlogits of all losses", all, 16 * Tolerance<float>(p.E))};
      });
}

// Tokens with a logit, or experts with a bias, that are not finite: their gates
// are not, their choices are experts, and no pair of theirs is dropped first.
Case NotFiniteRouteCase(const Shape& p) {
  return MakeCase(
      absl::StrFormat("route not finite N%d E%d k%d prototypes%d sigmoid%d "
                      "groups%d of %d bias%d",
                      p.N, p.E, p.k, p.form.prototypes, p.form.sigmoid,
                      p.form.top_groups, p.form.groups, p.bias),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        using S = Wide<T>;
        const S nan = std::numeric_limits<S>::quiet_NaN();
        const S infinite = std::numeric_limits<S>::infinity();
        auto logits = Input<S>("logits", p.N * p.E, 3.0);
        auto bias = Input<S>("bias", p.E);
        logits[2 * p.E + p.E / 2] = nan;
        logits[5 * p.E] = infinite;
        logits[6 * p.E - 1] = -infinite;
        std::fill_n(&logits[7 * p.E], p.E, nan);
        std::fill_n(&logits[9 * p.E], p.E, -infinite);
        if (p.masked) bias[p.E - 1] = nan;
        Guarded<S> gates(p.N * p.k);
        Guarded<int32_t> ids(p.N * p.k), offsets(p.E + 1), rows(p.N * p.k),
            pairs(p.N * p.k), loads(p.E);
        kernels.route(stream, {.N = p.N,
                               .E = p.E,
                               .k = p.k,
                               .form = p.form,
                               .logits = logits.data(),
                               .bias = p.bias ? bias.data() : nullptr,
                               .gates = gates.data(),
                               .ids = ids.data()});
        Output finite = {.name = "finite gates"};
        for (int64_t i = 0; i < p.N * p.k; ++i) {
          const int64_t n = i / p.k;
          const bool range = i % p.k >= p.k - p.k / p.form.prototypes;
          if (n == 7 || n == 9 || (p.masked && range)) {
            EXPECT_TRUE(std::isnan(gates[i])) << i;
          }
          EXPECT_TRUE(ids[i] >= 0 && ids[i] < p.E) << i;
          EXPECT_FALSE(std::isinf(gates[i])) << i;
          finite.values.push_back(std::isnan(gates[i]) ? 0 : 1);
        }
        if (ids[0] < 0 || ids[0] >= p.E) return {};
        kernels.assign_rows(stream, {.N = p.N,
                                     .E = p.E,
                                     .k = p.k,
                                     .ids = ids.data(),
                                     .capacity = 3,
                                     .gates = gates.data(),
                                     .offsets = offsets.data(),
                                     .rows = rows.data(),
                                     .pairs = pairs.data(),
                                     .loads = loads.data()});
        return {finite, Result("ids", ids, 0), Result("rows", rows, 0),
                FirstOf("pairs", pairs, offsets[p.E], 0)};
      });
}

std::vector<Shape> NotFiniteShapes() {
  const RouterForm sigmoid = {.sigmoid = true, .groups = 4, .top_groups = 2};
  return {{.N = 12, .E = 8, .k = 2},
          {.N = 12, .E = 70, .k = 3, .form = {.normalise = true}, .bias = true},
          {.N = 12, .E = 5, .k = 5, .form = {.sigmoid = true}},
          {.N = 12, .E = 32, .k = 4, .form = sigmoid, .bias = true},
          {.N = 12, .E = 32, .k = 4, .form = sigmoid},
          {.N = 12,
           .E = 48,
           .k = 6,
           .form = {.prototypes = 6},
           .bias = true,
           .masked = true}};
}

// What is counted and recorded of a router's choices.
Case BalanceCase(const Shape& p) {
  return MakeCase(
      absl::StrFormat("balance N%d E%d k%d prototypes%d sigmoid%d masked%d",
                      p.N, p.E, p.k, p.form.prototypes, p.form.sigmoid,
                      p.masked),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        using S = Wide<T>;
        const auto logits = Input<S>("logits", p.N * p.E, 3.0);
        const auto ids = Guarded<int32_t>(
            Integers("ids", p.N * p.k, static_cast<int32_t>(p.E)));
        const auto targets = Targets(p.N);
        const int64_t tokens = p.N % 2 == 0 ? p.N / 2 : p.N;
        const int64_t first = p.masked ? tokens / 2 : 0;
        const int64_t groups = (first + p.N + tokens - 1) / tokens;
        Guarded<double> counts(groups * (p.E + 1)), of_tokens(2 * p.N), sums(2);
        Guarded<S> balance(groups * p.E), by_loads(groups * p.E);
        const auto loads = Input<S>("loads", p.E);
        std::fill_n(sums.data(), 2, 0.5);
        kernels.route_statistics(
            stream, {.N = p.N,
                     .E = p.E,
                     .form = p.form,
                     .logits = logits.data(),
                     .targets = p.masked ? targets.data() : nullptr,
                     .rows = of_tokens.data()});
        kernels.sum_rows(
            stream,
            {.R = 2, .N = p.N, .rows = of_tokens.data(), .sums = sums.data()});
        kernels.count_pairs(stream,
                            {.N = p.N,
                             .E = p.E,
                             .k = p.k,
                             .G = groups,
                             .tokens = tokens,
                             .first = first,
                             .ids = ids.data(),
                             .targets = p.masked ? targets.data() : nullptr,
                             .counts = counts.data()});
        kernels.balance(stream, {.G = groups,
                                 .E = p.E,
                                 .k = p.k,
                                 .weight = 0.75,
                                 .counts = counts.data(),
                                 .dshares = balance.data()});
        kernels.balance(stream, {.G = groups,
                                 .E = p.E,
                                 .k = p.k,
                                 .weight = 0.75,
                                 .loads = loads.data(),
                                 .dshares = by_loads.data()});
        return {Result("entropies", of_tokens, 4 * Tolerance<float>(p.E)),
                Result("sums", sums, 4 * Tolerance<float>(p.E)),
                Result("counts", counts, 0), Result("balance", balance, 1e-7),
                Result("by loads", by_loads, 1e-7)};
      });
}

}  // namespace

std::vector<Case> RouterCases() {
  std::vector<Case> cases;
  const RouterForm softmax = {}, mixtral = {.normalise = true};
  const RouterForm deepseek = {.sigmoid = true,
                               .normalise = true,
                               .groups = 4,
                               .top_groups = 2,
                               .scale = 2.5};
  for (const Shape& p : std::vector<Shape>{
           {.N = 1, .E = 1, .k = 1},
           {.N = 7, .E = 5, .k = 5, .form = mixtral},
           {.N = 33, .E = 8, .k = 2, .form = softmax},
           {.N = 33, .E = 8, .k = 2, .form = mixtral, .masked = true},
           {.N = 40, .E = 67, .k = 3, .form = mixtral, .bias = true},
           {.N = 16, .E = 64, .k = 8, .form = softmax, .ties = true},
           {.N = 16, .E = 16, .k = 16, .form = {.sigmoid = true}, .ties = true},
           {.N = 24, .E = 32, .k = 4, .form = deepseek, .bias = true},
           {.N = 24, .E = 32, .k = 4, .form = deepseek, .ties = true},
           {.N = 24,
           .E = 8,
           .k = 3,
           .form = {.groups = 8, .top_groups = 3, .scale = 0.5},
           .masked = true},
           {.N = 20, .E = 48, .k = 6, .form = {.prototypes = 6}},
           {.N = 20,
           .E = 48,
           .k = 12,
           .form = {.prototypes = 6, .normalise = true},
           .bias = true,
           .masked = true}}) {
    cases.push_back(RouteCase(p));
    cases.push_back(BalanceCase(p));
  }
  for (const Shape& p : NotFiniteShapes()) {
    cases.push_back(NotFiniteRouteCase(p));
  }
  return cases;
}

}  // namespace delink::testing
