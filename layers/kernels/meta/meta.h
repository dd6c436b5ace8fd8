// Kernels of the meta device: they compute nothing, but a stream can note their
// work (framework/device/work.h).
#pragma once

#include "framework/tensor/dtype.h"
#include "layers/kernels/kernels.h"

namespace delink::meta {

// Any kernel; it notes nothing. For ops that are not part of Delink.
template <typename Args>
void Nothing(Stream&, const Args&) {}

// Of the type `dtype`. Scratch sizes are those of `imitated`.
Kernels Table(const Kernels& imitated, DType dtype);

}  // namespace delink::meta
