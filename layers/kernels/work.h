// What a call of a kernel has to do at the least, whoever carries it out:
// its arithmetic, and every byte of its arguments that must be read or written,
// once. Beside how long it took, that says how near it came to what the machine
// can do.
//
// FLOPs are the multiplications and additions of matmuls and attention, of
// attention's backward the five products that an implementation without whole
// scores makes; all else is bound by memory and counts none. Where outputs are
// written only in part (an embedding's gradient, added to), that part counts.
// Of rows that hold several documents, whose ends are known to the device
// alone, attention counts as that of whole rows: an upper bound.
#pragma once

#include "framework/tensor/dtype.h"
#include "layers/kernels/arguments.h"

namespace delink {

struct Work {
  const char* kernel = "";  // as Kernels (kernels.h) calls it
  double flops = 0;
  double read = 0;     // bytes
  double written = 0;  // bytes

  double bytes() const { return read + written; }
};

// Of a call with these arguments to the table of `dtype`.
Work WorkOf(const MatmulArgs& a, DType dtype);
Work WorkOf(const MatmulGeluArgs& a, DType dtype);
Work WorkOf(const MatmulGeluBackwardArgs& a, DType dtype);
Work WorkOf(const MatmulBiasGradArgs& a, DType dtype);
Work WorkOf(const BiasGradArgs& a, DType dtype);
Work WorkOf(const LayerNormForwardArgs& a, DType dtype);
Work WorkOf(const LayerNormBackwardInputArgs& a, DType dtype);
Work WorkOf(const LayerNormBackwardWeightArgs& a, DType dtype);
Work WorkOf(const RmsNormForwardArgs& a, DType dtype);
Work WorkOf(const RmsNormBackwardInputArgs& a, DType dtype);
Work WorkOf(const RmsNormBackwardWeightArgs& a, DType dtype);
Work WorkOf(const QkNormForwardArgs& a, DType dtype);
Work WorkOf(const QkNormBackwardInputArgs& a, DType dtype);
Work WorkOf(const QkNormBackwardWeightArgs& a, DType dtype);
Work WorkOf(const GeluForwardArgs& a, DType dtype);
Work WorkOf(const GeluBackwardArgs& a, DType dtype);
Work WorkOf(const SwiGluForwardArgs& a, DType dtype);
Work WorkOf(const SwiGluBackwardArgs& a, DType dtype);
Work WorkOf(const RotaryArgs& a, DType dtype);
Work WorkOf(const AddArgs& a, DType dtype);
Work WorkOf(const AccumulateArgs& a, DType dtype);
Work WorkOf(const RoundGradientArgs& a, DType dtype);
Work WorkOf(const DropoutArgs& a, DType dtype);
Work WorkOf(const EmbeddingForwardArgs& a, DType dtype);
Work WorkOf(const EmbeddingBackwardWeightArgs& a, DType dtype);
Work WorkOf(const EmbeddingBackwardPositionArgs& a, DType dtype);
Work WorkOf(const AttentionForwardArgs& a, DType dtype);
Work WorkOf(const AttentionBackwardArgs& a, DType dtype);
Work WorkOf(const CrossEntropyArgs& a, DType dtype);

}  // namespace delink
