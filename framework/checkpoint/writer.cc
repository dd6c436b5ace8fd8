#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/layout.h"
#include "framework/module/descriptor.h"

namespace delink {
namespace {

using checkpoint::SavedPlane;

constexpr int64_t kChunk = int64_t{1} << 20;  // elements staged at a time

absl::Status WriteSlab(const ParamStore& store, int slab,
                       const SavedPlane& plane, hdf5::File& file) {
  const Range owned = store.owned(slab);
  if (owned.size() == 0) return absl::OkStatus();
  const Plane source = checkpoint::SourceOf(store, plane);
  const DType dtype = store.dtype(source);
  DELINK_ASSIGN_OR_RETURN(
      hdf5::Dataset dataset,
      file.CreateDataset(checkpoint::SlabDataset(
                             plane, store.slabs()[static_cast<size_t>(slab)]),
                         checkpoint::ElementOf(dtype), {owned.size()}));
  const std::unique_ptr<Stream> stream = store.device().NewStream();
  std::vector<char> staging(
      static_cast<size_t>(std::min(owned.size(), kChunk) * SizeOf(dtype)));
  for (int64_t at = owned.begin; at < owned.end; at += kChunk) {
    const int64_t count = std::min(kChunk, owned.end - at);
    store.device().CopyToHost(*stream, staging.data(),
                              store.at(slab, source, at),
                              count * SizeOf(dtype));
    stream->Synchronize();
    DELINK_RETURN_IF_ERROR(dataset.Write(
        checkpoint::ElementOf(dtype), at - owned.begin, count, staging.data()));
  }
  return absl::OkStatus();
}

// This rank's file.
absl::Status WriteOwned(const std::string& path, const ParamStore& store) {
  DELINK_ASSIGN_OR_RETURN(hdf5::File file, hdf5::File::Create(path));
  for (const SavedPlane& plane : checkpoint::kSavedPlanes) {
    if (!store.has(plane.plane)) continue;
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      DELINK_RETURN_IF_ERROR(
          WriteSlab(store, static_cast<int>(s), plane, file));
    }
  }
  return file.Close();
}

absl::Status SetHeader(hdf5::File& file, const CheckpointHeader& h) {
  const std::pair<const char*, int64_t> numbers[] = {
      {"format", h.format},
      {"step", h.step},
      {"tokens", h.tokens},
      {"samples", h.samples},
      {"seed", h.seed},
      {"stage_index", h.stage_index},
      {"stage_begin_step", h.stage_begin_step},
      {"stage_begin_samples", h.stage_begin_samples},
      {"vocab", h.vocab}};
  for (const auto& [name, value] : numbers) {
    DELINK_RETURN_IF_ERROR(file.SetInt("/", name, value));
  }
  const std::pair<const char*, std::string> texts[] = {
      {"stage", h.stage},
      {"model", h.model},
      {"optimizer", h.optimizer},
      {"corpus", h.corpus},
      {"shared_gradient", "sum"}};
  for (const auto& [name, value] : texts) {
    DELINK_RETURN_IF_ERROR(file.SetText("/", name, value));
  }
  const std::pair<const char*, const std::vector<double>*> lists[] = {
      {checkpoint::kStageLosses, &h.stage_losses},
      {checkpoint::kStageProbes, &h.stage_probes}};
  for (const auto& [name, values] : lists) {
    if (values->empty()) continue;
    DELINK_RETURN_IF_ERROR(file.WriteAll(
        name, {static_cast<int64_t>(values->size())}, values->data()));
  }
  return file.SetDouble("/", "seconds", h.seconds);
}

absl::Status ShowTensor(hdf5::File& file, const ParamStore& store,
                        const LogicalTensor& tensor) {
  const Slab& slab = store.slabs()[static_cast<size_t>(tensor.slab)];
  const int ranks = store.options().ranks;
  const Descriptor owners = DescriptorOf(tensor, slab, ranks, true);
  const hdf5::Shape shape(tensor.shape.dims().begin(),
                          tensor.shape.dims().end());
  for (const SavedPlane& plane : checkpoint::kSavedPlanes) {
    if (!store.has(plane.plane)) continue;
    std::vector<hdf5::Piece> pieces;
    for (const Extent& extent : owners.extents) {
      const int rank = extent.rank == kEveryRank ? 0 : extent.rank;
      pieces.push_back(
          {.begin = extent.begin,
           .end = extent.begin + extent.count,
           .file = checkpoint::WriterName(rank),
           .dataset = checkpoint::SlabDataset(plane, slab),
           .offset = extent.offset - ShardRange(slab, rank, ranks).begin});
    }
    DELINK_RETURN_IF_ERROR(file.CreateVirtual(
        checkpoint::PlanePath(plane, tensor.name),
        checkpoint::ElementOf(store.dtype(checkpoint::SourceOf(store, plane))),
        shape, std::move(pieces)));
  }
  if (!store.has(Plane::kState0)) return absl::OkStatus();
  return file.SetInt(checkpoint::StateGroup(tensor.name), "updates",
                     store.updates()[static_cast<size_t>(tensor.slab)]);
}

absl::Status WriteIndex(const std::string& path, const CheckpointHeader& header,
                        const ParamStore& store) {
  DELINK_ASSIGN_OR_RETURN(hdf5::File file, hdf5::File::Create(path));
  DELINK_RETURN_IF_ERROR(SetHeader(file, header));
  for (const LogicalTensor& tensor : store.logical_tensors()) {
    if (tensor.link.empty()) {
      DELINK_RETURN_IF_ERROR(ShowTensor(file, store, tensor));
      continue;
    }
    DELINK_RETURN_IF_ERROR(
        file.CreateSoftLink(checkpoint::TensorPath(tensor.link),
                            checkpoint::TensorPath(tensor.name)));
    if (!store.has(Plane::kState0)) continue;
    DELINK_RETURN_IF_ERROR(
        file.CreateSoftLink(checkpoint::StateGroup(tensor.link),
                            checkpoint::StateGroup(tensor.name)));
  }
  return file.Close();
}

// What rank 0 adds once every rank has written its file.
absl::Status Complete(const std::string& folder, const CheckpointHeader& header,
                      const ParamStore& store, const CheckpointFiles& files,
                      std::vector<FileSum> sums) {
  DELINK_RETURN_IF_ERROR(
      WriteIndex(JoinPath(folder, checkpoint::kIndexName), header, store));
  DELINK_ASSIGN_OR_RETURN(FileSum index,
                          SumFile(folder, checkpoint::kIndexName));
  sums.insert(sums.begin(), std::move(index));
  for (const auto& [name, bytes] : files) {
    DELINK_RETURN_IF_ERROR(WriteFile(JoinPath(folder, name), bytes));
    DELINK_ASSIGN_OR_RETURN(FileSum sum, SumFile(folder, name));
    sums.push_back(std::move(sum));
  }
  DELINK_RETURN_IF_ERROR(WriteSums(folder, sums));
  return SyncDirectory(folder);
}

// Removes what interrupted writers left, and all but `keep` checkpoints (0:
// none): the oldest go, but first those of later steps than `step`, just
// written, which a run left behind that was resumed from before them.
absl::Status Prune(const std::string& folder, int64_t step, int64_t keep) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListDirectory(folder));
  std::vector<std::tuple<bool, int64_t, std::string>> found;
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    if (checkpoint::IsLeftover(name)) DELINK_RETURN_IF_ERROR(RemoveAll(path));
    const int64_t of = checkpoint::StepOfName(name);
    if (of >= 0) found.emplace_back(of <= step, of, path);
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

