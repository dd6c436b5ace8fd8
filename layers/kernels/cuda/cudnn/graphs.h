// cuDNN's graphs of attention. Making one needs no device. Nor does asking
// cuDNN for its plan, if the properties of a device are known.
//
// Only graphs.cc includes cuDNN's C++ front end, a header that takes half a
// minute to compile, and it catches the front end's exceptions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "layers/kernels/arguments.h"
#include "layers/kernels/cuda/attention_scratch.h"

struct cudnnContext;  // what a cudnnHandle_t points to

namespace delink::cuda {

// The tensors of a graph. A call gives their addresses by Uid.
enum Uid : int64_t { kQ = 1, kK, kV, kO, kLse, kDo, kDq, kDk, kDv };

// The shape of one call of cuDNN; `B`, `H` and `Hkv` are those of a part.
// Strides are in elements.
struct GraphShape {
  bool backward;
  bool deterministic;  // of backward
  int64_t B, H, Hkv, Dh, T, window;
  float scale;
  HeadStrides q, kv, o;  // of their gradients too
  bool lse;              // of forward: written

  // clang-tidy 14 takes the 0 of a defaulted comparison for a pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const GraphShape&, const GraphShape&) = default;
};
GraphShape ShapeOf(const AttentionForwardArgs&);
GraphShape ShapeOf(const AttentionBackwardArgs&, const AttentionPart&);

// Call it before all else, with the cuDNN that OpenCudaLibrary has opened.
void UseCudnn(void* library);

// A handle of cuDNN's on the thread's device.
class CudnnHandle {
 public:
  CudnnHandle() = default;
  ~CudnnHandle();
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  absl::Status Create();
  // `stream` is a cudaStream_t.
  absl::Status SetStream(void* stream);
  cudnnContext* get() const { return handle_; }  // null: there is none

 private:
  cudnnContext* handle_ = nullptr;
};

// A graph and cuDNN's plan for it: bf16 with f32 statistics. Errors have
// cuDNN's own messages.
class AttentionGraph {
 public:
  // `architecture`: 90 for compute capability 9.0.
  AttentionGraph(const GraphShape&, int architecture);
  ~AttentionGraph();

  // Makes the plan for the handle's device.
  absl::Status Build(const CudnnHandle&);
  // The same for a GPU that need not be present, from its properties in cuDNN's
  // JSON. Unimplemented: this cuDNN has another form of properties.
  absl::Status BuildFor(const std::string& properties);
  int64_t workspace() const { return workspace_; }  // bytes that the plan wants
  // Enqueues it on the handle's stream; the tensors' addresses are by Uid.
  absl::Status Execute(const CudnnHandle&,
                       std::unordered_map<int64_t, void*> pointers,
                       void* workspace);

 private:
  struct FrontEnd;
  std::unique_ptr<FrontEnd> front_end_;
  int64_t workspace_ = 0;
};

}  // namespace delink::cuda
