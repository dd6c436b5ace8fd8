#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/checkpoint_values.h"
#include "framework/checkpoint/frame.h"
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/streamed_values.h"
#include "framework/comm/self_communicator.h"
#include "framework/module/mover.h"
#include "framework/module/store_values.h"

namespace delink {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kModel = "/model/";

absl::StatusOr<hdf5::File> OpenIndex(const std::string& path) {
  return hdf5::File::OpenReadOnly(JoinPath(path, checkpoint::kIndexName),
                                  checkpoint::kWriters);
}

// The tensors below `group`, soft links as such.
absl::Status Walk(const hdf5::File& file, const std::string& group,
                  const std::string& prefix, std::vector<TensorInfo>* out) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<hdf5::Child> children,
                          file.List(group));
  for (const hdf5::Child& child : children) {
    const std::string path = absl::StrCat(group, "/", child.name);
    const std::string name = absl::StrCat(prefix, child.name);
    if (child.kind == hdf5::ChildKind::kGroup) {
      DELINK_RETURN_IF_ERROR(Walk(file, path, name + "/", out));
      continue;
    }
    TensorInfo info{.name = name};
    if (child.kind == hdf5::ChildKind::kSoftLink) {
      if (!child.target.starts_with(kModel)) {
        return absl::InvalidArgumentError(absl::StrCat(
            file.path(), ": ", path, " is a link to '", child.target,
            "', which is not a tensor of the model; another program wrote it"));
      }
      info.link = child.target.substr(kModel.size());
    }
    DELINK_ASSIGN_OR_RETURN(const hdf5::Dataset dataset,
                            file.OpenDataset(path));
    info.shape = dataset.info().shape;
    out->push_back(std::move(info));
  }
  return absl::OkStatus();
}

// Reads the values that each rank needs.
class Reader {
 public:
  Reader(CheckpointValues& values, ParamStore& store, Communicator& comm)
      : values_(values), store_(store), ends_(store), comm_(comm) {}

  absl::Status Read(const Field& field, const LogicalTensor& tensor) {
    DELINK_RETURN_IF_ERROR(values_.Check(field, tensor));
    const Move move{.field = field, .from = &tensor, .to = {&tensor}};
    return MoveValues(values_, ends_, {&move, 1}, comm_);
  }

  absl::Status ReadStates(const LogicalTensor& tensor) {
    for (const StateSpec& spec : store_.states()) {
      const Field field{Field::Kind::kState, spec.name};
      if (values_.Has(field, tensor).empty()) continue;
      DELINK_RETURN_IF_ERROR(Read(field, tensor));
    }
    if (!store_.has(Plane::kGradient) && store_.states().empty()) {
      return absl::OkStatus();
    }
    DELINK_ASSIGN_OR_RETURN(const int64_t updates, values_.Updates(tensor));
    for (const int slab : store_.LocalSlabsOf(tensor.slab)) {
      At(store_.updates(), slab) = updates;
    }
    return absl::OkStatus();
  }

 private:
  CheckpointValues& values_;
  ParamStore& store_;
  StoreValues ends_;
  Communicator& comm_;
};

absl::Status LoadAll(Communicator& comm, const std::string& path,
                     ParamStore& store, bool with_state,
                     const SavedAs& saved_as) {
  DELINK_ASSIGN_OR_RETURN(
      CheckpointValues values,
      CheckpointValues::Open(path, store.layout(), store.states(),
                             StatisticsOf(store.options().dtype), saved_as));
  // A store of one rank loads alone, even if other ranks load their own stores.
  SelfCommunicator alone;
  Communicator& group = store.ranks() == 1 ? alone : comm;
  DELINK_CHECK(group.size() == store.ranks() && group.rank() == store.rank());
  Reader reader(values, store, group);
  for (const LogicalTensor& tensor : store.layout().tensors()) {
    if (!tensor.link.empty() || saved_as.IsFresh(tensor.name)) continue;
    DELINK_RETURN_IF_ERROR(reader.Read({}, tensor));
    if (with_state) DELINK_RETURN_IF_ERROR(reader.ReadStates(tensor));
  }
  return absl::OkStatus();
}

// The checkpoints that CHECKPOINT may name, best first, one per line.
absl::StatusOr<std::string> Candidates(const std::string& path) {
  if (PathExists(JoinPath(path, kSumsName)) ||
      PathExists(JoinPath(path, checkpoint::kIndexName))) {
    std::error_code error;
    const fs::path link = path;
    if (link.filename() != checkpoint::kBest) return path;
    // Messages, and runs that start from it, name the step.
    const fs::path target = fs::read_symlink(link, error);
    return error ? path : (link.parent_path() / target).string();
  }
  const std::string inner = JoinPath(path, "checkpoints");
  const std::string folder = IsDirectory(inner) ? inner : path;
  if (!IsDirectory(folder)) return std::string();
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListDirectory(folder));
  std::map<int64_t, std::string> steps;
  for (const std::string& name : names) {
    const int64_t step = checkpoint::StepOfName(name);
    if (step >= 0) steps[-step] = JoinPath(folder, name);
  }
  std::string lines;
  for (const auto& [unused, candidate] : steps) {
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", candidate);
  }
  return lines;
}

