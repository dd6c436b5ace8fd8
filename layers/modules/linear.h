// Linear: weight [out, in] and, if config.bias, bias [out]. Its Split says how
// it is sharded over ranks (Tape::groups). With kOut each rank computes some
// columns of the result, for all rows of x. With kIn each rank has some columns
// of x; the result is the sum over ranks, of which a rank gets its own rows.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "layers/ops/linear.h"

namespace delink {

class Linear final : public Module {
 public:
  struct Config {
    int64_t in = 0, out = 0;
    bool bias = true;
    double stddev = 0.02;  // of the initial weight; the initial bias is zero
    Split split = Split::kNone;
    std::vector<int64_t> stacked;  // as ParamSpec's, of the weight
    int64_t unit = 1;              // likewise
    bool residual = false;         // as ParamSpec's
  };
  Linear(const Scope& s, const Config& c);

  // x [..., in] to [..., out].
  Var operator()(Var x) override;
  // For an MLP: down(up.Gelu(x, form)). These two calls are cheaper than a
  // separate GELU between two products.
  Var operator()(const ops::Activated& x);
  ops::Activated Gelu(Var x, GeluForm form);

 private:
  // Null if another rank adds the bias.
  Param* BiasOn(const Tape& tape) const;
  // With kOut: tells the tape which columns of y this rank has.
  void SayColumns(Var y) const;

  ParamSpec spec_;  // of the weight
  Param& weight_;
  Param* bias_;  // null without
};

}  // namespace delink
