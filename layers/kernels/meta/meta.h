// Kernels of the meta device: they compute nothing.
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::meta {

// Answers scratch queries as `imitated` does.
Kernels Table(const Kernels& imitated);

}  // namespace delink::meta
