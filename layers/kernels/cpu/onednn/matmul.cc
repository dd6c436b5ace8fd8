// Matrix products with oneDNN's matmul primitive: f32 and, if the processor
// supports what oneDNN needs for it, bf16.
//
// A primitive is for one shape, layout and team size. Building one takes longer
// than a small product, so each thread keeps the primitives that it has built,
// with their scratch. Training repeats a few dozen shapes.
#include "layers/kernels/cpu/matmul.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <dnnl.hpp>
#include <initializer_list>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <unordered_map>
#include <vector>

#include "framework/base/check.h"
#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cpu/targets.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu {
namespace {

using dnnl::memory;

// The instruction set that oneDNN may use, set before its first use. With AMX
// its bf16 sums depend on the number of threads; if our own loops use AMX,
// oneDNN's are only measured.
dnnl::cpu_isa Isa() {
  static const dnnl::cpu_isa isa = [] {
    const InstructionSet best = Targets().front();
    if (!best.supported || !best.multiplies_bf16) {
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    }
    return dnnl::get_effective_cpu_isa();
  }();
  return isa;
}

// A weight gradient sums over tokens. oneDNN splits long sums differently for
// different team sizes, but does not split sums of at most this length.
constexpr int64_t kLongestSum = 1024;

// Whether rows of B fall into so few sets of an Intel processor's caches that a
// copy of B pays: at 12 KiB from row to row oneDNN takes twice as long. It
// copies B itself if rows are a power of two apart.
bool RowsCollide(const MatmulArgs& s) {
#if defined(__x86_64__)
  constexpr int64_t kApart = 1024, kLong = 9 * kApart, kLarge = 4096 * kApart;
  const int64_t bytes = s.ldb * static_cast<int64_t>(sizeof(float));
  const bool collide = bytes % kApart == 0 && (bytes & (bytes - 1)) != 0;
  return __builtin_cpu_is("intel") != 0 && !s.transpose_b && collide &&
         (s.transpose_a ? bytes > kLong : s.k * bytes > kLarge);
#else
  return false;
#endif
}

using Key = std::array<int64_t, 8>;

// A product, with the types of A, B and the bias, and of C.
struct Product {
  MatmulArgs args;
  memory::data_type in, out;
};

struct Primitive {
  dnnl::matmul matmul;
  std::unordered_map<int, memory> arguments;
  int64_t scratch_bytes;
};

memory::desc Matrix(memory::data_type type, int64_t rows, int64_t columns,
                    int64_t ld, bool transposed) {
  return memory::desc({rows, columns}, type,
                      transposed ? memory::dims{1, ld} : memory::dims{ld, 1});
}

// The primitives that one thread has built.
class Cache {
 public:
  Cache() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  void Run(const Product& product) {
    const MatmulArgs& s = product.args;
    const auto bf16 = memory::data_type::bf16;
    const Key key = {s.m,
                     s.n,
                     s.k,
                     s.lda,
                     s.ldb,
                     s.ldc,
                     MaxThreads(),
                     (s.transpose_a ? 1 : 0) | (s.transpose_b ? 2 : 0) |
                         (s.accumulate ? 4 : 0) | (s.bias != nullptr ? 8 : 0) |
                         (product.in == bf16 ? 16 : 0) |
                         (product.out == bf16 ? 32 : 0)};
    auto found = primitives_.find(key);
    if (found == primitives_.end()) {
      found = primitives_.emplace(key, Build(product)).first;
    }
    Primitive& primitive = found->second;
    Reserve(primitive.scratch_bytes);
    auto& arguments = primitive.arguments;
    arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(s.a));
    arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(s.b));
    arguments.at(DNNL_ARG_DST).set_data_handle(s.c);
    arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch_.get());
    if (s.bias != nullptr) {
      arguments.at(DNNL_ARG_BIAS).set_data_handle(const_cast<void*>(s.bias));
    }
    primitive.matmul.execute(stream_, arguments);
    stream_.wait();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const {
      ::operator delete[](p, std::align_val_t{64});
    }
  };

  Primitive Build(const Product& product) {
    const MatmulArgs& s = product.args;
    const memory::desc a = Matrix(product.in, s.m, s.k, s.lda, s.transpose_a);
    const memory::desc b = Matrix(product.in, s.k, s.n, s.ldb, s.transpose_b);
    const memory::desc c = Matrix(product.out, s.m, s.n, s.ldc, false);
    const memory::desc bias = Matrix(product.in, 1, s.n, s.n, false);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const auto description = s.bias != nullptr
                                 ? dnnl::matmul::desc(a, b, bias, c)
                                 : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc chosen(description, attributes, engine_);
    const memory::desc scratch = chosen.scratchpad_desc();
    Primitive result{
        .matmul = dnnl::matmul(chosen),
        .arguments = {{DNNL_ARG_SRC, memory(a, engine_, nullptr)},
                      {DNNL_ARG_WEIGHTS, memory(b, engine_, nullptr)},
                      {DNNL_ARG_DST, memory(c, engine_, nullptr)},
                      {DNNL_ARG_SCRATCHPAD, memory(scratch, engine_, nullptr)}},
        .scratch_bytes = static_cast<int64_t>(scratch.get_size())};
    if (s.bias != nullptr) {
      result.arguments.emplace(DNNL_ARG_BIAS, memory(bias, engine_, nullptr));
    }
    return result;
  }

  void Reserve(int64_t bytes) {
    if (bytes <= scratch_bytes_) return;
    scratch_.reset();
    scratch_.reset(new (std::align_val_t{64}) std::byte[bytes]);
    scratch_bytes_ = bytes;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<Key, Primitive> primitives_;
  std::unique_ptr<std::byte[], Free> scratch_;
  int64_t scratch_bytes_ = 0;
};

