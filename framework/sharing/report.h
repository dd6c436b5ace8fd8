// The parameters and memory of a stage, for the log before and after a switch:
// they show what sharing saves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/module/param_store.h"

namespace delink {

// Parameters of the whole model; bytes on this rank.
struct SharingReport {
  int64_t unique_parameters = 0;   // that exist
  int64_t virtual_parameters = 0;  // that layers see
  int64_t weight_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t state_bytes = 0;
  int64_t activation_bytes = 0;

  int64_t total_bytes() const {
    return weight_bytes + gradient_bytes + state_bytes + activation_bytes;
  }
  friend bool operator==(const SharingReport&, const SharingReport&) = default;
};

// `activation_bytes`: what the executor's account says.
SharingReport ReportSharing(const ParamStore& store, int64_t activation_bytes);

// Lines such as
//   parameters: 85.1 M virtual, 7.1 M unique (8.3 %)
//   memory: 27.0 MiB weights + 27.0 MiB gradients + ... = 300.1 MiB
std::vector<std::string> Describe(const SharingReport& report);

// How each part of the blocks is shared: "attention: 12 blocks use 1 slab".
std::vector<std::string> DescribeSharing(const ParamStore& store);

}  // namespace delink
