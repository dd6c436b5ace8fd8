#include "layers/kernels/meta/meta.h"

namespace delink::meta {

Kernels Table(const Kernels& imitated) {
#define DELINK_NOTHING(entry, Function) .entry = Nothing,
#define DELINK_IMITATED(entry, Function) .entry = imitated.entry,
  return {DELINK_KERNELS(DELINK_NOTHING) DELINK_SCRATCH_BYTES(DELINK_IMITATED)};
#undef DELINK_NOTHING
#undef DELINK_IMITATED
}

}  // namespace delink::meta
