// Module: code that turns a Var into a Var. It owns no memory: parameters are
// the store's, activations the visit's.
#pragma once

#include "framework/autograd/tape.h"

namespace delink {

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Var operator()(Var x) = 0;
};

// The last layer. operator() is unused; Loss adds to tape.inputs().loss and,
// when the tape records, leaves the gradient of x behind (the logits are never
// kept); Logits returns [B, T, V].
class EpilogueModule : public Module {
 public:
  Var operator()(Var x) final { return Logits(x); }
  virtual void Loss(Var x) = 0;
  virtual Var Logits(Var x) = 0;
};

}  // namespace delink
