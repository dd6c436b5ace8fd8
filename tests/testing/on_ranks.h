// Ranks that are threads, of which all must come to their end.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "framework/comm/thread_communicator.h"
#include "gtest/gtest.h"

namespace delink::testing {

inline void OnRanks(int ranks,
                    const std::function<void(Communicator&)>& rank_main) {
  const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
    rank_main(comm);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace delink::testing
