#include "offload/rates/machine_rates.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include "framework/base/file.h"

namespace delink::offload {

KernelRate RateOfCall(const Work& work, int64_t threads, double seconds) {
  return {.kernel = std::string(work.kernel),
          .dtype = work.dtype,
          .threads = threads,
          .m = work.m,
          .n = work.n,
          .k = work.k,
          .transpose_a = work.transpose_a,
          .transpose_b = work.transpose_b,
          .flops = work.flops,
          .read = work.read,
          .written = work.written,
          .seconds = seconds};
}

double MachineRates::FlopsOf(DType dtype) const {
  const MatmulRate* largest = nullptr;
  for (const MatmulRate& rate : matmul) {
    if (rate.dtype != dtype) continue;
    if (largest == nullptr || rate.smallest > largest->smallest) {
      largest = &rate;
    }
  }
  return largest != nullptr ? largest->flops_per_s : 0;
}

double MachineRates::FlopsOf(DType dtype, int64_t smallest) const {
  const MatmulRate *below = nullptr, *above = nullptr;
  for (const MatmulRate& rate : matmul) {
    if (rate.dtype != dtype) continue;
    if (rate.smallest <= smallest) {
      if (below == nullptr || rate.smallest > below->smallest) below = &rate;
    } else if (above == nullptr || rate.smallest < above->smallest) {
      above = &rate;
    }
  }
  if (below == nullptr && above == nullptr) return 0;
  if (below == nullptr) return above->flops_per_s;
  if (above == nullptr) return below->flops_per_s;
  const auto log = [](auto x) { return std::log(static_cast<double>(x)); };
  const double part = (log(smallest) - log(below->smallest)) /
                      (log(above->smallest) - log(below->smallest));
  return std::exp((1 - part) * log(below->flops_per_s) +
                  part * log(above->flops_per_s));
}

double MachineRates::ParamsPerSecond(UpdatePlace place,
                                     const ParamForms& forms) const {
  for (const UpdateRate& rate : updates) {
    if (rate.place == place && rate.forms == forms) return rate.params_per_s;
  }
  return 0;
}

double MachineRates::SpeedOf(int64_t node) const {
  for (const SlowNode& of : slow) {
    if (of.node == node) return of.speed;
  }
  return 1;
}

int64_t MachineRates::RanksOfNode() const {
  return device.kind == "cpu" ? devices * threads : devices;
}

absl::StatusOr<std::string> DefaultMachineRatesPath() {
  constexpr char kBelow[] = "delink/machine.toml";
  // The XDG standard says to ignore a relative path.
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return JoinPath(cache, kBelow);
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') {
    return JoinPath(JoinPath(home, ".cache"), kBelow);
  }
  return absl::FailedPreconditionError(
      "the environment has neither HOME nor XDG_CACHE_HOME, below which the "
      "machine's rates are kept; set one of them");
}

}  // namespace delink::offload
