#include "framework/device/backend.h"

namespace delink {

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
  }
  return "?";
}

}  // namespace delink
