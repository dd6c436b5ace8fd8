// Kernels of the meta device: they compute nothing.
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::meta {

// Any kernel.
template <typename Args>
void Nothing(Stream&, const Args&) {}

// Scratch sizes are those of `imitated`.
Kernels Table(const Kernels& imitated);

}  // namespace delink::meta
