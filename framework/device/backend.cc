#include "framework/device/backend.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/device/huge_pages.h"

namespace delink {

HostMemory Device::AllocateHost(int64_t bytes, std::string_view what) {
  void* const memory = AllocateInHugePages(bytes > 0 ? bytes : 1);
  DELINK_CHECK(memory != nullptr) << "out of memory of the host: asked for "
                                  << bytes << " bytes for " << what;
  return {memory, std::free};
}

absl::Status Device::TakeWithinLimit(const void* address, int64_t bytes,
                                     std::string_view what) {
  const int64_t limit = limit_;
  if (ledgers_.allocated.TakeWithin(limit, address, bytes, what)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "out of memory: asked for ", bytes, " bytes for ",
      absl::string_view(what.data(), what.size()), ", but the limit of ",
      name(), " is ", limit, " bytes, of which ", bytes_in_use(),
      " are in use: ", ledgers_.allocated.ToString()));
}

const char* ToString(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kMeta:
      return "meta";
    case DeviceKind::kCuda:
      return "cuda";
    case DeviceKind::kTimedCpu:
      return "timed cpu";
    case DeviceKind::kMetaCuda:
      return "meta cuda";
    case DeviceKind::kTimedCuda:
      return "timed cuda";
  }
  return "?";
}

}  // namespace delink
