#include "layers/kernels/cpu/simd/math.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kBlock = 4096;  // elements, a multiple of any kWidth

// Calls body(first, count) for blocks of [0, count), shared among the team.
template <typename Body>
void ForBlocks(int64_t count, const Body& body) {
#pragma omp parallel for schedule(static) if (count > kParallelFrom)
  for (int64_t first = 0; first < count; first += kBlock) {
    body(first, count - first < kBlock ? count - first : kBlock);
  }
}

}  // namespace

template <typename T>
void GeluForward(Stream&, const GeluForwardArgs& s) {
  const bool tanh = s.form == GeluForm::kTanh;
  ForBlocks(s.count, [&](int64_t first, int64_t count) {
    const T* x = static_cast<const T*>(s.x) + first;
    T* y = static_cast<T*>(s.y) + first;
    if (tanh) {
      ForRow(count, [&](auto load, auto store)
                        DELINK_LAMBDA { store(y, TanhGelu(load(x))); });
    } else {
      ForRow(count, [&](auto load, auto store) DELINK_LAMBDA {
        const Vec v = load(x);
        store(y, v * NormalCdf(v));
      });
    }
  });
}

template <typename T>
void GeluBackward(Stream&, const GeluBackwardArgs& s) {
  const bool tanh = s.form == GeluForm::kTanh;
  ForBlocks(s.count, [&](int64_t first, int64_t count) {
    const T* x = static_cast<const T*>(s.x) + first;
    const T* dy = static_cast<const T*>(s.dy) + first;
    T* dx = static_cast<T*>(s.dx) + first;
    if (tanh) {
      ForRow(count, [&](auto load, auto store) DELINK_LAMBDA {
        store(dx, load(dy) * TanhDerivative(load(x)));
      });
    } else {
      ForRow(count, [&](auto load, auto store) DELINK_LAMBDA {
        store(dx, load(dy) * ErfDerivative(load(x)));
      });
    }
  });
}

template <typename T>
void Add(Stream&, const AddArgs& s) {
  ForBlocks(s.count, [&](int64_t first, int64_t count) {
    const T* a = static_cast<const T*>(s.a) + first;
    const T* b = static_cast<const T*>(s.b) + first;
    T* y = static_cast<T*>(s.y) + first;
    ForRow(count, [&](auto load, auto store)
                      DELINK_LAMBDA { store(y, load(a) + load(b)); });
  });
}

template <typename T>
void Accumulate(Stream& stream, const AccumulateArgs& s) {
  Add<T>(stream, {.count = s.count, .a = s.y, .b = s.x, .y = s.y});
}

template <typename T>
void Widen(Stream&, const WidenArgs& s) {
  ForBlocks(s.count, [&](int64_t first, int64_t count) {
    const T* x = static_cast<const T*>(s.x) + first;
    float* y = static_cast<float*>(s.y) + first;
    ForRow(count,
           [&](auto load, auto store) DELINK_LAMBDA { store(y, load(x)); });
  });
}

template <typename T>  // the same for both
void RoundGradient(Stream&, const RoundGradientArgs& s) {
  ForBlocks(s.count, [&](int64_t first, int64_t count) {
    const float* x = static_cast<const float*>(s.x) + first;
    BFloat16* y = static_cast<BFloat16*>(s.y) + first;
    ForRow(count, [&](auto load, auto store) DELINK_LAMBDA {
      store(y, s.accumulate ? load(y) + load(x) : load(x));
    });
  });
}

template void GeluForward<float>(Stream&, const GeluForwardArgs&);
template void GeluForward<BFloat16>(Stream&, const GeluForwardArgs&);
template void GeluBackward<float>(Stream&, const GeluBackwardArgs&);
template void GeluBackward<BFloat16>(Stream&, const GeluBackwardArgs&);
template void Add<float>(Stream&, const AddArgs&);
template void Add<BFloat16>(Stream&, const AddArgs&);
template void Accumulate<float>(Stream&, const AccumulateArgs&);
template void Accumulate<BFloat16>(Stream&, const AccumulateArgs&);
template void Widen<float>(Stream&, const WidenArgs&);
template void Widen<BFloat16>(Stream&, const WidenArgs&);
template void RoundGradient<float>(Stream&, const RoundGradientArgs&);
template void RoundGradient<BFloat16>(Stream&, const RoundGradientArgs&);

}  // namespace delink::cpu::DELINK_SIMD
