// An op and a module that Delink does not have, which mix positions: each token
// becomes the mean of all up to itself.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/module/module.h"
#include "framework/module/scope.h"

namespace delink::testing {

// docs: state
// Of all tokens so far.
struct SumState final : VisitState {
  explicit SumState(int64_t width) : sum(static_cast<size_t>(width)) {}
  std::vector<double> sum;  // a model for a GPU has a Buffer here
  int64_t tokens = 0;
};
// docs: end

template <typename T>
void MeanRows(const Tensor& x, SumState& before, const Tensor& y) {
  const int64_t tokens = x.dim(1), D = x.dim(2);
  const T* const from = static_cast<const T*>(x.data());
  T* const to = static_cast<T*>(y.data());
  for (int64_t t = 0; t < tokens; ++t) {
    ++before.tokens;
    for (int64_t d = 0; d < D; ++d) {
      double& sum = At(before.sum, d);
      sum += from[t * D + d];
      to[t * D + d] = static_cast<T>(sum / static_cast<double>(before.tokens));
    }
  }
}

// docs: mean
// x [1, T, D]; goes on from `state` where there is one. Forward only.
inline Var CausalMean(Var x, SumState* state) {
  Tape& tape = x.tape();
  const Var y = tape.Output(x.shape(), x.dtype());
  SumState none(x.dim(2));
  SumState& before = state != nullptr ? *state : none;
  if (x.dtype() == DType::kF64) {
    MeanRows<double>(x.value(), before, y.value());
  } else {
    MeanRows<float>(x.value(), before, y.value());
  }
  tape.Record({.name = "causal_mean",
               .inputs = {x},
               .outputs = {y},
               .by_token = state != nullptr});
  return y;
}

class MeanLayer final : public Module {
 public:
  Var operator()(Var x) override {
    Tape& tape = x.tape();
    if (tape.inputs().states == nullptr) return CausalMean(x, nullptr);
    return CausalMean(x, &tape.State<SumState>(x.dim(2)));
  }
};
// docs: end

}  // namespace delink::testing