// As SharingMap::visited: the blocks that have a tensor here, and those that
// declare none; all where no block has any, which is damage.
std::vector<int> VisitedIn(const std::map<std::string, std::string>& tensors,
                           const ParamRegistry& registry, int blocks) {
  std::map<int, bool> found;  // of the blocks that declare tensors
  for (const ParamDecl& decl : registry.decls) {
    if (decl.layer < 1 || decl.layer > blocks || decl.link >= 0) continue;
    bool& any = found[decl.layer - 1];
    any = any || tensors.contains(decl.name);
  }
  const auto has = [](const auto& block) { return block.second; };
  if (std::none_of(found.begin(), found.end(), has)) return {};
  std::vector<int> visited;
  for (int block = 0; block < blocks; ++block) {
    if (!found.contains(block) || found[block]) visited.push_back(block);
  }
  if (static_cast<int>(visited.size()) == blocks) visited.clear();
  return visited;
}

// Finds the leaders of blocks, which are asked for in ascending order.
class Leaders {
 public:
  Leaders(const ParamRegistry& registry, const SavedAs& saved_as)
      : saved_as_(saved_as) {
    for (const ParamDecl& decl : registry.decls) {
      if (!saved_as.IsFresh(decl.name)) {
        saved_[saved_as.NameOf(decl.name)] = &decl;
      }
    }
  }

  // The leader of a declaration whose weights are in tensor `target`; -1 if
  // they cannot be there. All of a part leads to the same part of the first
  // block that shares it.
  int Of(const ParamDecl& decl, const std::string& target) {
    const auto to = saved_.find(target);
    if (to == saved_.end() || SavedLocal(*to->second) != SavedLocal(decl)) {
      return -1;
    }
    const int block = decl.layer - 1;
    int leader = to->second->layer - 1;
    if (to->second->part != decl.part) {
      if (saved_as_.empty()) return -1;
      // It is another part there: the first block leads that has it as this.
      leader = first_.try_emplace({decl.part, leader}, block).first->second;
    }
    const bool same =
        seen_.try_emplace({decl.part, block}, leader).first->second == leader;
    const auto first = seen_.find({decl.part, leader});
    return same && first != seen_.end() && first->second == leader ? leader
                                                                   : -1;
  }

  int OfFresh(const ParamDecl& decl) {
    return fresh_.try_emplace(decl.part, decl.layer - 1).first->second;
  }

 private:
  // ParamDecl::local of the saved tensor.
  std::string SavedLocal(const ParamDecl& decl) const {
    return saved_as_.NameOf(decl.name).substr(decl.name.size() -
                                              decl.local.size());
  }

  const SavedAs& saved_as_;
  std::map<std::string, const ParamDecl*> saved_;  // by saved name
  // By part and block: the leader; of blocks that lead as another part, the
  // first block that shares with them.
  std::map<std::pair<std::string, int>, int> seen_, first_;
  std::map<std::string, int> fresh_;
};

