// Mlp: up [hidden, dim], GELU, down [dim, hidden], dropout.
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "layers/kernels/arguments.h"
#include "layers/modules/dropout.h"
#include "layers/modules/linear.h"

namespace delink {

class Mlp final : public Module {
 public:
  struct Config {
    std::string_view part = "mlp";
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
