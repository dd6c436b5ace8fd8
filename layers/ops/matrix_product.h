// Multiplies matrices for an optimizer: what NewMuon is handed.
#pragma once

#include "framework/optim/muon.h"

namespace delink {

// By the kernels of the device.
void MultiplyMatrices(Device& device, Stream& stream,
                      const MatrixProduct& product);

}  // namespace delink