// Verifies a checkpoint except for the values in the writers' files.
absl::Status VerifyAround(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<FileSum> sums, ReadSums(path));
  DELINK_RETURN_IF_ERROR(VerifyListing(path, sums));
  for (const FileSum& sum : sums) {
    if (checkpoint::IsWriterName(sum.name)) continue;
    DELINK_RETURN_IF_ERROR(VerifySum(path, sum));
  }
  DELINK_ASSIGN_OR_RETURN(const hdf5::File index, OpenIndex(path));
  for (const FileSum& sum : sums) {
    if (!checkpoint::IsWriterName(sum.name)) continue;
    DELINK_RETURN_IF_ERROR(
        checkpoint::CheckFrame(index, sum.name, JoinPath(path, sum.name)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> FindUnreadCheckpoint(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::string names, Candidates(path));
  if (names.empty()) return absl::NotFoundError(path);
  const std::string first = names.substr(0, names.find('\n'));
  DELINK_RETURN_IF_ERROR(VerifyAround(first));
  return first;
}

absl::Status VerifyCheckpoint(Communicator& comm, const std::string& path) {
  absl::Status status = VerifySums(path, comm.rank(), comm.size());
  if (status.ok() && !PathExists(JoinPath(path, checkpoint::kIndexName))) {
    status = absl::DataLossError(absl::StrCat(
        path, ": is not a checkpoint: it has no ", checkpoint::kIndexName));
  }
  return AgreeOnStatus(comm, status);
}

absl::StatusOr<CheckpointHeader> ReadHeader(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const hdf5::File file, OpenIndex(path));
  CheckpointHeader h;
  DELINK_ASSIGN_OR_RETURN(h.format, file.GetInt("/", "format"));
  if (h.format < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has checkpoint format ", h.format,
                     ", which does not exist; another program wrote it"));
  }
  if (h.format > kCheckpointFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": has checkpoint format ", h.format,
                     ", but this program reads only up to ", kCheckpointFormat,
                     "; use a newer delink"));
  }
  DELINK_ASSIGN_OR_RETURN(h.values, checkpoint::ReadValues(file));
  DELINK_RETURN_IF_ERROR(TakeValues(path, checkpoint::IdentityOf(h), h.values));
  h.values.erase(checkpoint::kSharedGradient);
  DELINK_RETURN_IF_ERROR(checkpoint::CheckHeader(path, h));
  return h;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<std::vector<TensorInfo>> ListTensors(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const hdf5::File file, OpenIndex(path));
  std::vector<TensorInfo> tensors;
  DELINK_RETURN_IF_ERROR(Walk(file, "/model", "", &tensors));
  std::sort(
      tensors.begin(), tensors.end(),
      [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  return tensors;
}

absl::StatusOr<SharingMap> ReadSharing(const std::string& path,
                                       const ParamRegistry& registry,
                                       int blocks, const SavedAs& saved_as) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<TensorInfo> tensors,
                          ListTensors(path));
  std::map<std::string, std::string> link_of;
  for (const TensorInfo& tensor : tensors) link_of[tensor.name] = tensor.link;
  Leaders leaders(registry, saved_as);
  SharingMap sharing{.visited = VisitedIn(link_of, registry, blocks)};
  for (const ParamDecl& decl : registry.decls) {
    if (decl.layer < 1 || decl.layer > blocks || decl.link >= 0) continue;
    if (!sharing.Visits(decl.layer - 1)) continue;
    const std::string& name = saved_as.NameOf(decl.name);
    const auto link = link_of.find(name);
    if (link == link_of.end() && !name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": has no ", name,
          "; use the recipe that the checkpoint was trained with"));
    }
    const int block = decl.layer - 1;
    const int leader =
        name.empty()
            ? leaders.OfFresh(decl)
            : leaders.Of(decl, link->second.empty() ? name : link->second);
    if (leader < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": ", decl.name, " is a link to ", link->second,
          ", but its weights cannot be there; another program wrote it"));
    }
    std::vector<int>& of_part = sharing.leaders[decl.part];
    if (of_part.empty()) {
      of_part.assign(static_cast<size_t>(blocks), -1);
      for (const int b : sharing.VisitedOf(blocks)) At(of_part, b) = b;
    }
    of_part[static_cast<size_t>(block)] = leader;
  }
  return sharing;
}

absl::Status LoadCheckpoint(Communicator& comm, const std::string& path,
                            ParamStore& store) {
  return AgreeOnStatus(comm, LoadAll(comm, path, store, true, {}));
}

absl::Status LoadWeights(Communicator& comm, const std::string& path,
                         ParamStore& store, const SavedAs& saved_as) {
  return AgreeOnStatus(comm, LoadAll(comm, path, store, false, saved_as));
}

absl::StatusOr<std::string> FindCheckpoint(Communicator& comm,
                                           const std::string& path) {
  // Only rank 0 looks; to read the checkpoint, all must see the same folder
  // anyway.
  absl::StatusOr<std::string> found = std::string();
  if (comm.rank() == 0) found = Candidates(path);
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, found.status()));
  std::string names;
  DELINK_ASSIGN_OR_RETURN(names, BroadcastString(comm, *found, 0));
  absl::Status last =
      absl::NotFoundError(absl::StrCat(path, ": no checkpoint there"));
  size_t begin = 0;
  while (begin < names.size()) {
    const size_t end = std::min(names.find('\n', begin), names.size());
    const std::string candidate = names.substr(begin, end - begin);
    begin = end + 1;
    absl::Status status = VerifyCheckpoint(comm, candidate);
    if (status.ok()) return candidate;
    if (candidate == path) return status;
    if (comm.rank() == 0) {
      DELINK_LOG(kWarning) << std::string(status.message())
                           << "; trying the previous checkpoint";
    }
    last = absl::NotFoundError(absl::StrCat(
        path, ": no whole checkpoint there; the last damage found: ",
        status.message()));
  }
  return last;
}

}  // namespace delink
