#include "recipes/convert/open_saved.h"

#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"

namespace delink {

absl::StatusOr<std::unique_ptr<SavedModel>> OpenSaved(
    const std::string& checkpoint, const ModelList& models, int threads) {
  // The ranks' threads have ended before it is read, and all found the same.
  std::string path;
  absl::Status found;
  const absl::Status ranks = RunRanks(threads, [&](Communicator& comm) {
    const absl::StatusOr<std::string> mine = FindCheckpoint(comm, checkpoint);
    if (comm.rank() != 0) return absl::OkStatus();
    found = mine.status();
    if (mine.ok()) path = *mine;
    return absl::OkStatus();
  });
  DELINK_RETURN_IF_ERROR(found);
  DELINK_RETURN_IF_ERROR(ranks);
  SelfCommunicator comm;
  return SavedModel::OpenStep(comm, path, models);
}

}  // namespace delink
