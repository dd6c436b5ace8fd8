#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "layers/kernels/cpu/threads.h"
#include "tests/layers/kernels/calls.h"
#include "tests/layers/kernels/cases.h"
#include "tests/testing/documents.h"

namespace delink::testing {
namespace {

struct Shape {
  int64_t B, H, Hkv, Dh, Tq, Tk;
  double size = 1.0;  // of q: large ones make sharp distributions
  int64_t window = 0;
  std::vector<int64_t> documents = {};  // lengths; none: not masked
};

// Packed where Tq == Tk: q, k and v are one matrix, as the projection gives
// it. Otherwise k and v lie in a cache with room for more positions.
template <typename T>
struct Tensors {
  explicit Tensors(const Shape& p)
      : packed(p.Tq == p.Tk),
        width((p.H + 2 * p.Hkv) * p.Dh),
        room(p.Tk + 3),
        qkv(Input<T>("qkv", p.B * p.Tq * width, p.size)),
        cache(Input<T>("cache", 2 * p.B * room * p.Hkv * p.Dh)),
        d_qkv(p.B * p.Tq * width),
        d_cache(2 * p.B * room * p.Hkv * p.Dh),
        q_strides{p.Tq * width, width},
        kv_strides(packed ? q_strides
                          : HeadStrides{room * p.Hkv * p.Dh, p.Hkv * p.Dh}),
        k(packed ? p.H * p.Dh : 0),
        v(packed ? (p.H + p.Hkv) * p.Dh : p.B * room * p.Hkv * p.Dh) {
    // What no kernel may write keeps a number that compares equal to itself.
    std::fill(d_qkv.data(), d_qkv.data() + d_qkv.size(), T{-5});
    std::fill(d_cache.data(), d_cache.data() + d_cache.size(), T{-5});
  }

  bool packed;
  int64_t width, room;
  Guarded<T> qkv, cache, d_qkv, d_cache;
  HeadStrides q_strides, kv_strides;
  int64_t k, v;  // offsets
};

std::string NameOf(const Shape& p) {
  return absl::StrFormat("attention B%d H%d/%d Dh%d Tq%d Tk%d size%g W%d%s%s",
                         p.B, p.H, p.Hkv, p.Dh, p.Tq, p.Tk, p.size, p.window,
                         p.documents.empty() ? "" : " documents ",
                         absl::StrJoin(p.documents, ","));
}

// Elements of a row of positions, of which some are not seen by any query where
// queries are fewer than keys.
int64_t RowOf(const Shape& p) { return p.Tq == p.Tk ? p.Tk : p.Tk + 5; }

Guarded<int32_t> PositionsOf(const Shape& p) {
  return Guarded<int32_t>(p.documents.empty()
                              ? std::vector<int32_t>()
                              : Positions(p.B, RowOf(p), p.documents));
}

Case AttentionCase(const Shape& p) {
  return MakeCase(
      NameOf(p),
      [p]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        Tensors<T> t(p);
        const Guarded<int32_t> positions = PositionsOf(p);
        const int32_t* const documents =
            p.documents.empty() ? nullptr : positions.data();
        const T* kv = t.packed ? t.qkv.data() : t.cache.data();
        T* d_kv = t.packed ? t.d_qkv.data() : t.d_cache.data();
        const HeadStrides o_strides = {p.Tq * p.H * p.Dh, p.H * p.Dh};
        const auto d_o = Input<T>("do", p.B * p.Tq * p.H * p.Dh);
        // Backward is given another o: it shall not inherit the rounding of
        // forward's.
        const auto given_o = Input<T>("o", p.B * p.Tq * p.H * p.Dh, 0.3);
        Guarded<T> o(p.B * p.Tq * p.H * p.Dh);
        Guarded<Wide<T>> lse(p.B * p.H * p.Tq), delta(p.B * p.H * p.Tq);
        const AttentionForwardArgs forward = {
            .B = p.B,
            .H = p.H,
            .Hkv = p.Hkv,
            .Dh = p.Dh,
            .Tq = p.Tq,
            .Tk = p.Tk,
            .scale = 1.0 / std::sqrt(static_cast<double>(p.Dh)),
            .window = p.window,
            .positions = documents,
            .positions_row = p.Tq == p.Tk ? 0 : RowOf(p),
            .q = t.qkv.data(),
            .q_strides = t.q_strides,
            .k = kv + t.k,
            .v = kv + t.v,
            .kv_strides = t.kv_strides,
            .o = o.data(),
            .o_strides = o_strides,
            .lse = lse.data()};
        Attend(kernels, stream, forward);
        AttentionBackwardArgs backward = BackwardOf(forward);
        backward.positions_row = RowOf(p);
        backward.o = given_o.data();
        backward.d_o = d_o.data();
        backward.dq = t.d_qkv.data();
        backward.dk = d_kv + t.k;
        backward.dv = d_kv + t.v;
        backward.delta = delta.data();
        Attend(kernels, stream, backward);
        // exp turns the absolute error of a score into a relative one.
        const double sharp = 1.0 + p.size * p.size;
        const double tolerance = sharp * Tolerance<float>(p.Tk + p.Dh);
        return {Result("o", o, tolerance), Result("lse", lse, tolerance),
                Result("d_qkv", t.d_qkv, 4 * tolerance),
                Result("d_cache", t.d_cache, 4 * tolerance)};
      });
}

// Documents of one token, within a vector, a tile, over tiles, longer than the
// row; ends at the edges of tiles and beside them.
std::vector<Shape> MaskedShapes() {
  std::vector<Shape> shapes;
  for (const int64_t T : {1, 2, 17, 63, 64, 65, 130}) {
    shapes.push_back({2, 4, 2, 8, T, T, 1.0, 0, {3, 1, 1, 20, 8}});
    shapes.push_back({1, 2, 1, 5, T, T, 1.0, 0, {1}});
  }
  for (const std::vector<int64_t>& lengths : std::vector<std::vector<int64_t>>{
           {64}, {63, 1, 65}, {16}, {15, 17}, {90, 5, 70}, {129}, {500}}) {
    shapes.push_back({2, 2, 1, 16, 150, 150, 1.0, 0, lengths});
    shapes.push_back({1, 1, 1, 3, 150, 150, 1.0, 0, lengths});
  }
  for (const int64_t W : {1, 7, 64, 100}) {
    shapes.push_back({2, 2, 1, 8, 140, 140, 1.0, W, {5, 80, 30}});
  }
  // Queries of the end of the keys alone, as where ranks share a row: their
  // documents begin before them, or among them.
  for (const std::vector<int64_t>& lengths : std::vector<std::vector<int64_t>>{
           {3, 1, 1, 20, 8}, {64}, {63, 1, 65}, {90, 5, 70}, {500}}) {
    shapes.push_back({2, 4, 2, 8, 33, 100, 1.0, 0, lengths});
    shapes.push_back({2, 2, 1, 5, 64, 129, 1.0, 0, lengths});
    shapes.push_back({1, 2, 2, 16, 70, 210, 1.0, 50, lengths});
  }
  shapes.push_back({2, 2, 1, 8, 1, 40, 1.0, 0, {7, 30}});
  shapes.push_back({1, 3, 1, 96, 70, 70, 4.0, 0, {40, 7}});
  shapes.push_back({1, 2, 2, 136, 66, 66, 1.0, 0, {65, 1}});
  return shapes;
}

}  // namespace

