#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/layers/kernels/cases.h"

namespace delink::testing {
namespace {

// The first `count` elements; those behind may never have been written.
template <typename T>
Output FirstOf(std::string name, const Guarded<T>& buffer, int64_t count,
               double tolerance) {
  return {std::move(name),
          {buffer.data(), buffer.data() + count},
          tolerance,
          std::is_same_v<T, BFloat16>};
}

Guarded<int32_t> Copied(const std::vector<int32_t>& values) {
  Guarded<int32_t> copy(static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), copy.data());
  return copy;
}

// Some tokens have no target.
Guarded<int32_t> Targets(int64_t N) {
  std::vector<int32_t> targets = Integers("targets", N, 4);
  for (int32_t& target : targets) target -= 1;
  return Copied(targets);
}

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
        const auto ids =
            Copied(Integers("ids", p.N * p.k, static_cast<int32_t>(p.E)));
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

enum class Loads : uint8_t { kRandom, kOneHot, kHalfIdle };

struct Rows {
  int64_t N, E, k, in, out;
  Loads loads = Loads::kRandom;
  int64_t capacity = 0;
  bool by_gate = false, masked = false;

  std::vector<int32_t> Ids() const {
    std::vector<int32_t> ids = Integers("ids", N * k, static_cast<int32_t>(E));
    for (int64_t pair = 0; pair < N * k; ++pair) {
      int32_t& id = ids[static_cast<size_t>(pair)];
      if (loads == Loads::kOneHot) id = static_cast<int32_t>(E / 2);
      if (loads == Loads::kHalfIdle) id = static_cast<int32_t>(id / 2 * 2);
    }
    return ids;
  }
};

template <typename T>
struct Sorted {
  Guarded<int32_t> offsets, rows, pairs, loads;
  int64_t cap, count = 0;

  Sorted(const Kernels& kernels, Stream& stream, const Rows& p,
         const Guarded<Wide<T>>& gates)
      : offsets(p.E + 1),
        rows(p.N * p.k),
        pairs(p.N * p.k),
        loads(p.E),
        cap(p.N * p.k) {
    const auto ids = Copied(p.Ids());
    const auto targets = Targets(p.N);
    kernels.assign_rows(stream, {.N = p.N,
                                 .E = p.E,
                                 .k = p.k,
                                 .ids = ids.data(),
                                 .targets = p.masked ? targets.data() : nullptr,
                                 .capacity = p.capacity,
                                 .gates = p.by_gate ? gates.data() : nullptr,
                                 .offsets = offsets.data(),
                                 .rows = rows.data(),
                                 .pairs = pairs.data(),
                                 .loads = loads.data()});
    count = offsets[p.E];
  }
};

template <typename T>
Guarded<Wide<T>> Gates(int64_t count) {
  auto gates = Input<Wide<T>>("gates", count);
  // Some are equal.
  for (int64_t i = 0; i < count; i += 3) gates[i] = static_cast<Wide<T>>(0.5);
  return gates;
}

std::string NameOf(const char* what, const Rows& p) {
  return absl::StrFormat(
      "%s N%d E%d k%d in%d out%d loads%d capacity%d by_gate%d masked%d", what,
      p.N, p.E, p.k, p.in, p.out, static_cast<int>(p.loads), p.capacity,
      p.by_gate, p.masked);
}

Case RowsCase(const Rows& p) {
  return MakeCase(
      NameOf("rows", p),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const Sorted<T> sorted(kernels, stream, p, Gates<T>(p.N * p.k));
        const auto x = Input<T>("x", p.N * p.in);
        const auto of_rows = Input<T>("rows", sorted.cap * p.in);
        Guarded<T> gathered(sorted.cap * p.in), combined(p.N * p.in);
        kernels.gather_rows(stream, {.E = p.E,
                                     .k = p.k,
                                     .cap = sorted.cap,
                                     .D = p.in,
                                     .offsets = sorted.offsets.data(),
                                     .pairs = sorted.pairs.data(),
                                     .x = x.data(),
                                     .y = gathered.data()});
        kernels.combine_rows(stream, {.N = p.N,
                                      .k = p.k,
                                      .D = p.in,
                                      .rows = sorted.rows.data(),
                                      .x = of_rows.data(),
                                      .y = combined.data()});
        Guarded<double> sums(p.E + 2);
        std::fill_n(sums.data(), p.E + 2, 3.0);
        kernels.record_loads(stream, {.E = p.E,
                                      .capacity = p.capacity,
                                      .loads = sorted.loads.data(),
                                      .sums = sums.data()});
        return {Result("sums", sums, 0),
                Result("offsets", sorted.offsets, 0),
                Result("rows", sorted.rows, 0),
                FirstOf("pairs", sorted.pairs, sorted.count, 0),
                Result("loads", sorted.loads, 0),
                FirstOf("gathered", gathered, sorted.count * p.in, 0),
                Result("combined", combined, Tolerance<float>(p.k))};
      });
}

