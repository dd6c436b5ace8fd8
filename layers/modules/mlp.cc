#include "layers/modules/mlp.h"

namespace delink {

Mlp::Mlp(const Scope& s, const Config& c)
    : gelu_(c.gelu),
      up_(s.Part(c.part) / "up", {.in = c.dim,
                                  .out = c.hidden,
                                  .bias = c.bias,
                                  .stddev = c.stddev,
                                  .split = Split::kOut}),
      down_(s.Part(c.part) / "down", {.in = c.hidden,
                                      .out = c.dim,
                                      .bias = c.bias,
                                      .stddev = c.out_stddev,
                                      .split = Split::kIn,
                                      .residual = true}),
      dropout_(s, c.dropout) {}

Var Mlp::operator()(Var x) { return dropout_(down_(up_.Gelu(x, gelu_))); }

}  // namespace delink
