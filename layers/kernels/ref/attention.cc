// Attention by its formula, one query at a time. With p = exp(scale q.k - lse):
//   dv += p do,  ds = p (do.v - delta),  dq += scale ds k,  dk += scale ds q
// where delta = o.do.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "layers/kernels/ref/ref.h"

namespace delink::ref {
namespace {

template <typename T>
double Dot(const T* a, const T* b, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += double{a[i]} * b[i];
  return sum;
}

// The vector of one head at one token.
template <typename T>
const T* At(const void* base, HeadStrides strides, int64_t Dh, int64_t b,
            int64_t t, int64_t h) {
  return static_cast<const T*>(base) + b * strides.batch + t * strides.row +
         h * Dh;
}
template <typename T>
T* At(void* base, HeadStrides strides, int64_t Dh, int64_t b, int64_t t,
      int64_t h) {
  return static_cast<T*>(base) + b * strides.batch + t * strides.row + h * Dh;
}

// Query i sees keys [first, end).
struct Seen {
  int64_t first, end;
};
template <typename Args>
int64_t PositionAt(const Args& s, int64_t b, int64_t key) {
  return s.positions[b * (s.positions_row > 0 ? s.positions_row : s.Tk) + key];
}
template <typename Args>
Seen SeenBy(const Args& s, int64_t b, int64_t i) {
  const int64_t end = i + (s.Tk - s.Tq) + 1;
  const int64_t document =
      s.positions != nullptr ? end - 1 - PositionAt(s, b, end - 1) : 0;
  return {s.window > 0 ? std::max(end - s.window, document) : document, end};
}

template <typename T>
void ForwardQuery(const AttentionForwardArgs& s, int64_t b, int64_t h,
                  int64_t i) {
  const int64_t hkv = h / (s.H / s.Hkv);
  const auto [first, end] = SeenBy(s, b, i);
  const T* q = At<T>(s.q, s.q_strides, s.Dh, b, i, h);
  std::vector<double> p(end - first);
  for (int64_t j = first; j < end; ++j) {
    p[j - first] =
        s.scale * Dot(q, At<T>(s.k, s.kv_strides, s.Dh, b, j, hkv), s.Dh);
  }
  const double max = *std::max_element(p.begin(), p.end());
  double sum = 0.0;
  for (const double score : p) sum += std::exp(score - max);
  const double lse = max + std::log(sum);
  std::vector<double> value(s.Dh, 0.0);
  for (int64_t j = first; j < end; ++j) {
    const T* v = At<T>(s.v, s.kv_strides, s.Dh, b, j, hkv);
    const double weight = std::exp(p[j - first] - lse);
    for (int64_t d = 0; d < s.Dh; ++d) value[d] += weight * v[d];
  }
  T* o = At<T>(s.o, s.o_strides, s.Dh, b, i, h);
  for (int64_t d = 0; d < s.Dh; ++d) o[d] = static_cast<T>(value[d]);
  if (s.lse != nullptr) {
    static_cast<Wide<T>*>(s.lse)[(b * s.H + h) * s.Tq + i] =
        static_cast<Wide<T>>(lse);
  }
}

// One query: writes its dq, adds to dk and dv [Tk, Dh] of its key/value head.
template <typename T>
void BackwardQuery(const AttentionBackwardArgs& s, int64_t b, int64_t h,
                   int64_t i, double* dk, double* dv) {
  const int64_t hkv = h / (s.H / s.Hkv);
  const auto [first, end] = SeenBy(s, b, i);
  const int64_t row = (b * s.H + h) * s.Tq + i;
  const T* q = At<T>(s.q, s.q_strides, s.Dh, b, i, h);
  const T* o = At<T>(s.o, s.o_strides, s.Dh, b, i, h);
  const T* d_o = At<T>(s.d_o, s.o_strides, s.Dh, b, i, h);
  const double lse = static_cast<const Wide<T>*>(s.lse)[row];
  const double delta = Dot(o, d_o, s.Dh);
  static_cast<Wide<T>*>(s.delta)[row] = static_cast<Wide<T>>(delta);
  std::vector<double> sum(s.Dh, 0.0);
  for (int64_t j = first; j < end; ++j) {
    const T* k = At<T>(s.k, s.kv_strides, s.Dh, b, j, hkv);
    const T* v = At<T>(s.v, s.kv_strides, s.Dh, b, j, hkv);
    const double p = std::exp(s.scale * Dot(q, k, s.Dh) - lse);
    const double ds = s.scale * p * (Dot(d_o, v, s.Dh) - delta);
    for (int64_t d = 0; d < s.Dh; ++d) {
      sum[d] += ds * k[d];
      dk[j * s.Dh + d] += ds * q[d];
      dv[j * s.Dh + d] += p * d_o[d];
    }
  }
  T* dq = At<T>(s.dq, s.q_strides, s.Dh, b, i, h);
  for (int64_t d = 0; d < s.Dh; ++d) dq[d] = static_cast<T>(sum[d]);
}

}  // namespace

template <typename T>
void AttentionForward(Stream&, const AttentionForwardArgs& s) {
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t h = 0; h < s.H; ++h) {
      for (int64_t i = 0; i < s.Tq; ++i) ForwardQuery<T>(s, b, h, i);
    }
  }
}

template <typename T>
void AttentionBackward(Stream&, const AttentionBackwardArgs& s) {
  const int64_t group = s.Hkv > 0 ? s.H / s.Hkv : 0;
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t hkv = 0; hkv < s.Hkv; ++hkv) {
      std::vector<double> dk(s.Tk * s.Dh, 0.0), dv(s.Tk * s.Dh, 0.0);
      for (int64_t h = hkv * group; h < (hkv + 1) * group; ++h) {
        for (int64_t i = 0; i < s.Tq; ++i) {
          BackwardQuery<T>(s, b, h, i, dk.data(), dv.data());
        }
      }
      for (int64_t j = 0; j < s.Tk; ++j) {
        T* dk_row = At<T>(s.dk, s.kv_strides, s.Dh, b, j, hkv);
        T* dv_row = At<T>(s.dv, s.kv_strides, s.Dh, b, j, hkv);
        for (int64_t d = 0; d < s.Dh; ++d) {
          dk_row[d] = static_cast<T>(dk[j * s.Dh + d]);
          dv_row[d] = static_cast<T>(dv[j * s.Dh + d]);
        }
      }
    }
  }
}

template <typename T>
int64_t AttentionForwardScratch(const AttentionForwardArgs&, int) {
  return 0;
}

template <typename T>
int64_t AttentionBackwardScratch(const AttentionBackwardArgs&, int) {
  return 0;
}

#define DELINK_INSTANTIATE(T)                                                \
  template void AttentionForward<T>(Stream&, const AttentionForwardArgs&);   \
  template void AttentionBackward<T>(Stream&, const AttentionBackwardArgs&); \
  template int64_t AttentionForwardScratch<T>(const AttentionForwardArgs&,   \
                                              int);                          \
  template int64_t AttentionBackwardScratch<T>(const AttentionBackwardArgs&, \
                                               int);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(double)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::ref
