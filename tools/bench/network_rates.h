// `delink bench --suite machine` of several processes: the network between
// them, as network_time.h counts it.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "offload/rates/machine_rates.h"

namespace delink::bench {

struct MeasuredNetwork {
  offload::NetworkRates inside;   // of a node; without a rate if no node has
                                  // several ranks
  offload::NetworkRates between;  // nodes; the same if there is one node
};

// Sums, gathers and reductions of host memory. `nodes`: of each rank. Between
// nodes first one rank of a node exchanges, which is a link, then all at once,
// which tells how many links there are. Collective; rank 0 has the result.
absl::StatusOr<MeasuredNetwork> MeasureNetwork(Communicator& world,
                                               const std::vector<int>& nodes,
                                               bool quick);

}  // namespace delink::bench