// Pairs that ranks have in turn, of rows of 2 T tokens whose places are mixed.
Case TokensOfRanksCase(int64_t B, int64_t T, int64_t k, bool masked) {
  return MakeCase(
      absl::StrFormat("tokens of ranks B%d T%d k%d masked%d", B, T, k, masked),
      [=]<typename U>(const Kernels& kernels, Stream& stream) -> Outputs {
        using S = Wide<U>;
        const int64_t N = B * T, all = 2 * N;
        const auto ids = Copied(Integers("ids", all * k, 9));
        const auto targets = Targets(all);
        const auto gates = Gates<U>(all * k);
        Guarded<int32_t> places(2 * T), numbers(all), to_ids(all * k),
            to_targets(all), rows(all * k), kept(all * k);
        Guarded<S> to_gates(all * k);
        // Of the first rank the places that are even, of the other those that
        // are odd.
        for (int64_t t = 0; t < 2 * T; ++t) {
          places[t] = static_cast<int32_t>(t < T ? 2 * t : 2 * (t - T) + 1);
        }
        for (int64_t rank = 0; rank < 2; ++rank) {
          // Each has its tokens in two pieces.
          const int64_t half = N / 2;
          for (const auto& [first, count] :
               {std::pair{int64_t{0}, half}, std::pair{half, N - half}}) {
            kernels.number_tokens(
                stream, {.N = count,
                         .T = T,
                         .R = 2 * T,
                         .first = first,
                         .places = places.data() + rank * T,
                         .numbers = numbers.data() + rank * N + first});
          }
        }
        kernels.order_tokens(
            stream, {.N = all,
                     .k = k,
                     .numbers = numbers.data(),
                     .ids = ids.data(),
                     .gates = gates.data(),
                     .targets = masked ? targets.data() : nullptr,
                     .to_ids = to_ids.data(),
                     .to_gates = to_gates.data(),
                     .to_targets = masked ? to_targets.data() : nullptr});
        for (int64_t pair = 0; pair < all * k; ++pair) {
          rows[pair] = to_ids[pair] % 3 == 0 ? -1 : 1;
        }
        kernels.kept_ids(stream, {.N = all,
                                  .k = k,
                                  .numbers = numbers.data(),
                                  .rows = rows.data(),
                                  .ids = ids.data(),
                                  .kept = kept.data()});
        // What is dropped has no row.
        Guarded<int32_t> offsets(10), of_kept(all * k), pairs(all * k),
            loads(9);
        kernels.assign_rows(stream, {.N = all,
                                     .E = 9,
                                     .k = k,
                                     .ids = kept.data(),
                                     .offsets = offsets.data(),
                                     .rows = of_kept.data(),
                                     .pairs = pairs.data(),
                                     .loads = loads.data()});
        Outputs outputs;
        outputs.push_back(Result("numbers", numbers, 0));
        outputs.push_back(Result("ids", to_ids, 0));
        outputs.push_back(Result("gates", to_gates, 0));
        if (masked) outputs.push_back(Result("targets", to_targets, 0));
        outputs.push_back(Result("kept", kept, 0));
        outputs.push_back(Result("offsets", offsets, 0));
        outputs.push_back(Result("rows", of_kept, 0));
        outputs.push_back(FirstOf("pairs", pairs, offsets[9], 0));
        outputs.push_back(Result("loads", loads, 0));
        return outputs;
      });
}

