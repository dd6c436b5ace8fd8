#include "layers/kernels/work.h"

#include <algorithm>
#include <cstdint>

namespace delink {
namespace {

// Bytes of n elements of the table's type, of statistics and of parameters'
// gradients.
struct Bytes {
  explicit Bytes(DType dtype) : dtype(dtype) {}
  double T(int64_t n) const { return Of(n, dtype); }
  double S(int64_t n) const { return Of(n, StatisticsOf(dtype)); }
  double P(int64_t n) const {
    return Of(n, dtype == DType::kBF16 ? DType::kF32 : dtype);
  }
  // For a gradient that may be of the table's type.
  double P(int64_t n, bool narrow) const { return narrow ? T(n) : P(n); }
  // The bytes that are read too if a gradient is added to.
  double Added(int64_t n, bool accumulate, bool narrow = false) const {
    return accumulate ? P(n, narrow) : 0;
  }

  static double Of(int64_t n, DType dtype) {
    return static_cast<double>(n) * static_cast<double>(SizeOf(dtype));
  }
  DType dtype;
};

double Tokens(int64_t n) { return Bytes::Of(n, DType::kI32); }

// Pairs of a query and a key that it sees, for one head.
template <typename Args>
double Pairs(const Args& a) {
  const int64_t first = a.Tk - a.Tq;  // keys before the first query
  double pairs = 0;
  for (int64_t i = 0; i < a.Tq; ++i) {
    const int64_t seen = first + i + 1;
    pairs +=
        static_cast<double>(a.window > 0 ? std::min(seen, a.window) : seen);
  }
  return pairs;
}

// FLOPs of one product over all pairs.
template <typename Args>
double Product(const Args& a) {
  return 2.0 * static_cast<double>(a.B * a.H * a.Dh) * Pairs(a);
}

Work Count(const MatmulArgs& a, DType dtype) {
  const Bytes b(dtype);
  const double c = a.c_is_gradient ? b.P(a.m * a.n) : b.T(a.m * a.n);
  return {.flops = 2.0 * static_cast<double>(a.m) * static_cast<double>(a.n) *
                   static_cast<double>(a.k),
          .read = b.T(a.m * a.k) + b.T(a.k * a.n) + (a.accumulate ? c : 0) +
                  (a.bias != nullptr ? b.T(a.n) : 0),
          .written = c,
          .m = a.m,
          .n = a.n,
          .k = a.k,
          .transpose_a = a.transpose_a,
          .transpose_b = a.transpose_b};
}

Work Count(const MatmulGeluArgs& a, DType dtype) {
  Work work = Count(a.product, dtype);
  work.written += Bytes(dtype).T(a.product.m * a.product.n);
  return work;
}

Work Count(const MatmulGeluBackwardArgs& a, DType dtype) {
  Work work = Count(a.product, dtype);
  work.read += Bytes(dtype).T(a.product.m * a.product.n);
  return work;
}

Work Count(const MatmulBiasGradArgs& a, DType dtype) {
  const Bytes b(dtype);
  Work work = Count(a.product, dtype);
  work.read += b.Added(a.product.m, a.product.accumulate);
  work.written += b.P(a.product.m);
  return work;
}

Work Count(const BiasGradArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.T(a.N * a.D) + b.Added(a.D, a.accumulate),
          .written = b.P(a.D)};
}

Work Count(const LayerNormForwardArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.T((a.add != nullptr ? 2 : 1) * a.N * a.D) +
                  b.T(a.b != nullptr ? 2 * a.D : a.D),
          .written = b.T((a.add != nullptr ? 2 : 1) * a.N * a.D) +
                     (a.mean != nullptr ? b.S(2 * a.N) : 0)};
}

Work Count(const LayerNormBackwardInputArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.T((a.add != nullptr ? 3 : 2) * a.N * a.D) + b.T(a.D) +
                  b.S(2 * a.N),
          .written = b.T(a.N * a.D)};
}

Work Count(const LayerNormBackwardWeightArgs& a, DType dtype) {
  const Bytes b(dtype);
  const int64_t out = a.db != nullptr ? 2 * a.D : a.D;
  return {
      .read = b.T(2 * a.N * a.D) + b.S(2 * a.N) + b.Added(out, a.accumulate),
      .written = b.P(out)};
}

