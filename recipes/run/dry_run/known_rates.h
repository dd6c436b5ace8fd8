// The machine's rates, for decisions that depend on them: measured by `delink
// bench --suite machine`, else assumed.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "offload/plan/bounds.h"
#include "offload/rates/machine_rates.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct KnownRates {
  offload::StepRates rates;
  // With the times of kernels; null: not known, and visits count by FLOPs.
  std::shared_ptr<const offload::MachineRates> machine;
  std::string source;  // in words, with how to get better ones
};

// Rates of the recipe's products and updates on the machine of the file `path`.
// FailedPrecondition: it has no products of that type.
absl::StatusOr<KnownRates> RatesIn(const offload::MachineRates& machine,
                                   const std::string& path,
                                   const Recipe& recipe);

// The stored rates of this machine, on `device`, or on this machine's first GPU
// if `device` stands for a GPU without being one. NotFound: there are none;
// FailedPrecondition: they are of another device, or lack the products.
absl::StatusOr<KnownRates> MeasuredRates(const Device& device,
                                         const Recipe& recipe);
// The same, or assumed ones.
KnownRates RatesFor(const Device& device, const Recipe& recipe);

}  // namespace delink
