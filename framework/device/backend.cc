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
    case DeviceKind::kMetaCuda:
      return "meta cuda";
    case DeviceKind::kTimedCuda:
      return "timed cuda";
  }
  return "?";
}

}  // namespace delink
