#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

constexpr int64_t kWriteChunk = int64_t{1} << 20;  // elements staged at a time

// What this rank owns of a slab's parameters.
absl::Status WriteWeights(const ParamStore& store, int slab, hdf5::File& file) {
  const Range owned = store.owned(slab);
  if (owned.size() == 0) return absl::OkStatus();
  const DType dtype = StatisticsOf(store.options().dtype);
  DELINK_ASSIGN_OR_RETURN(
      hdf5::Dataset dataset,
      file.CreateDataset(
          checkpoint::SlabDataset(checkpoint::kWeight, store.slab(slab)),
          checkpoint::ElementOf(dtype), {owned.size()}));
  const std::unique_ptr<Stream> stream = store.device().NewStream();
  std::vector<char> staging(
      static_cast<size_t>(std::min(owned.size(), kWriteChunk) * SizeOf(dtype)));
  for (int64_t at = owned.begin; at < owned.end; at += kWriteChunk) {
    const int64_t count = std::min(kWriteChunk, owned.end - at);
    store.ReadParameters(*stream, slab, at, count, staging.data());
    DELINK_RETURN_IF_ERROR(dataset.Write(
        checkpoint::ElementOf(dtype), at - owned.begin, count, staging.data()));
  }
  return absl::OkStatus();
}

// How many values of a slab's state the parameters before params[param] have
// among those that `rank` owned: where that parameter's begin in its file.
int64_t StateOffset(const ParamStore& store, int slab, int state, size_t param,
                    int rank) {
  int64_t offset = 0;
  for (size_t p = 0; p < param; ++p) {
    offset += store.StateOwnedBy(slab, state, p, rank).size();
  }
  return offset;
}

// What this rank owns of a slab's state, parameter after parameter.
absl::Status WriteState(const ParamStore& store, int slab, int state,
                        hdf5::File& file) {
  const Slab& s = store.slab(slab);
  const int rank = store.rank();
  const int64_t all = StateOffset(store, slab, state, s.params.size(), rank);
  if (all == 0) return absl::OkStatus();
  const DType dtype = StatisticsOf(store.options().dtype);
  const StateSpec& spec = store.states()[static_cast<size_t>(state)];
  DELINK_ASSIGN_OR_RETURN(
      hdf5::Dataset dataset,
      file.CreateDataset(checkpoint::SlabDataset(spec.name, s),
                         checkpoint::ElementOf(dtype), {all}));
  const std::unique_ptr<Stream> stream = store.device().NewStream();
  std::vector<char> staging;
  int64_t done = 0;
  absl::Status status;
  for (size_t p = 0; p < s.params.size(); ++p) {
    const Range owned = store.StateOwnedBy(slab, state, p, rank);
    ForEachStatePiece(s.params[p].offset, owned, kWriteChunk, [&](Range piece) {
      if (!status.ok()) return;
      staging.resize(static_cast<size_t>(piece.size() * SizeOf(dtype)));
      store.ReadState(*stream, slab, state, p, piece, staging.data());
      status = dataset.Write(checkpoint::ElementOf(dtype), done, piece.size(),
                             staging.data());
      done += piece.size();
    });
  }
  return status;
}

// This rank's file.
absl::Status WriteOwned(const std::string& path, const ParamStore& store) {
  DELINK_ASSIGN_OR_RETURN(hdf5::File file, hdf5::File::Create(path));
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    DELINK_RETURN_IF_ERROR(WriteWeights(store, static_cast<int>(s), file));
  }
  for (size_t k = 0; k < store.states().size(); ++k) {
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      DELINK_RETURN_IF_ERROR(
          WriteState(store, static_cast<int>(s), static_cast<int>(k), file));
    }
  }
  return file.Close();
}

absl::Status WriteHeader(hdf5::File& file, CheckpointHeader header) {
  NamedValues values = std::move(header.values);
  PutValues(checkpoint::IdentityOf(header), values);
  values[checkpoint::kSharedGradient] = std::string("sum");
  return checkpoint::WriteValues(values, file);
}

