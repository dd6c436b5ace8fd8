// Parameters a second that AdamW updates, by form.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/optim/arguments.h"
#include "offload/rates/machine_rates.h"
#include "tools/bench/op_case.h"
#include "tools/bench/target.h"

namespace delink::bench {

// The measured forms of parameters.
std::vector<offload::ParamForms> RatedForms();

// A step over n parameters that is neither clipped nor skipped, in its own
// memory, which is filled with numbers.
AdamWArgs AdamWOf(const offload::ParamForms& forms, int64_t n, Pieces& m);

// Updates `parameters` parameters, a multiple of kBlock8, on the target. The
// median of samples that take `seconds` in all. An error if there is not enough
// memory.
absl::StatusOr<double> MeasureUpdate(Target& target,
                                     const offload::ParamForms& forms,
                                     int64_t parameters, double seconds);

}  // namespace delink::bench
