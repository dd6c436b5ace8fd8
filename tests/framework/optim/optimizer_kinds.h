// An optimizer of each kind, for tests that hold of all of them.
#pragma once

#include <memory>
#include <ostream>

#include "framework/optim/adafactor.h"
#include "framework/optim/adamw.h"
#include "framework/optim/first_order.h"
#include "framework/optim/muon.h"
#include "layers/ops/matrix_product.h"

namespace delink::testing {

struct OptimizerKind {
  const char* name;
  std::unique_ptr<SlabOptimizer> (*make)();
};
inline std::ostream& operator<<(std::ostream& out, const OptimizerKind& kind) {
  return out << kind.name;
}

inline constexpr Hyper kAnyHyper = {
    .beta1 = 0.9, .beta2 = 0.99, .momentum = 0.9};
inline constexpr OptimizerKind kOptimizerKinds[] = {
    {"adamw", [] { return NewAdamW({}, ParamRules(kAnyHyper)); }},
    {"sgd", [] { return NewSgd({.nesterov = true}, ParamRules(kAnyHyper)); }},
    {"lion", [] { return NewLion(ParamRules(kAnyHyper)); }},
    {"adafactor", [] { return NewAdafactor({}, ParamRules(kAnyHyper)); }},
    {"muon",
     [] { return NewMuon({}, ParamRules(kAnyHyper), MultiplyMatrices); }}};

}  // namespace delink::testing