std::vector<Case> AttentionCases() {
  std::vector<Case> cases;
  for (const int64_t Dh : {1, 2, 8, 15, 16, 17, 32, 40, 64, 65}) {
    cases.push_back(AttentionCase({2, 2, 1, Dh, 17, 17}));
    cases.push_back(AttentionCase({1, 3, 3, Dh, 9, 75}));
  }
  for (const int64_t T : {1, 2, 3, 15, 16, 63, 64, 65, 127, 128, 130, 200}) {
    cases.push_back(AttentionCase({1, 4, 2, 8, T, T}));
    cases.push_back(AttentionCase({2, 1, 1, 5, T, T + 5}));
    cases.push_back(AttentionCase({1, 2, 1, 16, 1, T + 1}));
  }
  for (const int64_t extra : {1, 58, 59, 63, 64, 65, 70}) {
    cases.push_back(AttentionCase({1, 2, 2, 16, 70, 70 + extra}));
  }
  cases.push_back(AttentionCase({1, 2, 2, 64, 150, 150, 4.0}));
  cases.push_back(AttentionCase({2, 4, 2, 17, 200, 200, 1.0, 70}));
  // Windows inside a vector, a tile, over tiles; all of the keys, and more.
  for (const int64_t W :
       {1, 2, 3, 15, 16, 17, 63, 64, 65, 130, 199, 200, 500}) {
    cases.push_back(AttentionCase({1, 4, 2, 8, 200, 200, 1.0, W}));
    cases.push_back(AttentionCase({1, 2, 1, 17, 131, 137, 1.0, W}));
    cases.push_back(AttentionCase({2, 1, 1, 5, 1, 100, 1.0, W}));
    cases.push_back(AttentionCase({1, 1, 1, 3, 9, 9, 1.0, W}));
  }
  // Wide heads around the edges of a tile, many query heads to one of keys.
  for (const int64_t Dh : {64, 80, 96, 128, 136, 256, 264}) {
    cases.push_back(AttentionCase({1, 2, 1, Dh, 65, 65}));
    cases.push_back(AttentionCase({1, 1, 1, Dh, 33, 64}));
  }
  for (const int64_t T : {63, 64, 65, 127, 129}) {
    cases.push_back(AttentionCase({1, 3, 1, 96, T, T, 1.0, T == 64 ? 0 : 64}));
  }
  for (const Shape& p : MaskedShapes()) cases.push_back(AttentionCase(p));
  return cases;
}

}  // namespace delink::testing
