// Matrix products by oneDNN's matmul primitive.
//
// A primitive fits one shape, layout and team size; building one takes longer
// than a small product, so each thread keeps those it has built, with their
// scratch: a training step meets a few dozen shapes, over and over.
#include "layers/kernels/cpu/matmul.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <unordered_map>

#include "framework/base/check.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu {
namespace {

using dnnl::memory;

// A weight gradient sums over tokens. oneDNN splits long sums differently for
// different team sizes; sums of at most this length it does not split.
constexpr int64_t kLongestSum = 1024;

using Key = std::array<int64_t, 8>;

struct Primitive {
  dnnl::matmul matmul;
  std::unordered_map<int, memory> arguments;
  int64_t scratch_bytes;
};

memory::desc Matrix(int64_t rows, int64_t columns, int64_t ld,
                    bool transposed) {
  return memory::desc({rows, columns}, memory::data_type::f32,
                      transposed ? memory::dims{1, ld} : memory::dims{ld, 1});
}

// What one thread has built.
class Cache {
 public:
  Cache() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  void Run(const MatmulArgs& s) {
    const Key key = {s.m,
                     s.n,
                     s.k,
                     s.lda,
                     s.ldb,
                     s.ldc,
                     MaxThreads(),
                     (s.transpose_a ? 1 : 0) | (s.transpose_b ? 2 : 0) |
                         (s.accumulate ? 4 : 0) | (s.bias != nullptr ? 8 : 0)};
    auto found = primitives_.find(key);
    if (found == primitives_.end()) {
      found = primitives_.emplace(key, Build(s)).first;
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

  Primitive Build(const MatmulArgs& s) {
    const memory::desc a = Matrix(s.m, s.k, s.lda, s.transpose_a);
    const memory::desc b = Matrix(s.k, s.n, s.ldb, s.transpose_b);
    const memory::desc c = Matrix(s.m, s.n, s.ldc, false);
    const memory::desc bias = Matrix(1, s.n, s.n, false);
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

void RunChecked(const MatmulArgs& s) {
  thread_local Cache cache;
  std::optional<Alone> alone;
  if (s.m * s.n * s.k <= kParallelProducts) alone.emplace();
  try {
    cache.Run(s);
  } catch (const dnnl::error& error) {
    DELINK_CHECK(false) << "oneDNN: " << error.what() << " in a product of "
                        << s.m << " x " << s.k << " and " << s.k << " x "
                        << s.n;
  }
}

// What a sum over nothing leaves: C, or zero, plus the bias.
void EmptySum(const MatmulArgs& s) {
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      float& c = static_cast<float*>(s.c)[i * s.ldc + j];
      if (!s.accumulate) c = 0.0F;
      if (s.bias != nullptr) c += static_cast<const float*>(s.bias)[j];
    }
  }
}

void Matmul(Stream&, const MatmulArgs& s) {
  if (s.m == 0 || s.n == 0) return;
  if (s.k == 0) return EmptySum(s);
  if (!s.transpose_a) return RunChecked(s);
  MatmulArgs part = s;
  for (int64_t first = 0; first < s.k; first += kLongestSum) {
    part.k = std::min(kLongestSum, s.k - first);
    part.a = static_cast<const float*>(s.a) + first * s.lda;
    part.b =
        static_cast<const float*>(s.b) + first * (s.transpose_b ? 1 : s.ldb);
    RunChecked(part);
    part.accumulate = true;
    part.bias = nullptr;
  }
}

}  // namespace

void ChooseMatmul(Kernels* kernels) { kernels->matmul = Matmul; }

}  // namespace delink::cpu
