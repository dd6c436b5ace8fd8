// Times of kernels for the machine's file: those of `--suite ops` at a few
// shapes, numbers of tokens and of threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/rates/machine_rates.h"
#include "tools/bench/target.h"

namespace delink::bench {

struct KernelRatesOptions {
  int threads = 1;  // of the host: measured with these, and with one
  bool quick = false;
};

// On the target, in two or three minutes; `quick`: at one tiny shape, at once.
// An error if there is not enough memory.
absl::StatusOr<std::vector<offload::KernelRate>> MeasureKernels(
    Target& target, const KernelRatesOptions& options,
    const std::function<void(const std::string&)>& progress);

}  // namespace delink::bench
