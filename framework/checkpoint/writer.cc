#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/cache.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/file_plan.h"
#include "framework/checkpoint/index.h"
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/rank_file.h"
#include "framework/module/mover.h"
#include "framework/module/store_values.h"

namespace delink {

using checkpoint::FilePlan;
using checkpoint::RankFile;

namespace {

// A rank's file.
struct Written {
  FileSum sum;
  std::string frame;  // checkpoint/frame.h
};

// The parameters of all slabs, then the states.
absl::StatusOr<Written> WriteOwned(const std::string& folder,
                                   const FilePlan& plan,
                                   const ModelValues& model,
                                   Communicator& comm) {
  Written mine{.sum = {.name = checkpoint::WriterName(comm.rank())}};
  const std::string path = JoinPath(folder, mine.sum.name);
  DELINK_ASSIGN_OR_RETURN(
      RankFile file, RankFile::Create(path, plan, comm.rank(), model.type));
  for (const Field& field : plan.fields()) {
    std::vector<Move> moves;
    for (size_t s = 0; s < plan.layout().slabs().size(); ++s) {
      for (const LogicalTensor* const tensor :
           plan.tensors(static_cast<int>(s))) {
        moves.push_back({.field = field, .from = tensor, .to = {tensor}});
      }
    }
    DELINK_RETURN_IF_ERROR(MoveValues(*model.values, file, moves, comm));
  }
  mine.frame = file.frame();
  DELINK_ASSIGN_OR_RETURN(mine.sum.digest, file.Close());
  DELINK_ASSIGN_OR_RETURN(mine.sum.bytes, FileSize(path));
  // Free the page cache: others need the memory now, readers of the file come
  // later.
  LetCacheGoOf(path);
  return mine;
}

// What rank 0 adds once every rank has written its file.
absl::Status Complete(const std::string& folder, const CheckpointHeader& header,
                      const FilePlan& plan, const ModelValues& model,
                      const CheckpointFiles& files,
                      const std::vector<Written>& written) {
  checkpoint::Frames frames;
  for (const Written& one : written) frames[one.sum.name] = one.frame;
  DELINK_RETURN_IF_ERROR(checkpoint::WriteIndex(
      JoinPath(folder, checkpoint::kIndexName), header, plan, model, frames));
  std::vector<FileSum> sums(1);
  DELINK_ASSIGN_OR_RETURN(sums.front(),
                          SumFile(folder, checkpoint::kIndexName));
  for (const Written& one : written) sums.push_back(one.sum);
  for (const auto& [name, bytes] : files) {
    DELINK_RETURN_IF_ERROR(WriteFile(JoinPath(folder, name), bytes));
    DELINK_ASSIGN_OR_RETURN(FileSum sum, SumFile(folder, name));
    sums.push_back(std::move(sum));
  }
  DELINK_RETURN_IF_ERROR(WriteSums(folder, sums));
  return SyncDirectory(folder);
}

// Removes what interrupted writers left, and all but `keep` checkpoints (0:
// removes none). Checkpoints of later steps than `step`, just written, are
// removed first (a run that was resumed from before them left them behind),
// then the oldest. The one of step `best` does not count and stays.
absl::Status Prune(const std::string& folder, int64_t step, int64_t keep,
                   int64_t best) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListDirectory(folder));
  std::vector<std::tuple<bool, int64_t, std::string>> found;
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    if (checkpoint::IsLeftover(name)) DELINK_RETURN_IF_ERROR(RemoveAll(path));
    const int64_t of = checkpoint::StepOfName(name);
    if (of < 0 || of == best) continue;
    found.emplace_back(of <= step, of, path);
  }
  if (keep <= 0) return absl::OkStatus();
  std::sort(found.begin(), found.end());
  for (size_t i = 0; i + static_cast<size_t>(keep) < found.size(); ++i) {
    DELINK_RETURN_IF_ERROR(RemoveAll(std::get<std::string>(found[i])));
  }
  return absl::OkStatus();
}

absl::Status Publish(const std::string& folder, const std::string& temporary,
                     const std::string& path) {
  if (PathExists(path)) {
    // The same step, saved again after a resume from an older one.
    const std::string old = absl::StrCat(path, checkpoint::kReplaced);
    DELINK_RETURN_IF_ERROR(RemoveAll(old));
    DELINK_RETURN_IF_ERROR(Rename(path, old));
    DELINK_RETURN_IF_ERROR(Rename(temporary, path));
    return RemoveAll(old);
  }
  return Rename(temporary, path);
}

// Of every rank, in their order.
absl::StatusOr<std::vector<Written>> Gather(Communicator& comm,
                                            const Written& mine) {
  std::vector<Written> all;
  for (int rank = 0; rank < comm.size(); ++rank) {
    Written one{.sum = {.name = checkpoint::WriterName(rank)}};
    DELINK_ASSIGN_OR_RETURN(one.sum.digest,
                            BroadcastString(comm, mine.sum.digest, rank));
    DELINK_ASSIGN_OR_RETURN(one.frame, BroadcastString(comm, mine.frame, rank));
    int64_t bytes = rank == comm.rank() ? mine.sum.bytes : 0;
    DELINK_ASSIGN_OR_RETURN(one.sum.bytes,
                            AllReduceScalar(comm, bytes, ReduceOp::kSum));
    all.push_back(std::move(one));
  }
  return all;
}

