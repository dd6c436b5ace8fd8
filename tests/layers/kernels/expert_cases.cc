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
    const Guarded<int32_t> ids(p.Ids());
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
        const Guarded<int32_t> ids(Integers("ids", all * k, 9));
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
                                  .E = 9,
                                  .ids = ids.data(),
                                  .kept = kept.data()});
        EXPECT_GE(*std::max_element(kept.data(), kept.data() + all * k), 0);
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

// Pairs that go to ranks of `each` experts, or tokens `once`, and what a rank
// makes of them. With one_hot they are all for one rank's experts.
Case SlotsCase(int64_t N, int64_t k, int64_t ranks, int64_t each, int64_t cap,
               bool one_hot, bool loses, bool once) {
  return MakeCase(
      absl::StrFormat("slots N%d k%d ranks%d each%d cap%d one_hot%d once%d", N,
                      k, ranks, each, cap, one_hot, once),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        constexpr int64_t kWidth = 11;
        const int64_t width = once ? ranks : k, of_slot = once ? k : 1;
        const int64_t all = ranks * cap, first = ranks / 2 * each;
        std::vector<int32_t> chosen =
            Integers("ids", N * k,
                     static_cast<int32_t>(one_hot ? each : ranks * each) + 1);
        for (int32_t& id : chosen) {
          id =
              id == 0 ? -1 : id - 1 + static_cast<int32_t>(one_hot ? first : 0);
        }
        const Guarded<int32_t> ids(chosen);
        Guarded<int32_t> slots(N * width), pairs(all), to_ids(all * of_slot),
            again(all * of_slot);
        Guarded<double> lost(1);
        lost[0] = 2;
        AssignSlotsArgs args = {.N = N,
                                .k = k,
                                .ranks = ranks,
                                .each = each,
                                .cap = cap,
                                .once = once,
                                .ids = ids.data(),
                                .slots = slots.data(),
                                .pairs = pairs.data(),
                                .to_ids = to_ids.data(),
                                .lost = lost.data()};
        kernels.assign_slots(stream, args);
        EXPECT_EQ(lost[0] > 2, loses);
        args.lost = nullptr;
        args.to_ids = again.data();
        kernels.assign_slots(stream, args);
        const auto x = Input<T>("x", N * kWidth);
        Guarded<T> sent(all * kWidth);
        kernels.gather_rows(stream, {.E = each,
                                     .k = width,
                                     .cap = all,
                                     .D = kWidth,
                                     .offsets = nullptr,
                                     .pairs = pairs.data(),
                                     .x = x.data(),
                                     .y = sent.data()});
        // The experts of a rank in the middle, in the place of the ids.
        Guarded<int32_t> kept(chosen);
        kernels.kept_ids(stream, {.N = N,
                                  .k = k,
                                  .E = each,
                                  .first = first,
                                  .ids = kept.data(),
                                  .kept = kept.data()});
        return {Result("slots", slots, 0),   Result("pairs", pairs, 0),
                Result("to_ids", to_ids, 0), Result("to_ids again", again, 0),
                Result("lost", lost, 0),     Result("sent", sent, 0),
                Result("kept", kept, 0)};
      });
}

