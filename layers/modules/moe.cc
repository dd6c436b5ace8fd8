#include "layers/modules/moe.h"

#include <vector>

#include "framework/base/check.h"
#include "layers/modules/gated_mlp.h"
#include "layers/modules/mlp.h"
#include "layers/ops/add.h"
#include "layers/ops/expert_exchange.h"

namespace delink {
namespace {

bool Gated(const Moe::Config& c) {
  return c.activation == ExpertActivation::kSwiGlu;
}

// Of the experts' matrices [E, rows, .] in s; null without.
Param* Biases(const Scope& s, const Moe::Config& c, int64_t rows,
              bool residual) {
  if (!c.bias) return nullptr;
  return &s.Param("bias", {.shape = {c.experts, rows},
                           .vectors = true,
                           .init = Init::Zeros(),
                           .decay = false,
                           .split = Split::kExpert,
                           .residual = residual,
                           .used = c.route.top_k});
}

Param& Up(const Scope& s, const Moe::Config& c) {
  const int64_t rows = Gated(c) ? 2 * c.hidden : c.hidden;
  ParamSpec spec{.shape = {c.experts, rows, c.dim},
                 .init = Init::Normal(c.stddev),
                 .split = Split::kExpert,
                 .used = c.route.top_k};
  if (Gated(c)) spec.stacked = {c.hidden, c.hidden};
  return (s / (Gated(c) ? "gate_up" : "up")).Param("weight", spec);
}

std::unique_ptr<Module> Shared(const Scope& s, const Moe::Config& c) {
  if (c.shared_hidden == 0) return nullptr;
  if (Gated(c)) {
    return std::make_unique<GatedMlp>(
        s, GatedMlp::Config{.part = "shared_experts",
                            .dim = c.dim,
                            .hidden = c.shared_hidden,
                            .stddev = c.stddev,
                            .out_stddev = c.out_stddev});
  }
  return std::make_unique<Mlp>(
      s, Mlp::Config{.part = "shared_experts",
                     .dim = c.dim,
                     .hidden = c.shared_hidden,
                     .gelu = c.activation == ExpertActivation::kGeluErf
                                 ? GeluForm::kErf
                                 : GeluForm::kTanh,
                     .bias = c.bias,
                     .stddev = c.stddev,
                     .out_stddev = c.out_stddev});
}

}  // namespace

Moe::Moe(const Scope& s, const Config& c)
    : route_(c.route),
      activation_(c.activation),
      router_((s.Part("router") / "router")
                  .Param("weight", {.shape = {c.experts, c.dim},
                                    .init = Init::Normal(c.stddev),
                                    .exact = true})),
      bias_(c.bias_rate ? &(s.Part("router") / "router")
                               .Param("bias", {.shape = {c.experts},
                                               .init = Init::Zeros(),
                                               .decay = false,
                                               .exact = true,
                                               .balance_rate = *c.bias_rate})
                        : nullptr),
      loads_(c.aux_over_batch ? &(s.Part("router") / "router")
                                     .Param("loads", {.shape = {c.experts},
                                                      .init = Init::Ones(),
                                                      .decay = false,
                                                      .exact = true,
                                                      .router_loads = true})
                              : nullptr),
      up_(Up(s.Part("experts") / "experts", c)),
      down_((s.Part("experts") / "experts" / "down")
                .Param("weight", {.shape = {c.experts, c.dim, c.hidden},
                                  .init = Init::Normal(c.out_stddev),
                                  .split = Split::kExpert,
                                  .residual = true,
                                  .used = c.route.top_k})),
      up_bias_(Biases(s.Part("experts") / "experts" / "up", c, c.hidden,
                      /*residual=*/false)),
      down_bias_(Biases(s.Part("experts") / "experts" / "down", c, c.dim,
                        /*residual=*/true)),
      shared_(Shared(s / "shared", c)),
      dropout_(s, c.dropout) {
  DELINK_CHECK(!c.bias || !Gated(c)) << "biases of gated experts";
}

Var Moe::operator()(Var x) {
  ops::ExpertExchange exchange(
      x, ops::Route(ops::RouterLogits(x, router_), route_, bias_, loads_));
  const bool early = shared_ != nullptr && exchange.overlaps();
  Var shared = early ? (*shared_)(x) : Var();
  for (int part = 0; part < exchange.parts(); ++part) {
    const ops::AtExperts at = exchange.Arrive(part);
    const ops::Routing& r = at.r;
    const Var h = ops::GroupedLinear(ops::Dispatch(at.x, r), r, up_, up_bias_);
    const Var rows = ops::GroupedLinear(ops::ActivateExperts(h, r, activation_),
                                        r, down_, down_bias_, /*gated=*/true);
    exchange.Return(ops::Combine(rows, r, at.x.shape()), part);
  }
  Var y = exchange.Result(x.shape());
  if (shared_ != nullptr && !early) shared = (*shared_)(x);
  if (shared.defined()) y = y + shared;
  return dropout_(y);
}

}  // namespace delink
