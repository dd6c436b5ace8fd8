// Delinking: giving layers that shared a slab slabs of their own, with the same
// contents. The function that the model computes does not change by a bit. And
// growth (grow.h): more blocks besides, where it may change.
//
// Weights and masters are copied bit for bit. Slabs whose sharing does not
// change (an embedding, a part that shared nothing) keep their optimizer state
// and update count under every policy; the others' become what StatePolicy
// says, with n = layers that shared the old slab / layers that share the new
// one; those that begin fresh have none. Gradients are not copied. kCalibrated
// copies here; Calibration::Apply does the rest, and there slabs whose sharing
// does not change follow the clip factor's change.
//
// Memory: both stores exist, so the peak is the old store's planes plus the new
// store's and no more. What a rank holds before and after in the same form is
// copied on the device; what changes goes over the host, a few MiB at a time.
// Network: to each rank what it is to hold and did not, from who owned it, and
// once for all slabs that come from one and lie alike.
#pragma once

#include "absl/status/status.h"
#include "framework/comm/communicator.h"
#include "framework/module/param_store.h"
#include "framework/sharing/grow.h"
#include "framework/sharing/state_policy.h"

namespace delink {

// Fills `to` from `from`. Both are over the same registry, device, element type
// and ranks, those of `comm`, and keep masters alike; `to` only cuts links of
// `from`, or grows (else InvalidArgument, and nothing is written). The layouts
// may differ: collective then. States that `from` lacks, by name or of a
// tensor, count as reset; the storage of the others may differ. Blocks until
// done.
absl::Status Delink(const ParamStore& from, ParamStore& to, StatePolicy policy,
                    Communicator& comm, const Growth& growth = {});

}  // namespace delink
