// Mlp: up [hidden, dim], GELU, down [dim, hidden], dropout. Its parameters are
// in the part "mlp".
#pragma once

#include <cstdint>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "layers/kernels/arguments.h"
#include "layers/modules/dropout.h"
#include "layers/modules/linear.h"

namespace delink {

class Mlp final : public Module {
 public:
  struct Config {
    int64_t dim = 0;
    int64_t hidden = 0;
    GeluForm gelu = GeluForm::kTanh;
    bool bias = true;
    double dropout = 0;
    double stddev = 0.02;
    double out_stddev = 0.02;  // of down, which writes to the residual stream
  };
  Mlp(const Scope& s, const Config& c);

  // x [B, T, dim].
  Var operator()(Var x) override;

 private:
  GeluForm gelu_;
  Linear up_;
  Linear down_;
  Dropout dropout_;
};

}  // namespace delink
