// A link between ranks as numbers: what the joint execution reckons with
// (framework/step/step_time.h), and what DelayExchanges makes of real ranks.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace delink {

struct Link {
  double latency = 0;           // seconds until the first byte is there
  double bytes_per_second = 0;  // 0: bytes take no time

  // For so long it can send nothing else.
  double BusySeconds(int64_t bytes) const {
    return bytes_per_second > 0 ? static_cast<double>(bytes) / bytes_per_second
                                : 0;
  }
};

// "0.005,1e9": seconds and bytes a second. InvalidArgument.
absl::StatusOr<Link> ParseLink(std::string_view text);

// Bytes that each of some ranks sends where none sends more than it must, of a
// buffer of so many: to gather its parts, or to add it up and scatter the sum;
// and to have the sum everywhere.
inline int64_t SentInParts(int64_t bytes, int ranks) {
  return bytes - bytes / ranks;
}
inline int64_t SentForSum(int64_t bytes, int ranks) {
  return 2 * SentInParts(bytes, ranks);
}

}  // namespace delink