// Of experts with equal matrices, a row's bits do not depend on which expert
// has it, or on the rows beside it.
Case TilesCase(int64_t in, int64_t out) {
  return MakeCase(
      absl::StrFormat("tiles in%d out%d", in, out),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        constexpr int64_t kRows = 271;
        const auto one = Input<T>("w", out * in);
        Guarded<T> w(5 * out * in);
        for (int64_t e = 0; e < 5; ++e) {
          std::copy_n(one.data(), out * in, w.data() + e * out * in);
        }
        auto x = Input<T>("x", kRows * in), y = Input<T>("y", kRows * out);
        Outputs outputs;
        for (const std::vector<int32_t>& bounds :
             std::vector<std::vector<int32_t>>{{0, kRows},
                                               {0, 0, 3, 131, 131, kRows}}) {
          const Guarded<int32_t> offsets(bounds);
          Guarded<T> to_x(kRows * in), to_y(kRows * out);
          GroupedMatmulArgs product = {.E = std::ssize(bounds) - 1,
                                       .cap = kRows,
                                       .in = in,
                                       .out = out,
                                       .form = GroupedForm::kForward,
                                       .offsets = offsets.data(),
                                       .x = x.data(),
                                       .y = to_y.data(),
                                       .w = w.data()};
          kernels.grouped_matmul(stream, product);
          product.form = GroupedForm::kInput;
          product.x = to_x.data();
          product.y = y.data();
          kernels.grouped_matmul(stream, product);
          outputs.push_back(Result("y", to_y, Tolerance<float>(in)));
          outputs.push_back(Result("x", to_x, Tolerance<float>(out)));
        }
        EXPECT_EQ(outputs[0].values, outputs[2].values);
        EXPECT_EQ(outputs[1].values, outputs[3].values);
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

// Products around the edges of a GPU's tiles, of 128 (64 in f32) rows and
// columns and a depth of 32 (16); with rows of 16 bytes and without.
std::vector<Rows> EdgesOfTiles() {
  return {
      {.N = 256, .E = 1, .k = 1, .in = 32, .out = 128},
      {.N = 129, .E = 2, .k = 1, .in = 40, .out = 136},
      {.N = 140, .E = 3, .k = 1, .in = 136, .out = 131},
      {.N = 140, .E = 3, .k = 1, .in = 131, .out = 136},
      {.N = 20, .E = 7, .k = 2, .in = 33, .out = 130, .loads = Loads::kOneHot},
      {.N = 3, .E = 70, .k = 1, .in = 24, .out = 10}};
}

// Segments of pairs, and of the list of an expert, that a GPU's warps and
// blocks have.
std::vector<Rows> ManyPairs() {
  return {{.N = 1000, .E = 1, .k = 1, .in = 3},
          {.N = 257, .E = 300, .k = 3, .in = 2},
          {.N = 70'000, .E = 5, .k = 2, .in = 1},
          {.N = 700,
           .E = 3,
           .k = 2,
           .in = 1,
           .loads = Loads::kOneHot,
           .capacity = 300},
          {.N = 700,
           .E = 3,
           .k = 2,
           .in = 1,
           .loads = Loads::kHalfIdle,
           .capacity = 300,
           .by_gate = true,
           .masked = true},
          {.N = 700, .E = 3, .k = 2, .in = 1, .masked = true}};
}

}  // namespace

std::vector<Case> ExpertCases() {
  std::vector<Case> cases;
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
  for (const Rows& p : EdgesOfTiles()) cases.push_back(GroupedCase(p));
  for (const Rows& p : ManyPairs()) cases.push_back(RowsCase(p));
  cases.push_back(TilesCase(48, 136));
  cases.push_back(TilesCase(35, 21));
  for (const bool once : {false, true}) {
    cases.push_back(SlotsCase(1, 1, 1, 1, 1, false, false, once));
    cases.push_back(SlotsCase(200, 1, 2, 3, 120, false, false, once));
    cases.push_back(SlotsCase(100, 3, 4, 5, 200, false, false, once));
    cases.push_back(SlotsCase(100, 3, 4, 5, 40, false, true, once));
    cases.push_back(SlotsCase(300, 2, 3, 2, 200, true, true, once));
    cases.push_back(SlotsCase(300, 2, 3, 2, 600, true, false, once));
  }
  cases.push_back(TokensOfRanksCase(3, 5, 2, true));
  cases.push_back(TokensOfRanksCase(1, 1, 1, false));
  cases.push_back(TokensOfRanksCase(2, 300, 1, false));
  cases.push_back(ActivationCase(rows[1], ExpertActivation::kSwiGlu, true));
  return cases;
}

}  // namespace delink::testing
