// Binder: what a layer sees of a store. Points the parameters of the layer that
// is about to be visited at their weights and gradients.
//
// Twelve layers that share are twelve module objects and one slab: only the
// binder's lists know which parameter lies where. A Binder belongs to the
// thread that runs the layers; the store must outlive it.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/param_store.h"

namespace delink {

class Binder {
 public:
  explicit Binder(ParamStore& store);

  // Points the parameters of `layer`, which is visited, at their weights (and
  // Param::rest() at rows in another slab that lie behind) and,
  // with `written` given, at their gradients; (*written)[i] says whether the
  // gradient of slabs_of_layer(layer)[i] already holds contributions of this
  // step. With `gradients` given, slab i's gradient goes to that address (of
  // the plane's size, in the slab's order) instead of its plane, where it is
  // not null.
  void Bind(int layer, const std::vector<bool>* written,
            const std::vector<void*>* gradients = nullptr);
  // After a backward of the layer bound last: zeroes the gradients in its slabs
  // that nobody has written in this step, those of parameters that only other
  // layers use included.
  void FinishGradients(int layer, Stream& stream);

 private:
  struct Binding {
    Param* param;
    bool is_rest;   // of param->rest()
    bool has_rest;  // another one is
    Shape shape;    // of what is here of it
    int slab;
    int index;  // of slab in slabs_of_layer
    int64_t offset;
  };
  // A parameter in a slab of a layer that only other layers use.
  struct Stranger {
    int slab;
    int index;  // of slab in slabs_of_layer
    int64_t offset;
    int64_t elements;
  };
  void FindBindings(const LogicalTensor& tensor, const ParamDecl& decl);
  void FindStrangers();
  static Param& ParamOf(const Binding& binding);

  ParamStore* store_;
  std::vector<std::vector<Binding>> bindings_;    // by layer
  std::vector<std::vector<Stranger>> strangers_;  // by layer
  // Of the strangers of the layer bound last, those not written in this step.
  std::vector<Tensor> strange_gradients_;
};

}  // namespace delink
