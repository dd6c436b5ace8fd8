// The latency and bandwidth of a link between ranks. The joint execution
// computes with them (framework/step/time/step_time.h), and DelayExchanges
// imposes them on real ranks.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace delink {

struct Link {
  double latency = 0;           // seconds until the first byte is there
  double bytes_per_second = 0;  // 0: bytes take no time

  // The time for which the link can send nothing else.
  double BusySeconds(int64_t bytes) const {
    return bytes_per_second > 0 ? static_cast<double>(bytes) / bytes_per_second
                                : 0;
  }
};

// "0.005,1e9": seconds and bytes a second. InvalidArgument.
absl::StatusOr<Link> ParseLink(std::string_view text);

// The least bytes that each of `ranks` ranks must send, for a buffer of
// `bytes`: SentInParts for an all-gather or a reduce-scatter, SentForSum for an
// all-reduce.
inline int64_t SentInParts(int64_t bytes, int ranks) {
  return bytes - bytes / ranks;
}
inline int64_t SentForSum(int64_t bytes, int ranks) {
  return 2 * SentInParts(bytes, ranks);
}

}  // namespace delink
