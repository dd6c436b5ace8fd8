// Moe: a mixture of experts. A router sends each token to some of the experts,
// each an MLP of its own, and adds up their outputs, weighted by its gates. All
// tokens also pass the shared experts, which are one MLP. Parts and parameters:
//
//   router          router/weight [E, dim], router/bias [E], router/loads [E]:
//                   all exact
//   experts         gate_up [E, 2 hidden, dim], or up [E, hidden, dim];
//                   down [E, dim, hidden]; with up, biases [E, hidden] and
//                   [E, dim]
//   shared_experts  as GatedMlp's or Mlp's
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "layers/kernels/arguments.h"
#include "layers/modules/dropout.h"
#include "layers/ops/experts.h"

namespace delink {

class Moe final : public Module {
 public:
  struct Config {
    int64_t dim = 0;
    int64_t experts = 0;
    int64_t hidden = 0;         // of an expert
    int64_t shared_hidden = 0;  // of the shared experts together; 0: none
    ops::RouteConfig route;
    // The choice has a bias (ops::Route) that moves so (ParamSpec). 0: it stays
    // as it is.
    std::optional<double> bias_rate;
    bool aux_over_batch =
        false;          // the auxiliary loss has the last step's loads
    bool bias = false;  // also of the shared experts; not with kSwiGlu
    ExpertActivation activation = ExpertActivation::kSwiGlu;
    double dropout = 0;
    double stddev = 0.02;
    double out_stddev = 0.02;  // of down, which writes to the residual stream
  };
  Moe(const Scope& s, const Config& c);

  // x [B, T, dim].
  Var operator()(Var x) override;

 private:
  ops::RouteConfig route_;
  ExpertActivation activation_;
  Param& router_;
  Param *bias_, *loads_;  // null without
  Param& up_;
  Param& down_;
  Param *up_bias_, *down_bias_;     // null without
  std::unique_ptr<Module> shared_;  // null without
  Dropout dropout_;
};

}  // namespace delink