// While it lives, the calling thread works alone.
class Alone {
 public:
  Alone() : before_(MaxThreads()) { SetThreads(1); }
  ~Alone() { SetThreads(before_); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  int before_;
};

void RunChecked(const Product& product) {
  thread_local Cache cache;
  const MatmulArgs& s = product.args;
  std::optional<Alone> alone;
  if (s.m * s.n * s.k <= kParallelProducts) alone.emplace();
  try {
    cache.Run(product);
  } catch (const dnnl::error& error) {
    DELINK_CHECK(false) << "oneDNN: " << error.what() << " in a product of "
                        << s.m << " x " << s.k << " and " << s.k << " x "
                        << s.n;
  }
}

// Copies B, some columns at a time, to rows that do not collide. All sums are
// short enough.
void MultiplyCopied(const Product& product) {
  constexpr int64_t kColumns = 1024, kPad = 16;
  const int64_t parts = (product.args.n + kColumns - 1) / kColumns;
  const int64_t columns = (product.args.n + parts - 1) / parts;
  thread_local std::vector<float> copies;
  Product part = product;
  MatmulArgs& p = part.args;
  for (int64_t first = 0; first < product.args.n; first += columns) {
    p.n = std::min(columns, product.args.n - first);
    p.ldb = p.n + kPad;
    copies.resize(std::max(copies.size(), static_cast<size_t>(p.k * p.ldb)));
    const float* const from = static_cast<const float*>(product.args.b) + first;
    float* const to = copies.data();
#pragma omp parallel for if (p.k * p.n > kParallelFrom)
    for (int64_t row = 0; row < p.k; ++row) {
      std::copy_n(from + row * product.args.ldb, p.n, to + row * p.ldb);
    }
    p.b = to;
    p.c = static_cast<float*>(product.args.c) + first;
    if (p.bias != nullptr) {
      p.bias = static_cast<const float*>(product.args.bias) + first;
    }
    RunChecked(part);
  }
}

// The result of an empty sum: C or zero, plus the bias.
template <typename T, typename C>
void EmptySum(const MatmulArgs& s) {
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      C& c = static_cast<C*>(s.c)[i * s.ldc + j];
      float sum = s.accumulate ? static_cast<float>(c) : 0.0F;
      if (s.bias != nullptr) sum += static_cast<const T*>(s.bias)[j];
      c = static_cast<C>(sum);
    }
  }
}

template <typename T>
constexpr memory::data_type kType =
    std::is_same_v<T, float> ? memory::data_type::f32 : memory::data_type::bf16;

template <typename T, typename C>
void Multiply(const MatmulArgs& s);

