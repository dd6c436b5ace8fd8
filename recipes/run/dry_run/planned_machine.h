// A machine of a file (recipes/schema/machine_file.h), and the ranks on it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "framework/tensor/dtype.h"
#include "offload/rates/machine_rates.h"
#include "recipes/schema/recipe.h"

namespace delink {

struct PlannedMachine {
  std::string path;
  offload::MachineRates machine;
  int64_t ranks = 1;
  int64_t ranks_per_node = 1;  // on the nodes that have most

  // Of one rank; ranks on the CPU share a node's.
  int64_t rank_memory() const;
  double RankFlops(DType dtype) const;
};

// Places `ranks`. `ranks_per_node` 0: as many as a node has room for.
// InvalidArgument: the machine has other devices than `device`, or too few.
absl::StatusOr<PlannedMachine> PlaceOnMachine(
    const std::string& path, const offload::MachineRates& machine,
    RunConfig::Device device, int64_t ranks, int64_t ranks_per_node);

// "64 node(s) of 8 device(s), cuda 'NVIDIA H100 80GB HBM3' of 78.0 GiB"
std::string DevicesText(const offload::MachineRates& machine);

}  // namespace delink