hdf5::Shape ToHdf5(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

// The number of a rectangle's first element; of whole rows, or of one.
int64_t FirstOf(const Rect& rect, const Shape& shape) {
  const Rect whole = WholeOf(shape);
  DELINK_CHECK(rect.rows == 1 || rect.columns == whole.columns);
  return rect.row * whole.columns + rect.column;
}

absl::Status ShowWeights(hdf5::File& file, const ParamStore& store,
                         const LogicalTensor& tensor) {
  const Slab& slab = store.slab(tensor.slab);
  std::vector<hdf5::Piece> pieces;
  for (const Extent& extent :
       OwnersOf(store.layout(), tensor, StateExtent::kElements)) {
    const int64_t begin = FirstOf(extent.rect, tensor.shape);
    const hdf5::Piece piece{
        .begin = begin,
        .end = begin + extent.rect.elements(),
        .file = checkpoint::WriterName(extent.rank),
        .dataset = checkpoint::SlabDataset(checkpoint::kWeight, slab),
        .offset = tensor.offset + extent.offset -
                  store.OwnedBy(tensor.slab, extent.rank).begin};
    // A shard begins and ends within rows: in the file it is one piece.
    if (!pieces.empty() && pieces.back().file == piece.file &&
        pieces.back().end == piece.begin) {
      pieces.back().end = piece.end;
    } else {
      pieces.push_back(piece);
    }
  }
  return file.CreateVirtual(
      checkpoint::TensorPath(tensor.name),
      checkpoint::ElementOf(StatisticsOf(store.options().dtype)),
      ToHdf5(tensor.shape), std::move(pieces));
}

absl::Status ShowState(hdf5::File& file, const ParamStore& store,
                       const LogicalTensor& tensor, int state) {
  const Slab& slab = store.slab(tensor.slab);
  const StateSpec& spec = store.states()[static_cast<size_t>(state)];
  const Shape shape = store.state_shape(tensor.slab, state, tensor.param);
  if (shape.elements() == 0) return absl::OkStatus();
  std::vector<hdf5::Piece> pieces;
  for (int rank = 0; rank < store.ranks(); ++rank) {
    const Range owned =
        store.StateOwnedBy(tensor.slab, state, tensor.param, rank);
    if (owned.size() == 0) continue;
    pieces.push_back(
        {.begin = owned.begin,
         .end = owned.end,
         .file = checkpoint::WriterName(rank),
         .dataset = checkpoint::SlabDataset(spec.name, slab),
         .offset = StateOffset(store, tensor.slab, state, tensor.param, rank)});
  }
  return file.CreateVirtual(
      checkpoint::StatePath(tensor.name, spec.name),
      checkpoint::ElementOf(StatisticsOf(store.options().dtype)), ToHdf5(shape),
      std::move(pieces));
}

absl::Status ShowTensor(hdf5::File& file, const ParamStore& store,
                        const LogicalTensor& tensor) {
  DELINK_RETURN_IF_ERROR(ShowWeights(file, store, tensor));
  for (size_t k = 0; k < store.states().size(); ++k) {
    DELINK_RETURN_IF_ERROR(ShowState(file, store, tensor, static_cast<int>(k)));
  }
  const std::string group = checkpoint::StateGroup(tensor.name);
  DELINK_RETURN_IF_ERROR(file.CreateGroup(group));
  return file.SetInt(group, "updates",
                     store.updates()[static_cast<size_t>(tensor.slab)]);
}

absl::Status WriteIndex(const std::string& path, const CheckpointHeader& header,
                        const ParamStore& store) {
  DELINK_ASSIGN_OR_RETURN(hdf5::File file, hdf5::File::Create(path));
  DELINK_RETURN_IF_ERROR(WriteHeader(file, header));
  for (const LogicalTensor& tensor : store.layout().tensors()) {
    if (tensor.link.empty()) {
      DELINK_RETURN_IF_ERROR(ShowTensor(file, store, tensor));
      continue;
    }
    DELINK_RETURN_IF_ERROR(
        file.CreateSoftLink(checkpoint::TensorPath(tensor.link),
                            checkpoint::TensorPath(tensor.name)));
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
// written, which a run left behind that was resumed from before them. That of
// step `best` is not counted, and stays.
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

absl::StatusOr<bool> LinkBest(const std::string& folder, int64_t step) {
  const std::string link = JoinPath(folder, checkpoint::kBest);
  const std::string target = checkpoint::StepName(std::max<int64_t>(step, 0));
  if (step < 0 || !PathExists(JoinPath(folder, target))) {
    DELINK_RETURN_IF_ERROR(RemoveAll(link));
    return false;
  }
  // Beside it and renamed, so that there is always one of the two.
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
                                            const ParamStore& store,
                                            const CheckpointFiles& files,
                                            int64_t keep, int64_t best) {
  const std::string path = JoinPath(folder, checkpoint::StepName(header.step));
  const std::string temporary = absl::StrCat(path, checkpoint::kTemporary);
  absl::Status status = WriteInto(comm, temporary, header, store, files);
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
                                   "; older checkpoints are as they were"));
}

}  // namespace delink
