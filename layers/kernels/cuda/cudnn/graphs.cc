#include "layers/kernels/cuda/cudnn/graphs.h"

#include <cstdint>
#include <memory>

namespace delink::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
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

std::shared_ptr<Graph> MakeGraph(const GraphShape& shape, int architecture) {
  auto graph = std::make_shared<Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(architecture);
  if (shape.backward) {
    AddBackward(shape, graph.get());
  } else {
    AddForward(shape, graph.get());
  }
  return graph;
}

}  // namespace delink::cuda