Case GroupedCase(const Rows& p) {
  return MakeCase(
      NameOf("grouped", p),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        using P = Wide<T>;
        const Sorted<T> sorted(kernels, stream, p, Gates<T>(p.N * p.k));
        auto x = Input<T>("x", sorted.cap * p.in);
        auto y = Input<T>("y", sorted.cap * p.out);
        auto w = Input<T>("w", p.E * p.out * p.in);
        Guarded<T> to_x(sorted.cap * p.in), to_y(sorted.cap * p.out);
        Guarded<T> narrow(p.E * p.out * p.in);
        Guarded<P> dw(p.E * p.out * p.in);
        auto more = Input<P>("dw", p.E * p.out * p.in);
        GroupedMatmulArgs product = {.E = p.E,
                                     .cap = sorted.cap,
                                     .in = p.in,
                                     .out = p.out,
                                     .form = GroupedForm::kForward,
                                     .offsets = sorted.offsets.data(),
                                     .x = x.data(),
                                     .y = to_y.data(),
                                     .w = w.data()};
        kernels.grouped_matmul(stream, product);
        product.form = GroupedForm::kInput;
        product.x = to_x.data();
        product.y = y.data();
        kernels.grouped_matmul(stream, product);
        product.form = GroupedForm::kWeight;
        product.x = x.data();
        product.w = dw.data();
        kernels.grouped_matmul(stream, product);
        product.w = more.data();
        product.accumulate = true;
        kernels.grouped_matmul(stream, product);
        product.w = narrow.data();
        product.accumulate = false;
        product.narrow = true;
        kernels.grouped_matmul(stream, product);
        const double rows = Tolerance<float>(sorted.cap);
        return {
            FirstOf("y", to_y, sorted.count * p.out, Tolerance<float>(p.in)),
            FirstOf("x", to_x, sorted.count * p.in, Tolerance<float>(p.out)),
            Result("dw", dw, rows), Result("dw added", more, rows),
            Result("dw narrow", narrow, rows)};
      });
}

Case BiasCase(const Rows& p, bool gated) {
  return MakeCase(
      absl::StrFormat("%s gated%d", NameOf("biases of experts", p), gated),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        using P = Wide<T>;
        const auto gates = Gates<T>(p.N * p.k);
        const Sorted<T> sorted(kernels, stream, p, gates);
        const auto b = Input<T>("b", p.E * p.out);
        const auto dy = Input<T>("dy", sorted.cap * p.out);
        auto y = Input<T>("y", sorted.cap * p.out);
        auto more = Input<P>("db", p.E * p.out);
        Guarded<P> db(p.E * p.out), dgates(p.N * p.k);
        std::fill_n(dgates.data(), p.N * p.k, P{0});
        const void* const by = gated ? gates.data() : nullptr;
        kernels.grouped_bias(stream, {.E = p.E,
                                      .cap = sorted.cap,
                                      .D = p.out,
                                      .offsets = sorted.offsets.data(),
                                      .pairs = sorted.pairs.data(),
                                      .gates = by,
                                      .b = b.data(),
                                      .y = y.data()});
        GroupedBiasGradArgs back = {.E = p.E,
                                    .cap = sorted.cap,
                                    .D = p.out,
                                    .offsets = sorted.offsets.data(),
                                    .pairs = sorted.pairs.data(),
                                    .gates = by,
                                    .dy = dy.data(),
                                    .db = db.data()};
        kernels.grouped_bias_grad(stream, back);
        back.db = more.data();
        back.accumulate = true;
        kernels.grouped_bias_grad(stream, back);
        kernels.grouped_bias_gates(stream, {.E = p.E,
                                            .cap = sorted.cap,
                                            .D = p.out,
                                            .offsets = sorted.offsets.data(),
                                            .pairs = sorted.pairs.data(),
                                            .b = b.data(),
                                            .dy = dy.data(),
                                            .dgates = dgates.data()});
        const double rows = Tolerance<float>(sorted.cap);
        return {FirstOf("y", y, sorted.count * p.out, Tolerance<float>(2)),
                Result("db", db, rows), Result("db added", more, rows),
                Result("dgates", dgates, 4 * Tolerance<float>(p.out))};
      });
}

