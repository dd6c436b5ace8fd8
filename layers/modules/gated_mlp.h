// GatedMlp: gate_up [2 hidden, dim] (rows: gate, then up), SwiGLU, down
// [dim, hidden], dropout. No biases.
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "layers/modules/dropout.h"
#include "layers/modules/linear.h"

namespace delink {

class GatedMlp final : public Module {
 public:
  struct Config {
    std::string_view part = "mlp";
    int64_t dim = 0;
    int64_t hidden = 0;
    double dropout = 0;
    double stddev = 0.02;
    double out_stddev = 0.02;  // of down, which writes to the residual stream
  };
  GatedMlp(const Scope& s, const Config& c);

  // x [B, T, dim].
  Var operator()(Var x) override;

 private:
  Linear gate_up_;
  Linear down_;
  Dropout dropout_;
};

}  // namespace delink
