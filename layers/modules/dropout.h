// Dropout at one place in a model.
#pragma once

#include <cstdint>

#include "framework/module/module.h"
#include "framework/module/scope.h"

namespace delink {

class Dropout final : public Module {
 public:
  // The mask depends on the scope, so two layers never draw the same mask.
  Dropout(const Scope& s, double rate)
      : rate_(rate), name_hash_(HashName(s.path())) {}

  // x [B, T, D].
  Var operator()(Var x) override;

 private:
  double rate_;
  uint64_t name_hash_;
};

}  // namespace delink
