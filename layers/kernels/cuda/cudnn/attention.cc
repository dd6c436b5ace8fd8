// Attention by cuDNN's graphs, through its header-only C++ front end. The
// library is opened at run time: where there is none, or it refuses a call, the
// log says so once and our own kernels do the work.
//
// A graph is built once for a shape, which takes some tenths of a second, and
// kept with the device. The backward pass is asked for in its deterministic
// form and runs part by part (attention_scratch.h).
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "framework/base/log.h"
#include "framework/device/cuda/check.h"
#include "framework/device/cuda/stream.h"
#include "layers/kernels/cuda/attention_scratch.h"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/cudnn/frontend.h"
#include "layers/kernels/cuda/cudnn_attention.h"
#include "layers/kernels/cuda/open_library.h"

// The front end finds the library's functions by this.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace delink::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;
using Pointers = std::unordered_map<int64_t, void*>;  // by Uid

enum Uid : int64_t { kQ = 1, kK, kV, kO, kLse, kDo, kDq, kDk, kDv };

// What a graph is built for: one call of cuDNN, that is `B` and `Hkv` of a
// part.
struct Shape {
  bool backward;
  int64_t B, H, Hkv, Dh, T, window;
  float scale;
  HeadStrides q, kv, o;
  bool lse;

  std::array<int64_t, 15> Key() const {
    return {backward, B,       H,       Hkv,   Dh,
            T,        window,  q.batch, q.row, kv.batch,
            kv.row,   o.batch, o.row,   lse,   std::bit_cast<int32_t>(scale)};
  }
};

// No graph: cuDNN has refused the shape.
struct Plan {
  std::shared_ptr<Graph> graph;
  int64_t workspace = 0;
};

TensorPtr Heads(Graph& graph, const char* name, Uid uid, const Shape& s,
                int64_t heads, HeadStrides strides) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_name(name)
                          .set_uid(uid)
                          .set_dim({s.B, heads, s.T, s.Dh})
                          .set_stride({strides.batch, s.Dh, strides.row, 1}));
}

void SetOutput(TensorPtr tensor, Uid uid, const Shape& s, int64_t heads,
               HeadStrides strides) {
  tensor->set_output(true)
      .set_uid(uid)
      .set_dim({s.B, heads, s.T, s.Dh})
      .set_stride({strides.batch, s.Dh, strides.row, 1});
}

// Tq == Tk, so the diagonal is that of both corners. cuDNN's left bound counts
// the query's own position, as our window does.
template <typename Attributes>
void SetMask(const Shape& s, Attributes* attributes) {
  attributes->set_attn_scale(s.scale)
      .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  if (s.window > 0 && s.window < s.T) {
    attributes->set_diagonal_band_left_bound(static_cast<int>(s.window));
  }
}

void AddForward(const Shape& s, Graph* graph) {
  auto attributes = fe::graph::SDPA_attributes()
                        .set_name("attention")
                        .set_generate_stats(s.lse);
  SetMask(s, &attributes);
  auto [o, lse] =
      graph->sdpa(Heads(*graph, "q", kQ, s, s.H, s.q),
                  Heads(*graph, "k", kK, s, s.Hkv, s.kv),
                  Heads(*graph, "v", kV, s, s.Hkv, s.kv), attributes);
  SetOutput(o, kO, s, s.H, s.o);
  if (!s.lse) return;
  lse->set_output(true).set_uid(kLse).set_data_type(fe::DataType_t::FLOAT);
  lse->set_dim({s.B, s.H, s.T, 1}).set_stride({s.H * s.T, s.T, 1, 1});
}

void AddBackward(const Shape& s, Graph* graph) {
  auto attributes = fe::graph::SDPA_backward_attributes()
                        .set_name("attention_backward")
                        .set_deterministic_algorithm(true);
  SetMask(s, &attributes);
  const TensorPtr lse = graph->tensor(fe::graph::Tensor_attributes()
                                          .set_name("lse")
                                          .set_uid(kLse)
                                          .set_data_type(fe::DataType_t::FLOAT)
                                          .set_dim({s.B, s.H, s.T, 1})
                                          .set_stride({s.H * s.T, s.T, 1, 1}));
  auto [dq, dk, dv] = graph->sdpa_backward(
      Heads(*graph, "q", kQ, s, s.H, s.q),
      Heads(*graph, "k", kK, s, s.Hkv, s.kv),
      Heads(*graph, "v", kV, s, s.Hkv, s.kv),
      Heads(*graph, "o", kO, s, s.H, s.o),
      Heads(*graph, "d_o", kDo, s, s.H, s.o), lse, attributes);
  SetOutput(dq, kDq, s, s.H, s.q);
  SetOutput(dk, kDk, s, s.Hkv, s.kv);
  SetOutput(dv, kDv, s, s.Hkv, s.kv);
}