absl::Status WriteInto(Communicator& comm, const std::string& temporary,
                       const CheckpointHeader& header, const ModelValues& model,
                       const CheckpointFiles& files) {
  const bool first = comm.rank() == 0;
  absl::Status status;
  if (first) {
    status = RemoveAll(temporary);
    if (status.ok()) status = MakeDirectories(temporary);
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, status));
  const FilePlan plan(*model.layout, model.states);
  absl::StatusOr<Written> mine = WriteOwned(temporary, plan, model, comm);
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, mine.status()));
  DELINK_ASSIGN_OR_RETURN(const std::vector<Written> written,
                          Gather(comm, *mine));
  if (first) {
    status = Complete(temporary, header, plan, model, files, written);
  }
  return AgreeOnStatus(comm, status);
}

// By logical slab, including those of other ranks.
absl::StatusOr<std::vector<int64_t>> UpdatesOf(Communicator& comm,
                                               const ParamStore& store) {
  std::vector<int64_t> updates(store.layout().slabs().size(), 0);
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    At(updates, store.local(static_cast<int>(s)).logical) = store.updates()[s];
  }
  DELINK_RETURN_IF_ERROR(comm.AllReduce(updates.data(),
                                        static_cast<int64_t>(updates.size()),
                                        DType::kI64, ReduceOp::kMax)
                             ->Wait());
  return updates;
}

}  // namespace

absl::StatusOr<int> SetLaterAside(const std::string& folder, int64_t step) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListDirectory(folder));
  int count = 0;
  for (const std::string& name : names) {
    if (checkpoint::StepOfName(name) <= step) continue;
    const std::string path = JoinPath(folder, name);
    const std::string aside = absl::StrCat(path, checkpoint::kLeft);
    DELINK_RETURN_IF_ERROR(RemoveAll(aside));
    DELINK_RETURN_IF_ERROR(Rename(path, aside));
    ++count;
  }
  return count;
}

absl::StatusOr<bool> LinkBest(const std::string& folder, int64_t step) {
  const std::string link = JoinPath(folder, checkpoint::kBest);
  const std::string target = checkpoint::StepName(std::max<int64_t>(step, 0));
  if (step < 0 || !PathExists(JoinPath(folder, target))) {
    DELINK_RETURN_IF_ERROR(RemoveAll(link));
    return false;
  }
  // Made beside the old link and renamed, so that one of the two always exists.
  const std::string next = absl::StrCat(link, checkpoint::kTemporary);
  DELINK_RETURN_IF_ERROR(RemoveAll(next));
  if (symlink(target.c_str(), next.c_str()) != 0) {
    return FileError(errno, next, "create the link");
  }
  DELINK_RETURN_IF_ERROR(Rename(next, link));
  return true;
}

absl::StatusOr<std::string> WriteCheckpoint(Communicator& comm,
                                            const std::string& folder,
                                            const CheckpointHeader& header,
                                            const ModelValues& model,
                                            const CheckpointFiles& files,
                                            int64_t keep, int64_t best) {
  const std::string path = JoinPath(folder, checkpoint::StepName(header.step));
  const std::string temporary = absl::StrCat(path, checkpoint::kTemporary);
  DELINK_CHECK_EQ(model.layout->ranks(), comm.size());
  DELINK_CHECK_EQ(model.updates.size(), model.layout->slabs().size());
  absl::Status status = WriteInto(comm, temporary, header, model, files);
  if (status.ok()) {
    absl::Status published;
    if (comm.rank() == 0) {
      published = Publish(folder, temporary, path);
      if (published.ok()) published = LinkBest(folder, best).status();
      if (published.ok()) published = Prune(folder, header.step, keep, best);
    }
    status = AgreeOnStatus(comm, published);
  }
  if (status.ok()) return path;
  if (comm.rank() == 0) {
    if (absl::Status s = RemoveAll(temporary); !s.ok()) {
      DELINK_LOG(kWarning) << std::string(s.message());
    }
  }
  return absl::Status(status.code(),
                      absl::StrCat("saving ", path, ": ", status.message(),
                                   "; older checkpoints are unchanged"));
}

absl::StatusOr<std::string> WriteCheckpoint(Communicator& comm,
                                            const std::string& folder,
                                            const CheckpointHeader& header,
                                            const ParamStore& store,
                                            const CheckpointFiles& files,
                                            int64_t keep, int64_t best) {
  StoreValues values(store);
  DELINK_ASSIGN_OR_RETURN(std::vector<int64_t> updates, UpdatesOf(comm, store));
  return WriteCheckpoint(comm, folder, header,
                         {.layout = &store.layout(),
                          .type = StatisticsOf(store.options().dtype),
                          .states = store.states(),
                          .updates = std::move(updates),
                          .values = &values},
                         files, keep, best);
}

}  // namespace delink
