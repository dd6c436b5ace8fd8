// How many parameters a second AdamW updates, form by form.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/rates/machine_rates.h"
#include "tools/bench/target.h"

namespace delink::bench {

// The forms of parameters that are measured.
std::vector<offload::ParamForms> RatedForms();

// Of `parameters`, a multiple of kBlock8, on the target; medians of samples of
// so many seconds in all. An error where there is not enough memory.
absl::StatusOr<double> MeasureUpdate(Target& target,
                                     const offload::ParamForms& forms,
                                     int64_t parameters, double seconds);

}  // namespace delink::bench