Case ActivationCase(const Rows& p, ExpertActivation activation, bool in_place) {
  return MakeCase(
      absl::StrFormat("%s activation%d in_place%d", NameOf("experts", p),
                      static_cast<int>(activation), in_place),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        const auto gates = Gates<T>(p.N * p.k);
        const Sorted<T> sorted(kernels, stream, p, gates);
        const int64_t F = p.out;
        const int64_t width =
            activation == ExpertActivation::kSwiGlu ? 2 * F : F;
        auto x = Input<T>("x", sorted.cap * width, 4.0);
        const auto dy = Input<T>("dy", sorted.cap * F);
        Guarded<T> y(sorted.cap * F), dx(sorted.cap * width);
        Guarded<Wide<T>> dgates(p.N * p.k);
        std::fill_n(dgates.data(), p.N * p.k, Wide<T>{0});
        kernels.expert_act_forward(stream, {.E = p.E,
                                            .cap = sorted.cap,
                                            .F = F,
                                            .activation = activation,
                                            .offsets = sorted.offsets.data(),
                                            .pairs = sorted.pairs.data(),
                                            .gates = gates.data(),
                                            .x = x.data(),
                                            .y = y.data()});
        T* const to = in_place ? x.data() : dx.data();
        kernels.expert_act_backward(stream, {.E = p.E,
                                             .cap = sorted.cap,
                                             .F = F,
                                             .activation = activation,
                                             .offsets = sorted.offsets.data(),
                                             .pairs = sorted.pairs.data(),
                                             .gates = gates.data(),
                                             .dy = dy.data(),
                                             .x = x.data(),
                                             .dx = to,
                                             .dgates = dgates.data()});
        return {FirstOf("y", y, sorted.count * F, Tolerance<float>(8)),
                FirstOf("dx", in_place ? x : dx, sorted.count * width,
                        Tolerance<float>(8)),
                Result("dgates", dgates, 4 * Tolerance<float>(F))};
      });
}

std::vector<Rows> AllRows() {
  return {
      {.N = 1, .E = 1, .k = 1, .in = 1, .out = 1},
      {.N = 37, .E = 5, .k = 2, .in = 17, .out = 13},
      {.N = 37, .E = 64, .k = 1, .in = 16, .out = 8},
      {.N = 70, .E = 3, .k = 2, .in = 31, .out = 65, .loads = Loads::kOneHot},
      {.N = 50, .E = 8, .k = 4, .in = 8, .out = 24, .loads = Loads::kHalfIdle},
      {.N = 300, .E = 4, .k = 2, .in = 64, .out = 96},
      {.N = 310, .E = 3, .k = 1, .in = 600, .out = 72, .loads = Loads::kOneHot},
      {.N = 50, .E = 6, .k = 2, .in = 9, .out = 7, .capacity = 5},
      {.N = 50,
       .E = 6,
       .k = 2,
       .in = 9,
       .out = 7,
       .capacity = 5,
       .by_gate = true},
      {.N = 90,
       .E = 6,
       .k = 3,
       .in = 9,
       .out = 7,
       .capacity = 11,
       .by_gate = true,
       .masked = true},
      // A capacity above the tokens (DeepSpeed#8155).
      {.N = 20,
       .E = 3,
       .k = 2,
       .in = 5,
       .out = 4,
       .capacity = 1000,
       .by_gate = true},
      {.N = 40,
       .E = 2,
       .k = 1,
       .in = 3,
       .out = 5,
       .loads = Loads::kOneHot,
       .capacity = 1,
       .masked = true}};
}

}  // namespace

std::vector<Case> ExpertCases() {
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
  const std::vector<Rows> rows = AllRows();
  for (const Rows& p : rows) {
    cases.push_back(RowsCase(p));
    cases.push_back(GroupedCase(p));
    cases.push_back(BiasCase(p, false));
    cases.push_back(BiasCase(p, true));
    cases.push_back(ActivationCase(p, ExpertActivation::kSwiGlu, false));
    cases.push_back(ActivationCase(p, ExpertActivation::kGeluTanh, true));
    cases.push_back(ActivationCase(p, ExpertActivation::kGeluErf, false));
  }
  cases.push_back(TokensOfRanksCase(3, 5, 2, true));
  cases.push_back(TokensOfRanksCase(1, 1, 1, false));
  cases.push_back(TokensOfRanksCase(2, 300, 1, false));
  cases.push_back(ActivationCase(rows[1], ExpertActivation::kSwiGlu, true));
  return cases;
}

}  // namespace delink::testing