// A long sum to a C that is not f32; some rows at a time, in separate f32
// memory.
template <typename T, typename C>
void MultiplyBeside(const MatmulArgs& s) {
  constexpr int64_t kRows = 256;
  thread_local std::vector<float> sums;
  sums.resize(static_cast<size_t>(std::min(s.m, kRows) * s.n));
  MatmulArgs p = s;
  p.c = sums.data();
  p.ldc = s.n;
  p.accumulate = false;
  for (int64_t first = 0; first < s.m; first += kRows) {
    p.m = std::min(kRows, s.m - first);
    p.a = static_cast<const T*>(s.a) + first;
    Multiply<T, float>(p);
    for (int64_t i = 0; i < p.m; ++i) {
      const float* const sum = sums.data() + i * s.n;
      C* const c = static_cast<C*>(s.c) + (first + i) * s.ldc;
      for (int64_t j = 0; j < s.n; ++j) {
        c[j] = static_cast<C>(s.accumulate ? c[j] + sum[j] : sum[j]);
      }
    }
  }
}

template <typename T, typename C>
void Multiply(const MatmulArgs& s) {
  if (s.m == 0 || s.n == 0) return;
  if (s.k == 0) return EmptySum<T, C>(s);
  Product part = {s, kType<T>, kType<C>};
  const bool copy = std::is_same_v<T, float> && RowsCollide(s);
  const bool split = (s.transpose_a || copy) && s.k > kLongestSum;
  if (!split) return copy ? MultiplyCopied(part) : RunChecked(part);
  // Otherwise the sum of each part would be rounded.
  if constexpr (!std::is_same_v<C, float>) return MultiplyBeside<T, C>(s);
  MatmulArgs& p = part.args;
  for (int64_t first = 0; first < s.k; first += kLongestSum) {
    p.k = std::min(kLongestSum, s.k - first);
    p.a = static_cast<const T*>(s.a) + first * (s.transpose_a ? s.lda : 1);
    p.b = static_cast<const T*>(s.b) + first * (s.transpose_b ? 1 : s.ldb);
    copy ? MultiplyCopied(part) : RunChecked(part);
    p.accumulate = true;
    p.bias = nullptr;
  }
}

// In one call, even if its bits depend on the number of threads.
template <typename T>
void Unpartitioned(Stream&, const MatmulArgs& s) {
  if (s.m * s.n * s.k == 0) return;
  RunChecked({s, kType<T>, s.c_is_gradient ? kType<float> : kType<T>});
}

bool Has(std::initializer_list<dnnl::cpu_isa> some) {
  return std::find(some.begin(), some.end(), Isa()) != some.end();
}

template <typename T>
void Matmul(Stream&, const MatmulArgs& s) {
  if (s.c_is_gradient) {
    Multiply<T, float>(s);
  } else {
    Multiply<T, T>(s);
  }
}

}  // namespace

// Without AVX-512, oneDNN's sums depend on the number of rows and threads; our
// own loops' sums do not.
template <>
void ChooseMatmul<float>(Kernels* kernels) {
  using Set = dnnl::cpu_isa;
  if (Has({Set::avx512_core, Set::avx512_core_vnni, Set::avx512_core_bf16,
           Set::avx512_core_amx})) {
    kernels->matmul = Matmul<float>;
  }
}

// On AVX-512 without bf16 oneDNN would emulate it, at half the speed of our own
// loops and with sums that depend on the number of threads.
template <>
void ChooseMatmul<BFloat16>(Kernels* kernels) {
  if (LibraryMultipliesBf16()) kernels->matmul = Matmul<BFloat16>;
}

template <>
void (*LibraryMatmul<float>())(Stream&, const MatmulArgs&) {
  using Set = dnnl::cpu_isa;
  return Has({Set::avx2, Set::avx2_vnni}) ? Unpartitioned<float> : nullptr;
}

template <>
void (*LibraryMatmul<BFloat16>())(Stream&, const MatmulArgs&) {
  return Has({dnnl::cpu_isa::avx512_core_amx}) ? Unpartitioned<BFloat16>
                                               : nullptr;
}

bool LibraryMultipliesBf16() { return Has({dnnl::cpu_isa::avx512_core_bf16}); }

}  // namespace delink::cpu
