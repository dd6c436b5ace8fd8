// Attention with cuDNN's graphs (graphs.h). The library is opened at run time.
// If there is none, or it refuses a call, the log says so once and our own
// kernels do the work.
//
// A graph is built once for a shape, which takes some tenths of a second, and
// kept with the device. The backward pass is deterministic unless the call says
// otherwise, and runs part by part (attention_scratch.h).
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/log.h"
#include "framework/base/mutex.h"
#include "framework/device/cuda/check.h"
#include "framework/device/cuda/stream.h"
#include "layers/kernels/cuda/attention_scratch.h"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/cudnn/graphs.h"
#include "layers/kernels/cuda/cudnn_attention.h"
#include "layers/kernels/cuda/open_library.h"

namespace delink::cuda {
namespace {

using Pointers = std::unordered_map<int64_t, void*>;  // by Uid

// A handle, and graphs by shape, of one device. Its streams share it.
class Cudnn final : public Resident {
 public:
  Cudnn() : missing_(Open().message()) {}

  // Empty, or why there is no cuDNN. The caller reports it, not the first call.
  std::string Missing() {
    const MutexLock lock(mutex_);
    told_ = true;
    return missing_;
  }

  // Enqueues the graph of `shape`, with a workspace of at most `bytes`.
  bool Run(const StreamInfo& stream, const GraphShape& shape, Pointers pointers,
           void* workspace, int64_t bytes) {
    const MutexLock lock(mutex_);
    if (handle_.get() == nullptr) {
      if (!std::exchange(told_, true)) Refuse("", missing_);
      return false;
    }
    const auto [place, is_new] = plans_.try_emplace(shape);
    std::unique_ptr<AttentionGraph>& graph = place->second;
    if (is_new) graph = Build(shape, bytes);
    if (graph == nullptr || graph->workspace() > bytes) return false;
    absl::Status status = handle_.SetStream(stream.handle);
    if (status.ok()) {
      status = graph->Execute(handle_, std::move(pointers), workspace);
    }
    if (status.ok()) return true;
    Refuse(Describe(shape), std::string(status.message()));
    graph = nullptr;
    return false;
  }

 private:
  // An error says why there is no handle.
  absl::Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // cuDNN and, for its old versions, the front end open these by their bare
    // names. If one is missing, its user reports it.
    OpenNvrtc();
    (void)OpenCudaLibrary("libcudart.so.13");
    int device = 0, major = 0, minor = 0;
    DELINK_CUDA_CHECK(cudaGetDevice(&device));
    DELINK_CUDA_CHECK(cudaDeviceGetAttribute(
        &major, cudaDevAttrComputeCapabilityMajor, device));
    DELINK_CUDA_CHECK(cudaDeviceGetAttribute(
        &minor, cudaDevAttrComputeCapabilityMinor, device));
    architecture_ = 10 * major + minor;
    const auto library = OpenCudaLibrary("libcudnn.so.9");
    if (!library.ok()) return library.status();
    UseCudnn(library->handle());
    return handle_.Create();
  }

  // Null if cuDNN refuses the shape.
  std::unique_ptr<AttentionGraph> Build(const GraphShape& shape, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto graph = std::make_unique<AttentionGraph>(shape, architecture_);
    const absl::Status status = graph->Build(handle_);
    if (!status.ok()) {
      Refuse(Describe(shape), std::string(status.message()));
      return nullptr;
    }
    if (graph->workspace() > bytes) {
      Refuse(Describe(shape), "it needs " + std::to_string(graph->workspace()) +
                                  " bytes of workspace, but only has " +
                                  std::to_string(bytes));
      return nullptr;
    }
    return graph;
  }

  static std::string Describe(const GraphShape& s) {
    return std::string(s.backward ? " (backward" : " (forward") + ", B " +
           std::to_string(s.B) + ", T " + std::to_string(s.T) + ", heads " +
           std::to_string(s.H) + "/" + std::to_string(s.Hkv) + " of " +
           std::to_string(s.Dh) + ", window " + std::to_string(s.window) + ")";
  }
  static void Refuse(const std::string& shape, const std::string& why) {
    DELINK_LOG(kWarning) << "attention in bf16" << shape
                         << " uses our own kernels instead of cuDNN; they are "
                            "several times slower: "
                         << why;
  }

  int architecture_ = 0;  // 90
  Mutex mutex_;
  CudnnHandle handle_ ABSL_GUARDED_BY(mutex_);
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
  // Null: cuDNN has refused the shape.
  std::map<GraphShape, std::unique_ptr<AttentionGraph>> plans_
      ABSL_GUARDED_BY(mutex_);
  const std::string missing_;  // why there is no handle
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
  return CudnnOf(stream).Run(info, ShapeOf(s), pointers, info.scratch,
                             info.scratch_bytes);
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
  const GraphShape shape = ShapeOf(s, part);
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
