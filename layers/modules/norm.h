// Norm: layer norm (weight and bias) or RMS norm (weight). Its parameters are
// in the part "norm".
#pragma once

#include <cstdint>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "layers/ops/add.h"

namespace delink {

enum class NormKind : uint8_t { kLayerNorm, kRmsNorm };

class Norm final : public Module {
 public:
  struct Config {
    int64_t dim = 0;
    NormKind kind = NormKind::kLayerNorm;
    double eps = 1e-5;
  };
  Norm(const Scope& s, const Config& c);

  // x [..., dim]; normalises over the last axis.
  Var operator()(Var x) override;
  // One kernel computes x + branch and the norm of this sum:
  //   const auto [sum, normed] = norm.Add(x, branch);
  ops::SumAndNorm Add(Var x, Var branch);

 private:
  double eps_;
  Param& weight_;
  Param* bias_;  // null: RMS norm
};

}  // namespace delink
