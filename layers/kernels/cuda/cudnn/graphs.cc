#include "layers/kernels/cuda/cudnn/graphs.h"

// It finds cuDNN through `cudnn_dlhandle`.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/log.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace delink::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;

// The error that `call` returns or throws.
template <typename Call>
absl::Status Said(Call call) {
  try {
    const fe::error_t error = call();
    if (error.is_good()) return absl::OkStatus();
    return absl::InternalError(error.err_msg);
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

fe::error_t Outcome(const char* function, cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return {fe::error_code_t::CUDNN_BACKEND_API_FAILED,
          std::string(function) + " failed"};
}

using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

TensorPtr Heads(Graph& graph, const char* name, Uid uid, const GraphShape& s,
                int64_t heads, HeadStrides strides) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_name(name)
                          .set_uid(uid)
                          .set_dim({s.B, heads, s.T, s.Dh})
                          .set_stride({strides.batch, s.Dh, strides.row, 1}));
}

void SetOutput(TensorPtr tensor, Uid uid, const GraphShape& s, int64_t heads,
               HeadStrides strides) {
  tensor->set_output(true)
      .set_uid(uid)
      .set_dim({s.B, heads, s.T, s.Dh})
      .set_stride({strides.batch, s.Dh, strides.row, 1});
}

// Tq == Tk, so the diagonal is that of both corners. cuDNN's left bound counts
// the query's own position, as our window does.
template <typename Attributes>
void SetMask(const GraphShape& s, Attributes* attributes) {
  attributes->set_attn_scale(s.scale)
      .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  if (s.window > 0 && s.window < s.T) {
    attributes->set_diagonal_band_left_bound(static_cast<int>(s.window));
  }
}

void AddForward(const GraphShape& s, Graph* graph) {
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

void AddBackward(const GraphShape& s, Graph* graph) {
  auto attributes = fe::graph::SDPA_backward_attributes()
                        .set_name("attention_backward")
                        .set_deterministic_algorithm(s.deterministic);
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

template <typename Args>
GraphShape Common(const Args& s, bool backward, const AttentionPart& part) {
  return {.backward = backward,
          .deterministic = true,
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

}  // namespace

GraphShape ShapeOf(const AttentionForwardArgs& s) {
  return Common(s, false, {s.B, s.Hkv, 0});
}

GraphShape ShapeOf(const AttentionBackwardArgs& s, const AttentionPart& part) {
  GraphShape shape = Common(s, true, part);
  shape.deterministic = s.deterministic;
  return shape;
}

void UseCudnn(void* library) { fe::cudnn_dlhandle = library; }

CudnnHandle::~CudnnHandle() {
  if (handle_ == nullptr) return;
  const absl::Status status = Said([this] {
    return Outcome("cudnnDestroy", fe::detail::destroy_handle(handle_));
  });
  if (!status.ok()) {
    DELINK_LOG(kWarning) << "cuDNN did not end well: " << status.message();
  }
}

absl::Status CudnnHandle::Create() {
  return Said([this] {
    return Outcome("cudnnCreate", fe::detail::create_handle(&handle_));
  });
}

absl::Status CudnnHandle::SetStream(void* stream) {
  return Said([&] {
    return Outcome(
        "cudnnSetStream",
        fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream)));
  });
}

struct AttentionGraph::FrontEnd {
  Graph graph;
};

AttentionGraph::AttentionGraph(const GraphShape& shape, int architecture)
    : front_end_(std::make_unique<FrontEnd>()) {
  Graph& graph = front_end_->graph;
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(architecture);
  if (shape.backward) {
    AddBackward(shape, &graph);
  } else {
    AddForward(shape, &graph);
  }
}

AttentionGraph::~AttentionGraph() = default;

absl::Status AttentionGraph::Build(const CudnnHandle& handle) {
  return Said([&] {
    Graph& graph = front_end_->graph;
    fe::error_t error = graph.build(handle.get(), {fe::HeurMode_t::A});
    if (error.is_good()) error = graph.get_workspace_size(workspace_);
    return error;
  });
}

absl::Status AttentionGraph::BuildFor(const std::string& properties) {
  const auto device = std::make_shared<fe::DeviceProperties>();
  const absl::Status known = Said([&] {
    return device->deserialize({properties.begin(), properties.end()});
  });
  if (!known.ok()) return absl::UnimplementedError(known.message());
  return Said([&] {
    Graph& graph = front_end_->graph;
    graph.set_device_properties(device);
    fe::error_t error = graph.build({fe::HeurMode_t::A});
    if (error.is_good()) error = graph.get_workspace_size(workspace_);
    return error;
  });
}

absl::Status AttentionGraph::Execute(
    const CudnnHandle& handle, std::unordered_map<int64_t, void*> pointers,
    void* workspace) {
  return Said([&] {
    return front_end_->graph.execute(handle.get(), pointers, workspace);
  });
}

}  // namespace delink::cuda
