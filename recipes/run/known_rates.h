// What the machine is taken to do where a decision hangs on it: as `delink
// bench --suite machine` measured it, else what is assumed of machines.
#pragma once

#include <string>

#include "framework/device/backend.h"
#include "offload/plan/bounds.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct KnownRates {
  offload::StepRates rates;
  std::string source;  // in words, with what may be done about it
};

// For the recipe's products and updates, of `device`, or of the first of this
// machine where it measures in place of a GPU.
KnownRates RatesFor(const Device& device, const Recipe& recipe);

}  // namespace delink
