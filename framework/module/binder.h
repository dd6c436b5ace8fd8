// Binder: points the parameters of a layer, before a visit, at their weights
// and gradients in a store.
//
// Twelve layers that share are twelve module objects and one slab; only the
// binder's lists say where each parameter lies. A Binder belongs to the thread
// that runs the layers; the store must outlive it.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/param_store.h"

namespace delink {

class Binder {
 public:
  explicit Binder(ParamStore& store);

  // Points the parameters of `layer`, which must be visited, at their weights,
  // and Param::rest() at further rows in another slab. If `written` is given,
  // points them at their gradients too; (*written)[i] says whether the gradient
  // of slabs_of_layer(layer)[i] already holds contributions of this step. If
  // `gradients` is given and (*gradients)[i] is not null, the gradient of that
  // slab is written to this address (of the plane's size, in the slab's order)
  // instead of its plane.
  void Bind(int layer, const std::vector<bool>* written,
            const std::vector<void*>* gradients = nullptr);
  // After a backward of the layer bound last: zeroes the gradients in its slabs
  // that have not been written in this step, including those of parameters that
  // only other layers use.
  void FinishGradients(int layer, Stream& stream);

 private:
  struct Binding {
    Param* param;
    bool is_rest;   // binds param->rest()
    bool has_rest;  // another binding is its rest
    Shape shape;    // of the rows and columns that are here
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
  // Gradients of the layer bound last that only other layers use and that are
  // not written in this step.
  std::vector<Tensor> strange_gradients_;
};

}  // namespace delink