// A handle, and graphs by shape, of one device. Its streams share it.
class Cudnn final : public Resident {
 public:
  Cudnn() {
    try {
      missing_ = Open();
    } catch (const std::exception& e) {
      missing_ = e.what();
    }
  }
  ~Cudnn() override {
    try {
      plans_.clear();
      if (handle_ != nullptr) fe::detail::destroy_handle(handle_);
    } catch (const std::exception& e) {
      DELINK_LOG(kWarning) << "cuDNN did not end well: " << e.what();
    }
  }

  // Empty, or why there is none; who asks says so, and not the first call.
  std::string Missing() {
    const std::lock_guard<std::mutex> lock(mutex_);
    told_ = true;
    return missing_;
  }

  // Enqueues the graph of `shape`, with a workspace of at most `bytes`.
  bool Run(const StreamInfo& stream, const Shape& shape, Pointers pointers,
           void* workspace, int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (handle_ == nullptr) {
      if (!std::exchange(told_, true)) Refuse("", missing_);
      return false;
    }
    const auto [place, is_new] = plans_.try_emplace(shape.Key());
    Plan& plan = place->second;
    try {
      if (is_new) plan = Build(shape, bytes);
      if (plan.graph == nullptr || plan.workspace > bytes) return false;
      if (fe::detail::set_stream(handle_, stream.handle) !=
          CUDNN_STATUS_SUCCESS) {
        Refuse(Describe(shape), "cudnnSetStream failed");
        return false;
      }
      const fe::error_t error =
          plan.graph->execute(handle_, pointers, workspace);
      if (error.is_good()) return true;
      Refuse(Describe(shape), error.err_msg);
    } catch (const std::exception& e) {
      Refuse(Describe(shape), e.what());
    }
    plan.graph = nullptr;
    return false;
  }

 private:
  // Empty, or why there is no handle.
  std::string Open() {
    // What cuDNN and, for its old versions, the front end open by their bare
    // names: they find these. Who needs what is not there will say so.
    (void)OpenCudaLibrary("libnvrtc.so.13");
    (void)OpenCudaLibrary("libcudart.so.13");
    int device = 0, major = 0, minor = 0;
    DELINK_CUDA_CHECK(cudaGetDevice(&device));
    DELINK_CUDA_CHECK(cudaDeviceGetAttribute(
        &major, cudaDevAttrComputeCapabilityMajor, device));
    DELINK_CUDA_CHECK(cudaDeviceGetAttribute(
        &minor, cudaDevAttrComputeCapabilityMinor, device));
    architecture_ = 10 * major + minor;
    const auto library = OpenCudaLibrary("libcudnn.so.9");
    if (!library.ok()) return library.status().ToString();
    fe::cudnn_dlhandle = library->handle();
    if (fe::detail::create_handle(&handle_) == CUDNN_STATUS_SUCCESS) return "";
    handle_ = nullptr;
    return "cudnnCreate failed";
  }

  Plan Build(const Shape& shape, int64_t bytes) {
    Plan plan{std::make_shared<Graph>()};
    plan.graph->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(architecture_);
    if (shape.backward) {
      AddBackward(shape, plan.graph.get());
    } else {
      AddForward(shape, plan.graph.get());
    }
    fe::error_t error = plan.graph->build(handle_, {fe::HeurMode_t::A});
    if (error.is_good()) error = plan.graph->get_workspace_size(plan.workspace);
    if (error.is_bad()) {
      Refuse(Describe(shape), error.err_msg);
      return {};
    }
    if (plan.workspace > bytes) {
      Refuse(Describe(shape), "it wants " + std::to_string(plan.workspace) +
                                  " bytes of workspace and is given " +
                                  std::to_string(bytes));
      return {};
    }
    return plan;
  }

  static std::string Describe(const Shape& s) {
    return std::string(s.backward ? " (backward" : " (forward") + ", B " +
           std::to_string(s.B) + ", T " + std::to_string(s.T) + ", heads " +
           std::to_string(s.H) + "/" + std::to_string(s.Hkv) + " of " +
           std::to_string(s.Dh) + ", window " + std::to_string(s.window) + ")";
  }
  static void Refuse(const std::string& shape, const std::string& why) {
    DELINK_LOG(kWarning) << "attention in bf16" << shape
                         << " is not cuDNN's but our own kernels', which are "
                            "several times slower: "
                         << why;
  }