Work Count(const RmsNormForwardArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.T((a.add != nullptr ? 2 : 1) * a.N * a.D) + b.T(a.D),
          .written = b.T((a.add != nullptr ? 2 : 1) * a.N * a.D) +
                     (a.rstd != nullptr ? b.S(a.N) : 0)};
}

Work Count(const RmsNormBackwardInputArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {
      .read = b.T((a.add != nullptr ? 3 : 2) * a.N * a.D) + b.T(a.D) + b.S(a.N),
      .written = b.T(a.N * a.D)};
}

Work Count(const RmsNormBackwardWeightArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.T(2 * a.N * a.D) + b.S(a.N) + b.Added(a.D, a.accumulate),
          .written = b.P(a.D)};
}

Work Count(const QkNormForwardArgs& a, DType dtype) {
  const Bytes b(dtype);
  const int64_t x = a.N * (a.H + 2 * a.Hkv) * a.Dh;
  return {
      .read = b.T(x) + b.T(2 * a.Dh),
      .written = b.T(x) + (a.rstd != nullptr ? b.S(a.N * (a.H + a.Hkv)) : 0)};
}

Work Count(const QkNormBackwardInputArgs& a, DType dtype) {
  const Bytes b(dtype);
  const int64_t x = a.N * (a.H + 2 * a.Hkv) * a.Dh;
  return {.read = b.T(2 * x) + b.T(2 * a.Dh) + b.S(a.N * (a.H + a.Hkv)),
          .written = b.T(x)};
}

Work Count(const QkNormBackwardWeightArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.T(2 * a.N * a.heads * a.Dh) + b.S(a.N * a.heads) +
                  b.Added(a.Dh, a.accumulate),
          .written = b.P(a.Dh)};
}

Work Count(const GeluForwardArgs& a, DType dtype) {
  const double x = Bytes(dtype).T(a.count);
  return {.read = x, .written = x};
}

Work Count(const GeluBackwardArgs& a, DType dtype) {
  const double x = Bytes(dtype).T(a.count);
  return {.read = 2 * x, .written = x};
}

Work Count(const SwiGluForwardArgs& a, DType dtype) {
  const double y = Bytes(dtype).T(a.N * a.F);
  return {.read = 2 * y, .written = y};
}

Work Count(const SwiGluBackwardArgs& a, DType dtype) {
  const double y = Bytes(dtype).T(a.N * a.F);
  return {.read = 3 * y, .written = 2 * y};
}

Work Count(const RotaryArgs& a, DType dtype) {
  const double x = Bytes(dtype).T(a.B * a.T * a.heads * 2 * a.angles->pairs);
  return {.read = x, .written = x};
}

Work Count(const AddArgs& a, DType dtype) {
  const double y = Bytes(dtype).T(a.count);
  return {.read = 2 * y, .written = y};
}

Work Count(const AccumulateArgs& a, DType dtype) {
  const double y = Bytes(dtype).T(a.count);
  return {.read = 2 * y, .written = y};
}

Work Count(const RoundGradientArgs& a, DType dtype) {
  const double y = Bytes::Of(a.count, DType::kBF16);
  return {.read = Bytes(dtype).P(a.count) + (a.accumulate ? y : 0),
          .written = y};
}

Work Count(const WidenArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.T(a.count), .written = b.S(a.count)};
}

Work Count(const DropoutArgs& a, DType dtype) {
  const double x = Bytes(dtype).T((a.rows < 0 ? a.B * a.T : a.rows) * a.D);
  return {.read = x, .written = x};
}

Work Count(const EmbeddingForwardArgs& a, DType dtype) {
  const Bytes b(dtype);
  const int64_t y = a.B * a.T * a.D;
  return {.read = b.T(y) + (a.p != nullptr ? b.T(a.T * a.D) : 0) +
                  Tokens(a.B * a.T),
          .written = b.T(y)};
}

Work Count(const EmbeddingBackwardWeightArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.T(a.N * a.D) + Tokens(a.N) +
                  b.Added(a.N * a.D, a.accumulate, a.narrow),
          .written = b.P((a.accumulate ? a.N : a.V) * a.D, a.narrow)};
}

Work Count(const EmbeddingBackwardPositionArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {
      .read = b.T(a.B * a.T * a.D) + b.Added(a.T * a.D, a.accumulate, a.narrow),
      .written = b.P((a.accumulate ? a.T : a.Tmax) * a.D, a.narrow)};
}

Work Count(const AttentionForwardArgs& a, DType dtype) {
  const Bytes b(dtype);
  const int64_t q = a.B * a.Tq * a.H * a.Dh;
  const int64_t kv = 2 * a.B * a.Tk * a.Hkv * a.Dh;
  return {.flops = 2 * Product(a),
          .read = b.T(q + kv),
          .written = b.T(q) + (a.lse != nullptr ? b.S(a.B * a.H * a.Tq) : 0),
          .m = a.Tq,
          .n = a.Tk,
          .k = a.Dh};
}

Work Count(const AttentionBackwardArgs& a, DType dtype) {
  const Bytes b(dtype);
  const int64_t q = a.B * a.Tq * a.H * a.Dh;
  const int64_t kv = 2 * a.B * a.Tk * a.Hkv * a.Dh;
  return {.flops = 5 * Product(a),
          .read = b.T(3 * q + kv) + b.S(a.B * a.H * a.Tq),
          .written = b.T(q + kv),
          .m = a.Tq,
          .n = a.Tk,
          .k = a.Dh};
}

Work Count(const CrossEntropyArgs& a, DType dtype) {
  const double logits = Bytes(dtype).T(a.N * a.V);
  return {.read = logits + Tokens(a.N), .written = a.want_grad ? logits : 0};
}

Work Count(const VocabMaxArgs& a, DType dtype) {
  return {.read = Bytes(dtype).T(a.N * a.V),
          .written = Bytes::Of(a.N, DType::kF64)};
}

Work Count(const VocabSumsArgs& a, DType dtype) {
  return {.read = Bytes(dtype).T(a.N * a.V) + Tokens(a.N) +
                  Bytes::Of(a.N, DType::kF64),
          .written = Bytes::Of(2 * a.N, DType::kF64)};
}

Work Count(const VocabCrossEntropyArgs& a, DType dtype) {
  const double logits = a.want_grad ? Bytes(dtype).T(a.N * a.V) : 0;
  return {.read = logits + Tokens(a.N) + Bytes::Of(3 * a.N, DType::kF64),
          .written = logits};
}

// Of a call that reads n and writes m elements.
Work Moved(int64_t n, int64_t m, const Bytes& b) {
  return {.read = b.T(n), .written = b.T(m)};
}

Work Count(const RouteArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.S(a.N * a.E + (a.bias != nullptr ? a.E : 0)),
          .written = b.S(a.N * a.k) + Tokens(a.N * a.k)};
}

Work Count(const RouteBackwardArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.S(a.N * a.E + a.N * a.k) + Tokens(a.N * a.k),
          .written = b.S(a.N * a.E)};
}

Work Count(const RouteStatisticsArgs& a, DType dtype) {
  return {.read = Bytes(dtype).S(a.N * a.E),
          .written = Bytes::Of(2 * a.N, DType::kF64)};
}

Work Count(const SumRowsArgs& a, DType) {
  const double sums = Bytes::Of(a.R, DType::kF64);
  return {.read = Bytes::Of(a.R * a.N, DType::kF64) + sums, .written = sums};
}

Work Count(const RecordLoadsArgs& a, DType) {
  const double sums = Bytes::Of(a.E + 2, DType::kF64);
  return {.read = Tokens(a.E) + sums, .written = sums};
}

Work Count(const CountPairsArgs& a, DType) {
  return {.read = Tokens(a.N * a.k),
          .written = Bytes::Of(a.G * (a.E + 1), DType::kF64)};
}

Work Count(const BalanceArgs& a, DType dtype) {
  return {.read = Bytes::Of(a.G * (a.E + 1), DType::kF64),
          .written = Bytes(dtype).S(a.G * a.E)};
}

Work Count(const NumberTokensArgs& a, DType) {
  return {.read = Tokens(a.places != nullptr ? a.T : 0),
          .written = Tokens(a.N)};
}

