#include "layers/modules/gated_mlp.h"

#include "layers/ops/swiglu.h"

namespace delink {

GatedMlp::GatedMlp(const Scope& s, const Config& c)
    : gate_up_(s.Part(c.part) / "gate_up", {.in = c.dim,
                                            .out = 2 * c.hidden,
                                            .bias = false,
                                            .stddev = c.stddev,
                                            .split = Split::kOut,
                                            .stacked = {c.hidden, c.hidden}}),
      down_(s.Part(c.part) / "down", {.in = c.hidden,
                                      .out = c.dim,
                                      .bias = false,
                                      .stddev = c.out_stddev,
                                      .split = Split::kIn,
                                      .residual = true}),
      dropout_(s, c.dropout) {}

Var GatedMlp::operator()(Var x) {
  return dropout_(down_(ops::SwiGlu(gate_up_(x))));
}

}  // namespace delink