// Every rank's sum of its own file, in the order of ranks.
absl::StatusOr<std::vector<FileSum>> GatherSums(Communicator& comm,
                                                const FileSum& mine) {
  std::vector<FileSum> sums;
  for (int rank = 0; rank < comm.size(); ++rank) {
    FileSum sum{.name = checkpoint::WriterName(rank)};
    DELINK_ASSIGN_OR_RETURN(sum.digest,
                            BroadcastString(comm, mine.digest, rank));
    int64_t bytes = rank == comm.rank() ? mine.bytes : 0;
    DELINK_ASSIGN_OR_RETURN(sum.bytes,
                            AllReduceScalar(comm, bytes, ReduceOp::kSum));
    sums.push_back(std::move(sum));
  }
  return sums;
}

absl::Status WriteInto(Communicator& comm, const std::string& temporary,
                       const CheckpointHeader& header, const ParamStore& store,
                       const CheckpointFiles& files) {
  const bool first = comm.rank() == 0;
  absl::Status status;
  if (first) {
    status = RemoveAll(temporary);
    if (status.ok()) status = MakeDirectories(temporary);
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, status));
  const std::string name = checkpoint::WriterName(comm.rank());
  status = WriteOwned(JoinPath(temporary, name), store);
  FileSum mine;
  if (status.ok()) {
    absl::StatusOr<FileSum> sum = SumFile(temporary, name);
    status = sum.status();
    if (sum.ok()) mine = *std::move(sum);
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, status));
  DELINK_ASSIGN_OR_RETURN(std::vector<FileSum> sums, GatherSums(comm, mine));
  if (first) {
    status = Complete(temporary, header, store, files, std::move(sums));
  }
  return AgreeOnStatus(comm, status);
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

absl::StatusOr<std::string> WriteCheckpoint(Communicator& comm,
                                            const std::string& folder,
                                            const CheckpointHeader& header,
                                            const ParamStore& store,
                                            const CheckpointFiles& files,
                                            int64_t keep) {
  const std::string path = JoinPath(folder, checkpoint::StepName(header.step));
  const std::string temporary = absl::StrCat(path, checkpoint::kTemporary);
  absl::Status status = WriteInto(comm, temporary, header, store, files);
  if (status.ok()) {
    absl::Status published;
    if (comm.rank() == 0) {
      published = Publish(folder, temporary, path);
      if (published.ok()) published = Prune(folder, header.step, keep);
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
                                   "; older checkpoints are as they were"));
}

}  // namespace delink