  std::mutex mutex_;
  cudnnHandle_t handle_ = nullptr;
  std::string missing_;  // why there is no handle
  bool told_ = false;
  int architecture_ = 0;  // 90
  std::map<std::array<int64_t, 15>, Plan> plans_;
};

std::unique_ptr<Resident> MakeCudnn() { return std::make_unique<Cudnn>(); }

Cudnn& CudnnOf(Stream& stream) {
  return static_cast<Cudnn&>(Kept(stream, MakeCudnn));
}

bool IsAligned(const void* address, HeadStrides strides) {
  constexpr int64_t kUnit = 8;  // 16 bytes of bf16
  return reinterpret_cast<uintptr_t>(address) % 16 == 0 &&
         strides.row % kUnit == 0 && strides.batch % kUnit == 0;
}

template <typename Args>
Shape ShapeOf(const Args& s, bool backward, AttentionPart part) {
  return {.backward = backward,
          .B = part.samples,
          .H = part.kv_heads * (s.H / s.Hkv),
          .Hkv = part.kv_heads,
          .Dh = s.Dh,
          .T = s.Tq,
          .window = s.window,
          .scale = static_cast<float>(s.scale),
          .q = s.q_strides,
          .kv = s.kv_strides,
          .o = s.o_strides,
          .lse = s.lse != nullptr};
}

// The front end takes inputs by void* too.
void* Bf16(const void* base, int64_t elements) {
  return static_cast<uint16_t*>(const_cast<void*>(base)) + elements;
}

}  // namespace

std::string OpenAttention(Stream& stream) { return CudnnOf(stream).Missing(); }

bool CudnnAttentionForward(Stream& stream, const AttentionForwardArgs& s) {
  if (!IsForCudnn(s) || !IsAligned(s.q, s.q_strides) ||
      !IsAligned(s.k, s.kv_strides) || !IsAligned(s.v, s.kv_strides) ||
      !IsAligned(s.o, s.o_strides)) {
    return false;
  }
  const StreamInfo& info = InfoOf(stream);
  const Pointers pointers = {{kQ, Bf16(s.q, 0)},
                             {kK, Bf16(s.k, 0)},
                             {kV, Bf16(s.v, 0)},
                             {kO, s.o},
                             {kLse, s.lse}};
  return CudnnOf(stream).Run(info, ShapeOf(s, false, {s.B, s.Hkv, 0}), pointers,
                             info.scratch, info.scratch_bytes);
}

bool CudnnAttentionBackward(Stream& stream, const AttentionBackwardArgs& s) {
  if (!IsForCudnn(s) || !IsAligned(s.q, s.q_strides) ||
      !IsAligned(s.k, s.kv_strides) || !IsAligned(s.v, s.kv_strides) ||
      !IsAligned(s.o, s.o_strides) || !IsAligned(s.d_o, s.o_strides) ||
      !IsAligned(s.dq, s.q_strides) || !IsAligned(s.dk, s.kv_strides) ||
      !IsAligned(s.dv, s.kv_strides)) {
    return false;
  }
  const StreamInfo& info = InfoOf(stream);
  const bool given = s.scratch_bytes > info.scratch_bytes;
  const AttentionPart part = BackwardPart(s);
  const Shape shape = ShapeOf(s, true, part);
  for (int64_t b = 0; b < s.B; b += part.samples) {
    for (int64_t hkv = 0; hkv < s.Hkv; hkv += part.kv_heads) {
      const int64_t h = hkv * (s.H / s.Hkv);
      const int64_t q = b * s.q_strides.batch + h * s.Dh;
      const int64_t kv = b * s.kv_strides.batch + hkv * s.Dh;
      const int64_t o = b * s.o_strides.batch + h * s.Dh;
      const float* const lse =
          static_cast<const float*>(s.lse) + (b * s.H + h) * s.Tq;
      const Pointers pointers = {
          {kQ, Bf16(s.q, q)},    {kK, Bf16(s.k, kv)},
          {kV, Bf16(s.v, kv)},   {kO, Bf16(s.o, o)},
          {kDo, Bf16(s.d_o, o)}, {kLse, const_cast<float*>(lse)},
          {kDq, Bf16(s.dq, q)},  {kDk, Bf16(s.dk, kv)},
          {kDv, Bf16(s.dv, kv)}};
      if (!CudnnOf(stream).Run(info, shape, pointers,
                               given ? s.scratch : info.scratch,
                               given ? s.scratch_bytes : info.scratch_bytes)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace delink::cuda
