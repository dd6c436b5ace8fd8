// What the machine is taken to do where a decision hangs on it: as `delink
// bench --suite machine` measured it, else what is assumed of machines.
#pragma once

#include <string>

#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"
#include "offload/plan/bounds.h"

namespace delink {

struct KnownRates {
  offload::StepRates rates;
  std::string source;  // in words, with what may be done about it
};

// With products in `dtype`, of `device`, or of the first of this machine where
// it measures in place of a GPU.
KnownRates RatesFor(const Device& device, DType dtype);

}  // namespace delink
