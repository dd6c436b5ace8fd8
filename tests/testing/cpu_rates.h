// Rates of a machine whose device is the CPU, as `delink bench --suite machine`
// keeps them.
#pragma once

#include <cstdint>

#include "framework/tensor/dtype.h"
#include "offload/rates/machine_rates.h"
#include "recipes/record/environment.h"

namespace delink::testing {

// FLOP/s of products, bytes/s of copies each way, and of memory.
inline offload::MachineRates CpuRates(double flops, double bus, double memory) {
  return {.version = "0",
          .time = "2026-01-01T00:00:00Z",
          .device = {.kind = "cpu", .name = ProcessorName()},
          .tier = {.memory = int64_t{1} << 40, .bytes_per_s = memory},
          .host_bytes = int64_t{1} << 40,
          .threads = 1,
          .pinned = {bus, bus, bus, bus},
          .pageable = {bus, bus, bus, bus},
          .memory = {memory, memory, memory, memory},
          .matmul = {{DType::kF32, flops}, {DType::kBF16, flops}}};
}

}  // namespace delink::testing
