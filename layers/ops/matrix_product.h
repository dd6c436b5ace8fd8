// Multiplies matrices for an optimizer: the function that NewMuon is given.
#pragma once

#include "framework/optim/muon.h"

namespace delink {

// Uses the device's kernels.
void MultiplyMatrices(Device& device, Stream& stream,
                      const MatrixProduct& product);

}  // namespace delink
