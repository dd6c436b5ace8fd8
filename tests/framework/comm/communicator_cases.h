// What every communicator must do, whatever carries it: one body for the single
// process, for threads and for MPI. Each case is called by every rank of `comm`
// and compares with exact expected results.
#pragma once

#include "absl/status/status.h"
#include "framework/comm/communicator.h"

namespace delink::testing {

absl::Status CheckReduceScatter(Communicator& comm);
absl::Status CheckAllGather(Communicator& comm);
absl::Status CheckAllReduce(Communicator& comm);
absl::Status CheckBroadcast(Communicator& comm);
absl::Status CheckRing(Communicator& comm);
absl::Status CheckManyUnderWay(Communicator& comm);
absl::Status CheckSplit(Communicator& comm);
absl::Status CheckGroups(Communicator& comm);
absl::Status CheckScalars(Communicator& comm);
absl::Status CheckAgreement(Communicator& comm);
absl::Status CheckStrings(Communicator& comm);
absl::Status CheckOrderOfSums(Communicator& comm);
absl::Status CheckRepeatable(Communicator& comm);
absl::Status CheckCanaries(Communicator& comm);

struct CommunicatorCase {
  const char* name;
  absl::Status (*check)(Communicator& comm);
};

inline constexpr CommunicatorCase kCommunicatorCases[] = {
    {"ReduceScatter", CheckReduceScatter},
    {"AllGather", CheckAllGather},
    {"AllReduce", CheckAllReduce},
    {"Broadcast", CheckBroadcast},
    {"Ring", CheckRing},
    {"ManyUnderWay", CheckManyUnderWay},
    {"Split", CheckSplit},
    {"Groups", CheckGroups},
    {"Scalars", CheckScalars},
    {"Agreement", CheckAgreement},
    {"Strings", CheckStrings},
    {"OrderOfSums", CheckOrderOfSums},
    {"Repeatable", CheckRepeatable},
    {"Canaries", CheckCanaries},
};

}  // namespace delink::testing
