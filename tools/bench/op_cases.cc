// The list of measured kernels: those that work row by row.
#include <algorithm>
#include <memory>

#include "framework/base/check.h"
#include "framework/optim/find_kernels.h"
#include "layers/kernels/find_kernels.h"
#include "layers/ops/rotary.h"
#include "recipes/models/llama_config.h"
#include "tools/bench/op_case.h"
#include "tools/bench/op_list.h"

namespace delink::bench {
namespace {

constexpr double kEps = 1e-5;
constexpr int64_t kShortSeq = 256, kLongSeq = 1024;

OpSizes SizesOf(const ModelShape& m, DeviceKind device) {
  const int64_t tokens = m.StepTokens(device);
  const int64_t seq = std::min(IsCuda(device) ? kLongSeq : kShortSeq, tokens);
  return {.B = tokens / seq,
          .T = seq,
          .N = tokens,
          .D = m.dim,
          .H = m.heads,
          .Hkv = m.kv_heads,
          .Dh = m.dim / m.heads,
          .F = m.ffn,
          .Fg = m.kind != "gpt" ? m.ffn : LlamaConfig::DefaultFfn(m.dim),
          .V = m.vocab,
          .E = m.experts,
          .k = m.top_k,
          .block_parameters = 4 * m.dim * m.dim + 2 * m.dim * m.ffn};
}

// Tokens spread over the vocabulary, with few repetitions.
std::vector<int32_t> Tokens(int64_t count, int64_t V) {
  std::vector<int32_t> tokens;
  for (int64_t n = 0; n < count; ++n) {
    tokens.push_back(static_cast<int32_t>(n * 7919 % V));
  }
  return tokens;
}

}  // namespace

OpList::OpList(const OpSizes& sizes, DeviceKind device, DType dtype)
    : sizes_(sizes),
      kernels_(FindKernels(device, dtype)),
      optim_(FindOptimKernels(device, DType::kF32)),
      device_(device),
      dtype_(dtype) {
  DELINK_CHECK(kernels_ != nullptr && optim_ != nullptr) << ToString(dtype);
}

// Also a fused sum and norm, and a norm's gradient that is added to another.
void OpList::AddLayerNorms() {
  const OpSizes d = sizes_;
  const DType t = dtype_, stat = StatisticsOf(t), p = kGradient;
  const std::string shape = By(d.N, d.D);
  const auto forward = [=](Pieces& m) {
    return LayerNormForwardArgs{d.N,
                                d.D,
                                kEps,
                                m.Take(d.N * d.D, t),
                                m.Take(d.D, t),
                                m.Take(d.D, t),
                                m.Take(d.N * d.D, t),
                                m.Take(d.N, stat),
                                m.Take(d.N, stat)};
  };
  const auto backward_input = [=](Pieces& m) {
    return LayerNormBackwardInputArgs{d.N,
                                      d.D,
                                      m.Take(d.N * d.D, t),
                                      m.Take(d.N * d.D, t),
                                      m.Take(d.D, t),
                                      m.Take(d.N, stat),
                                      m.Take(d.N, stat),
                                      m.Take(d.N * d.D, t)};
  };
  Add("layer_norm forward", shape, kernels_->layer_norm_forward, forward);
  Add("layer_norm backward input", shape, kernels_->layer_norm_backward_input,
      backward_input);
  Add("layer_norm backward weight", shape, kernels_->layer_norm_backward_weight,
      [=](Pieces& m) {
        return LayerNormBackwardWeightArgs{d.N,
                                           d.D,
                                           m.Take(d.N * d.D, t),
                                           m.Take(d.N * d.D, t),
                                           m.Take(d.N, stat),
                                           m.Take(d.N, stat),
                                           m.Take(d.D, p),
                                           m.Take(d.D, p),
                                           true};
      });
  Add("layer_norm forward of a sum", shape, kernels_->layer_norm_forward,
      [=](Pieces& m) {
        LayerNormForwardArgs args = forward(m);
        args.add = m.Take(d.N * d.D, t);
        args.sum = m.Take(d.N * d.D, t);
        return args;
      });
  Add("layer_norm backward input added", shape,
      kernels_->layer_norm_backward_input, [=](Pieces& m) {
        LayerNormBackwardInputArgs args = backward_input(m);
        args.add = args.dx;
        return args;
      });
}

void OpList::AddRmsNorms() {
  const OpSizes d = sizes_;
  const DType t = dtype_, stat = StatisticsOf(t), p = kGradient;
  const std::string shape = By(d.N, d.D);
  Add("rms_norm forward", shape, kernels_->rms_norm_forward, [=](Pieces& m) {
    return RmsNormForwardArgs{d.N,
                              d.D,
                              kEps,
                              m.Take(d.N * d.D, t),
                              m.Take(d.D, t),
                              m.Take(d.N * d.D, t),
                              m.Take(d.N, stat)};
  });
  Add("rms_norm backward input", shape, kernels_->rms_norm_backward_input,
      [=](Pieces& m) {
        return RmsNormBackwardInputArgs{d.N,
                                        d.D,
                                        m.Take(d.N * d.D, t),
                                        m.Take(d.N * d.D, t),
                                        m.Take(d.D, t),
                                        m.Take(d.N, stat),
                                        m.Take(d.N * d.D, t)};
      });
  Add("rms_norm backward weight", shape, kernels_->rms_norm_backward_weight,
      [=](Pieces& m) {
        return RmsNormBackwardWeightArgs{d.N,
                                         d.D,
                                         m.Take(d.N * d.D, t),
                                         m.Take(d.N * d.D, t),
                                         m.Take(d.N, stat),
                                         m.Take(d.D, p),
                                         true};
      });
}

void OpList::AddQkNorms() {
  const OpSizes d = sizes_;
  const DType t = dtype_, stat = StatisticsOf(t);
  const int64_t width = (d.H + 2 * d.Hkv) * d.Dh;
  Add("qk_norm forward", By(d.N, width), kernels_->qk_norm_forward,
      [=](Pieces& m) {
        return QkNormForwardArgs{d.N,
                                 d.H,
                                 d.Hkv,
                                 d.Dh,
                                 kEps,
                                 m.Take(d.N * width, t),
                                 m.Take(d.Dh, t),
                                 m.Take(d.Dh, t),
                                 m.Take(d.N * width, t),
                                 m.Take(d.N * (d.H + d.Hkv), stat)};
      });
  Add("qk_norm backward input", By(d.N, width),
      kernels_->qk_norm_backward_input, [=](Pieces& m) {
        return QkNormBackwardInputArgs{d.N,
                                       d.H,
                                       d.Hkv,
                                       d.Dh,
                                       m.Take(d.N * width, t),
                                       m.Take(d.N * width, t),
                                       m.Take(d.Dh, t),
                                       m.Take(d.Dh, t),
                                       m.Take(d.N * (d.H + d.Hkv), stat),
                                       m.Take(d.N * width, t)};
      });
}

void OpList::AddActivations() {
  const OpSizes d = sizes_;
  const DType t = dtype_;
  const auto form = GeluForm::kTanh;
  const int64_t hidden = d.N * d.F;
  Add("gelu forward", By(d.N, d.F), kernels_->gelu_forward, [=](Pieces& m) {
    return GeluForwardArgs{hidden, form, m.Take(hidden, t), m.Take(hidden, t)};
  });
  Add("gelu backward", By(d.N, d.F), kernels_->gelu_backward, [=](Pieces& m) {
    return GeluBackwardArgs{hidden, form, m.Take(hidden, t), m.Take(hidden, t),
                            m.Take(hidden, t)};
  });
  Add("swiglu forward", By(d.N, d.Fg), kernels_->swiglu_forward,
      [=](Pieces& m) {
        return SwiGluForwardArgs{d.N, d.Fg, m.Take(2 * d.N * d.Fg, t),
                                 m.Take(d.N * d.Fg, t)};
      });
  Add("swiglu backward", By(d.N, d.Fg), kernels_->swiglu_backward,
      [=](Pieces& m) {
        return SwiGluBackwardArgs{d.N, d.Fg, m.Take(d.N * d.Fg, t),
                                  m.Take(2 * d.N * d.Fg, t),
                                  m.Take(2 * d.N * d.Fg, t)};
      });
}

void OpList::AddPointwise() {
  const OpSizes d = sizes_;
  const DType t = dtype_, p = kGradient;
  const int64_t stream = d.N * d.D;
  Add("add", By(d.N, d.D), kernels_->add, [=](Pieces& m) {
    return AddArgs{stream, m.Take(stream, t), m.Take(stream, t),
                   m.Take(stream, t)};
  });
  Add("accumulate", By(d.N, d.D), kernels_->accumulate, [=](Pieces& m) {
    return AccumulateArgs{stream, m.Take(stream, t), m.Take(stream, t)};
  });
  for (const int64_t width : {3 * d.D, d.F, d.D}) {
    Add("bias_grad", By(d.N, width), kernels_->bias_grad, [=](Pieces& m) {
      return BiasGradArgs{d.N, width, m.Take(d.N * width, t), m.Take(width, p),
                          true};
    });
  }
  const auto angles = std::make_shared<const RotaryAngles>(
      ops::RotaryFrequencies({.dim = d.Dh}));
  const int64_t row = (d.H + 2 * d.Hkv) * d.Dh;
  Add("rotary", By(d.B, d.T, d.H + d.Hkv, d.Dh), kernels_->rotary,
      [=](Pieces& m) {
        return RotaryArgs{.B = d.B,
                          .T = d.T,
                          .Dh = d.Dh,
                          .heads = d.H + d.Hkv,
                          .row = row,
                          .angles = angles.get(),
                          .x = m.Take(d.N * row, t)};
      });
  Add("dropout", By(d.N, d.D), kernels_->dropout, [=](Pieces& m) {
    return DropoutArgs{
        .B = d.B,
        .T = d.T,
        .D = d.D,
        .rate = 0.1,
        .step_key = m.Put<RngKey>({KeyFromSeed(1)}),
        .name_hash = 1,
        .sample = m.Put(std::vector<int64_t>(static_cast<size_t>(d.B), 7)),
        .x = m.Take(stream, t),
        .y = m.Take(stream, t)};
  });
}

void OpList::AddEmbedding() {
  const OpSizes d = sizes_;
  const DType t = dtype_, p = kGradient;
  const auto tokens = [=](Pieces& m) { return m.Put(Tokens(d.N, d.V)); };
  Add("embedding forward", By(d.N, d.D), kernels_->embedding_forward,
      [=](Pieces& m) {
        return EmbeddingForwardArgs{.B = d.B,
                                    .T = d.T,
                                    .D = d.D,
                                    .V = d.V,
                                    .tokens = tokens(m),
                                    .w = m.Take(d.V * d.D, t),
                                    .p = m.Take(d.T * d.D, t),
                                    .y = m.Take(d.N * d.D, t)};
      });
  Add("embedding backward weight", By(d.N, d.D),
      kernels_->embedding_backward_weight, [=](Pieces& m) {
        return EmbeddingBackwardWeightArgs{d.N,
                                           d.D,
                                           d.V,
                                           tokens(m),
                                           m.Take(d.N * d.D, t),
                                           m.Take(d.V * d.D, p),
                                           true};
      });
  Add("embedding backward position", By(d.N, d.D),
      kernels_->embedding_backward_position, [=](Pieces& m) {
        return EmbeddingBackwardPositionArgs{.B = d.B,
                                             .T = d.T,
                                             .D = d.D,
                                             .Tmax = d.T,
                                             .dy = m.Take(d.N * d.D, t),
                                             .dp = m.Take(d.T * d.D, p)};
      });
}

std::vector<OpCase> OpCases(const ModelShape& shape, DeviceKind device,
                            DType dtype) {
  const OpSizes sizes = SizesOf(shape, device);
  OpList list(sizes, device, dtype);
  list.AddMatmuls();
  list.AddAttention(sizes.B, sizes.T);
  if (sizes.T < kLongSeq && sizes.N >= kLongSeq)
    list.AddAttention(sizes.N / kLongSeq, kLongSeq);
  list.AddLayerNorms();
  list.AddRmsNorms();
  list.AddQkNorms();
  list.AddActivations();
  list.AddPointwise();
  list.AddEmbedding();
  list.AddLossAndOptimizer();
  list.AddLossOfColumns();
  if (sizes.E > 0) {
    list.AddRouting();
    list.AddRows();
    list.AddExperts();
  }
  return list.Take();
}

}  // namespace delink::bench
