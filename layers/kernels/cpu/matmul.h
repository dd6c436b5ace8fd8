// Matrix products: by oneDNN (onednn/) or by our own loops (no_onednn/), as
// CMake chose.
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::cpu {

void Matmul(Stream&, const MatmulArgs&);

}  // namespace delink::cpu