Work Count(const OrderTokensArgs& a, DType dtype) {
  const int64_t gates = a.gates != nullptr ? a.N * a.k : 0;
  const int64_t ints = a.N * a.k + (a.targets != nullptr ? a.N : 0);
  return {.read = Tokens(a.N + ints) + Bytes(dtype).S(gates),
          .written = Tokens(ints) + Bytes(dtype).S(gates)};
}

Work Count(const KeptIdsArgs& a, DType) {
  const int64_t pairs = a.N * a.k;
  return {.read = Tokens((a.numbers != nullptr ? a.N : 0) +
                         (a.rows != nullptr ? 2 : 1) * pairs),
          .written = Tokens(pairs)};
}

Work Count(const AssignRowsArgs& a, DType) {
  return {.read = Tokens(a.N * a.k), .written = Tokens(2 * a.N * a.k)};
}

Work Count(const AssignSlotsArgs& a, DType) {
  return {.read = Tokens(a.N * a.k),
          .written = Tokens(a.N * (a.once ? a.ranks : a.k) +
                            a.ranges() * a.cap * (a.once ? 1 + a.k : 2))};
}

// Rows are counted as if all of the cap were there.
Work Count(const GatherRowsArgs& a, DType dtype) {
  return Moved(a.cap * a.D, a.cap * a.D, Bytes(dtype));
}

Work Count(const CombineRowsArgs& a, DType dtype) {
  return Moved(a.N * a.k * a.D, a.N * a.D, Bytes(dtype));
}

Work Count(const GroupedMatmulArgs& a, DType dtype) {
  const Bytes b(dtype);
  const bool weight = a.form == GroupedForm::kWeight;
  const int64_t w = a.E * a.in * a.out;
  const int64_t rows = a.cap * (a.form == GroupedForm::kForward ? a.in : a.out);
  const double written =
      weight ? b.P(w, a.narrow) : b.T(a.cap * (a.in + a.out) - rows);
  return {.flops = 2.0 * static_cast<double>(a.cap * a.in) *
                   static_cast<double>(a.out),
          .read = weight ? b.T(a.cap * (a.in + a.out)) +
                               b.Added(w, a.accumulate, a.narrow)
                         : b.T(rows + w),
          .written = written,
          .m = weight ? a.out : a.cap,
          .n = a.form == GroupedForm::kForward ? a.out : a.in,
          .k = weight                            ? a.cap
               : a.form == GroupedForm::kForward ? a.in
                                                 : a.out,
          .transpose_a = weight,
          .transpose_b = a.form == GroupedForm::kForward};
}

Work Count(const GroupedBiasArgs& a, DType dtype) {
  return Moved(a.cap * a.D + a.E * a.D, a.cap * a.D, Bytes(dtype));
}

Work Count(const GroupedBiasGradArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.T(a.cap * a.D) + b.Added(a.E * a.D, a.accumulate),
          .written = b.P(a.E * a.D)};
}

Work Count(const GroupedBiasGatesArgs& a, DType dtype) {
  const Bytes b(dtype);
  return {.read = b.T(a.cap * a.D + a.E * a.D), .written = b.P(a.cap)};
}

// Elements of a row of the activation's input.
int64_t Inputs(ExpertActivation activation, int64_t F) {
  return activation == ExpertActivation::kSwiGlu ? 2 * F : F;
}

Work Count(const ExpertActForwardArgs& a, DType dtype) {
  return Moved(a.cap * Inputs(a.activation, a.F), a.cap * a.F, Bytes(dtype));
}

Work Count(const ExpertActBackwardArgs& a, DType dtype) {
  const int64_t x = Inputs(a.activation, a.F);
  return Moved(a.cap * (x + a.F), a.cap * x, Bytes(dtype));
}

}  // namespace

#define DELINK_WORK_OF(entry, Function)               \
  Work WorkOf(const Function##Args& a, DType dtype) { \
    Work work = Count(a, dtype);                      \
    work.kernel = #entry;                             \
    work.dtype = dtype;                               \
    return work;                                      \
  }
DELINK_KERNELS(DELINK_WORK_OF)
#undef DELINK_WORK_OF

}  // namespace delink
