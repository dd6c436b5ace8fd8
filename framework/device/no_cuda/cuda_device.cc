// The CUDA device of a build that has none.
#include "absl/status/status.h"
#include "framework/device/backend.h"

namespace delink {
namespace {

absl::Status None() {
  return absl::UnavailableError(
      "this build has no CUDA backend; use run.device = \"cpu\"");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int) { return None(); }

absl::StatusOr<int> CountCudaDevices() { return None(); }

}  // namespace delink
