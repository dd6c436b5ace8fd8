// Delinking: gives layers that shared a slab their own slabs with the same
// contents. The outputs of the model do not change by a bit. Growth (grow.h)
// adds blocks too; then the outputs may change.
//
// Weights and masters are copied bit for bit. Slabs whose sharing does not
// change (an embedding, a part that shared nothing) keep their optimizer state
// and update count under every policy. For other slabs StatePolicy decides,
// with n = layers that shared the old slab / layers that share the new one.
// Slabs that begin fresh have no state. Gradients are not copied. Delink copies
// the state under kCalibrated, and Calibration::Apply scales it; slabs whose
// sharing does not change then follow the clip factor's change.
//
// Memory: both stores exist, so the peak is the planes of both and no more.
// What a rank holds before and after in the same form is copied on the device;
// what changes is copied through the host, a few MiB at a time.
// Network: the owner sends each rank what it must hold and did not, once for
// all slabs that come from one slab and have the same layout.
#pragma once

#include "absl/status/status.h"
#include "framework/comm/communicator.h"
#include "framework/module/param_store.h"
#include "framework/sharing/grow.h"
#include "framework/sharing/state_policy.h"

namespace delink {

// Fills `to` from `from`. Both must have the same registry, device, element
// type, form of master and ranks, those of `comm`. `to` may only cut links of
// `from` or grow, else InvalidArgument, and nothing is written. If the layouts
// differ, the call is collective. States that `from` lacks, by name or for a
// tensor, count as reset; the storage of other states may differ. Blocks until
// done.
absl::Status Delink(const ParamStore& from, ParamStore& to, StatePolicy policy,
                    Communicator& comm, const Growth& growth = {});

}  // namespace delink
