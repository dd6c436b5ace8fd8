// The list of measured kernels: those of mixtures of experts.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "tools/bench/op_list.h"

namespace delink::bench {
namespace {

// How tokens are spread over experts.
enum class Spread : uint8_t { kEven, kHot, kIdle, kRandom, kZipf, kRank };
constexpr struct {
  Spread spread;
  const char* name;
} kSpreads[] = {{Spread::kEven, "even"},
                {Spread::kHot, "hot"},    // half of all tokens choose expert 0
                {Spread::kIdle, "idle"},  // half of the experts have none
                {Spread::kRandom, "random"},
                {Spread::kZipf, "zipf"},   // of a density that falls as x^-1.2
                {Spread::kRank, "rank"}};  // an eighth of experts has all

// Choice j of token n.
int64_t Chosen(Spread spread, const OpSizes& d, int64_t n, int64_t j) {
  const int64_t next = n * d.k + j;
  const uint32_t word = Philox(KeyFromSeed(1), static_cast<uint64_t>(n), 0)[0];
  switch (spread) {
    case Spread::kEven:
      return next % d.E;
    case Spread::kHot:
      return n % 2 == 0 && j == 0 ? 0 : 1 + next % (d.E - 1);
    case Spread::kIdle:
      return next % (d.E / 2);
    case Spread::kRandom:
      return (word + j) % d.E;
    case Spread::kZipf: {
      // From 1 at the first word to E + 1 behind the last.
      const double rest = 1 - std::pow(d.E + 1, -0.2);
      return (static_cast<int64_t>(std::pow(1 - word * 0x1p-32 * rest, -5)) -
              1 + j) %
             d.E;
    }
    case Spread::kRank:
      return next % std::max(d.k, d.E / 8);
  }
  return 0;
}

// As assign_rows makes them (expert_arguments.h).
struct Places {
  std::vector<int32_t> ids, offsets, rows, pairs;
};

std::shared_ptr<const Places> PlacesOf(Spread spread, const OpSizes& d) {
  const auto count = static_cast<size_t>(d.N * d.k);
  Places p = {.ids = std::vector<int32_t>(count),
              .offsets = std::vector<int32_t>(static_cast<size_t>(d.E + 1)),
              .rows = std::vector<int32_t>(count),
              .pairs = std::vector<int32_t>(count)};
  for (int64_t i = 0; i < d.N * d.k; ++i) {
    const int64_t e = Chosen(spread, d, i / d.k, i % d.k);
    At(p.ids, i) = static_cast<int32_t>(e);
    ++At(p.offsets, e + 1);
  }
  std::partial_sum(p.offsets.begin(), p.offsets.end(), p.offsets.begin());
  std::vector<int32_t> next = p.offsets;
  for (int64_t i = 0; i < d.N * d.k; ++i) {
    const int32_t row = At(next, At(p.ids, i))++;
    At(p.rows, i) = row;
    At(p.pairs, row) = static_cast<int32_t>(i);
  }
  return std::make_shared<const Places>(std::move(p));
}

double* Doubles(Pieces& m, int64_t count) {
  return static_cast<double*>(m.Take(count, DType::kF64));
}

}  // namespace

void OpList::AddRouting() {
  const OpSizes d = sizes_;
  const DType t = dtype_, stat = StatisticsOf(t);
  const int64_t pairs = d.N * d.k, row_elements = d.N * d.D;
  const auto at = PlacesOf(Spread::kRandom, d);
  const std::string shape = By(d.N, d.E, d.k);
  // A router's product is in the statistics' type.
  if (t == stat) {
    AddMatmul("router", d.N, d.D, d.E, false, d.E);
  } else {
    Add("widen", By(d.N, d.D), kernels_->widen, [=](Pieces& m) {
      return WidenArgs{row_elements, m.Take(row_elements, t),
                       m.Take(row_elements, stat)};
    });
    Add("round_gradient", By(d.N, d.D), kernels_->round_gradient,
        [=](Pieces& m) {
          return RoundGradientArgs{row_elements, m.Take(row_elements, stat),
                                   m.Take(row_elements, t)};
        });
  }
  Add("route", shape, kernels_->route, [=](Pieces& m) {
    return RouteArgs{.N = d.N,
                     .E = d.E,
                     .k = d.k,
                     .logits = m.Take(d.N * d.E, stat),
                     .gates = m.Take(pairs, stat),
                     .ids = static_cast<int32_t*>(m.Take(pairs, DType::kI32))};
  });
  Add("route_backward", shape, kernels_->route_backward, [=](Pieces& m) {
    return RouteBackwardArgs{.N = d.N,
                             .E = d.E,
                             .k = d.k,
                             .logits = m.Take(d.N * d.E, stat),
                             .ids = m.Put(at->ids),
                             .dgates = m.Take(pairs, stat),
                             .dlogits = m.Take(d.N * d.E, stat)};
  });
  Add("route_statistics", shape, kernels_->route_statistics, [=](Pieces& m) {
    return RouteStatisticsArgs{.N = d.N,
                               .E = d.E,
                               .logits = m.Take(d.N * d.E, stat),
                               .rows = Doubles(m, 2 * d.N)};
  });
  Add("sum_rows", By(2, d.N), kernels_->sum_rows, [=](Pieces& m) {
    return SumRowsArgs{2, d.N, Doubles(m, 2 * d.N), Doubles(m, 2)};
  });
  Add("count_pairs", shape, kernels_->count_pairs, [=](Pieces& m) {
    return CountPairsArgs{.N = d.N,
                          .E = d.E,
                          .k = d.k,
                          .G = d.B,
                          .tokens = d.T,
                          .ids = m.Put(at->ids),
                          .counts = Doubles(m, d.B * (d.E + 1))};
  });
  Add("balance", By(d.B, d.E), kernels_->balance, [=](Pieces& m) {
    return BalanceArgs{.G = d.B,
                       .E = d.E,
                       .k = d.k,
                       .weight = 0.01,
                       .counts = Doubles(m, d.B * (d.E + 1)),
                       .dshares = m.Take(d.B * d.E, stat)};
  });
}

void OpList::AddRows() {
  const OpSizes d = sizes_;
  const DType t = dtype_;
  const int64_t pairs = d.N * d.k, row_elements = d.N * d.D;
  const auto at = PlacesOf(Spread::kRandom, d);
  Add("assign_rows", By(d.N, d.E, d.k), kernels_->assign_rows, [=](Pieces& m) {
    return AssignRowsArgs{
        .N = d.N,
        .E = d.E,
        .k = d.k,
        .ids = m.Put(at->ids),
        .offsets = m.Put(at->offsets),
        .rows = m.Put(at->rows),
        .pairs = m.Put(at->pairs),
        .loads = m.Put(std::vector<int32_t>(static_cast<size_t>(d.E)))};
  });
  Add("record_loads", By(d.E), kernels_->record_loads, [=](Pieces& m) {
    return RecordLoadsArgs{
        d.E, 0, m.Put(std::vector<int32_t>(static_cast<size_t>(d.E))),
        Doubles(m, d.E + 2)};
  });
  Add("gather_rows", By(pairs, d.D), kernels_->gather_rows, [=](Pieces& m) {
    return GatherRowsArgs{.E = d.E,
                          .k = d.k,
                          .cap = pairs,
                          .D = d.D,
                          .offsets = m.Put(at->offsets),
                          .pairs = m.Put(at->pairs),
                          .x = m.Take(row_elements, t),
                          .y = m.Take(pairs * d.D, t)};
  });
  Add("combine_rows", By(pairs, d.D), kernels_->combine_rows, [=](Pieces& m) {
    return CombineRowsArgs{.N = d.N,
                           .k = d.k,
                           .D = d.D,
                           .rows = m.Put(at->rows),
                           .x = m.Take(pairs * d.D, t),
                           .y = m.Take(row_elements, t)};
  });
}

void OpList::AddExperts() {
  const OpSizes d = sizes_;
  const DType t = dtype_, stat = StatisticsOf(t), p = kGradient;
  const int64_t cap = d.N * d.k;
  const struct {
    const char* name;
    int64_t in, out;
  } products[] = {{"up", d.D, 2 * d.F}, {"down", d.F, d.D}};
  const struct {
    const char* name;
    GroupedForm form;
  } forms[] = {{"forward", GroupedForm::kForward},
               {"dx", GroupedForm::kInput},
               {"dw", GroupedForm::kWeight}};
  for (const auto& [spread, spread_name] : kSpreads) {
    const auto at = PlacesOf(spread, d);
    for (const auto& product : products) {
      const int64_t in = product.in, out = product.out;
      for (const auto& [form_name, form] : forms) {
        const DType w = form == GroupedForm::kWeight ? p : t;
        Add(absl::StrCat("grouped ", product.name, " ", form_name, ", ",
                         spread_name),
            By(d.E, cap, out, in), kernels_->grouped_matmul,
            [=, form = form](Pieces& m) {
              return GroupedMatmulArgs{.E = d.E,
                                       .cap = cap,
                                       .in = in,
                                       .out = out,
                                       .form = form,
                                       .offsets = m.Put(at->offsets),
                                       .x = m.Take(cap * in, t),
                                       .y = m.Take(cap * out, t),
                                       .w = m.Take(d.E * out * in, w)};
            });
      }
    }
    const auto act = ExpertActivation::kSwiGlu;
    Add(absl::StrCat("expert_act forward, ", spread_name), By(cap, d.F),
        kernels_->expert_act_forward, [=](Pieces& m) {
          return ExpertActForwardArgs{.E = d.E,
                                      .cap = cap,
                                      .F = d.F,
                                      .activation = act,
                                      .offsets = m.Put(at->offsets),
                                      .pairs = m.Put(at->pairs),
                                      .gates = m.Take(cap, stat),
                                      .x = m.Take(2 * cap * d.F, t),
                                      .y = m.Take(cap * d.F, t)};
        });
    Add(absl::StrCat("expert_act backward, ", spread_name), By(cap, d.F),
        kernels_->expert_act_backward, [=](Pieces& m) {
          return ExpertActBackwardArgs{.E = d.E,
                                       .cap = cap,
                                       .F = d.F,
                                       .activation = act,
                                       .offsets = m.Put(at->offsets),
                                       .pairs = m.Put(at->pairs),
                                       .gates = m.Take(cap, stat),
                                       .dy = m.Take(cap * d.F, t),
                                       .x = m.Take(2 * cap * d.F, t),
                                       .dx = m.Take(2 * cap * d.F, t),
                                       .dgates = m.Take(cap, stat)};
        });
  }
}

}  // namespace delink::bench
