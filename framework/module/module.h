// Module: code that turns a Var into a Var. It owns no memory: the store owns
// parameters, a visit owns activations.
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

// The last layer. operator() is unused. Loss adds to tape.inputs().loss and, if
// the tape records, stores the gradient of x; it never keeps the logits. Logits
// returns [B, T, V].
class EpilogueModule : public Module {
 public:
  Var operator()(Var x) final { return Logits(x); }
  virtual void Loss(Var x) = 0;
  virtual Var Logits(Var x) = 0;
};

}  // namespace delink
