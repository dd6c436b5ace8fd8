// Linear: weight [out, in] and, unless told otherwise, bias [out]. Cut over
// ranks (Tape::groups) by its Split: with kOut each rank has columns of the
// result, of all rows of x; with kIn x has columns, and the result is the sum
// over ranks, of a rank's own rows.
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
    double stddev = 0.02;  // of the initial weight; the bias begins at zero
    Split split = Split::kNone;
    std::vector<int64_t> stacked;  // as ParamSpec's, of the weight
    int64_t unit = 1;              // likewise
    bool residual = false;         // as ParamSpec's
  };
  Linear(const Scope& s, const Config& c);

  // x [..., in] to [..., out].
  Var operator()(Var x) override;
  // Of another's Gelu, and for it: the pair is cheaper than with a GELU
  // between.
  Var operator()(const ops::Activated& x);
  ops::Activated Gelu(Var x, GeluForm form);

 private:
  // Null where another rank adds it.
  Param* BiasOn(const Tape& tape) const;
  // Of the product with kOut: says which columns are here.
  void SayColumns(Var y) const;

  ParamSpec spec_;  // of the weight
  Param& weight_;
  Param* bias_;  // null without
};

}  // namespace delink
