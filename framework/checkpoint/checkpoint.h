// Checkpoints: one logical model on disk, whatever layout wrote it.
//
// A checkpoint is a folder (format: framework/checkpoint/format.md):
//   index.h5         every logical tensor whole, as virtual datasets over the
//                    writers' files; shared tensors are soft links
//   rank-00000.h5 .. the elements that each rank owned
//   recipe.toml, tokenizer.*, ...   small files handed in
//   SHA256SUMS       of all of them, written last; checked before HDF5 opens
//                    anything
// It is written under a temporary name, synced, and renamed: a folder named
// step-NNNNNNNN is whole or damaged later, never half-written.
//
// Weights are stored in f32 whatever the run's precision. Under bf16 they are
// saved from the master; loading fills the master, and the weights with rounded
// values. The optimizer's state is stored in f32 too, however few bits a run
// keeps. So a run of any precision opens a checkpoint of any other, and a run
// that resumes unchanged continues bit for bit.
//
// All functions that take a Communicator are collective and return the same
// outcome on every rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/named_values.h"
#include "framework/checkpoint/saved_as.h"
#include "framework/comm/communicator.h"
#include "framework/module/param_store.h"
#include "framework/module/value_end.h"

namespace delink {

// The newest format that this build reads, and the one that it writes.
inline constexpr int64_t kCheckpointFormat = 1;

// What identifies a checkpoint, as attributes of the root of index.h5, and the
// values that its writer added.
struct CheckpointHeader {
  int64_t format = kCheckpointFormat;
  int64_t step = 0;       // optimizer steps done
  std::string model;      // kind
  std::string optimizer;  // kind: "adamw"
  int64_t seed = 0;       // with step, the whole state of the generator
  int64_t vocab = 0;
  // The program that wrote it, as its --version says; empty in checkpoints of
  // early builds.
  std::string program;
  NamedValues values;
};

// Small files that travel with a checkpoint, by name: "recipe.toml", the
// tokenizer.
using CheckpointFiles = std::map<std::string, std::string>;

// The contents of a checkpoint, from a store or from a file.
struct ModelValues {
  // The tensors, their names and links, and which rank writes which part.
  const Layout* layout = nullptr;
  DType type = DType::kF32;       // of values: kF32 or kF64
  std::vector<StateSpec> states;  // by name and extent
  std::vector<int64_t> updates;   // by logical slab
  // The values of the layout's tensors; each rank has all that it owns.
  ValueSource* values = nullptr;
};

// Writes folder/step-NNNNNNNN; each rank writes what it owns of `model`. Then
// removes what interrupted writers left in the folder, and all but `keep`
// checkpoints (0: keeps all). It keeps this one first, then those of earlier
// steps, newest first, then those of later steps. The checkpoint of step `best`
// (negative: none) always stays and does not count; a link `best` leads to it.
// On any failure (a full disk) the temporary folder is removed, and all older
// checkpoints stay as they were.
absl::StatusOr<std::string> WriteCheckpoint(Communicator& comm,
                                            const std::string& folder,
                                            const CheckpointHeader& header,
                                            const ModelValues& model,
                                            const CheckpointFiles& files,
                                            int64_t keep, int64_t best = -1);
// The same for a store.
absl::StatusOr<std::string> WriteCheckpoint(Communicator& comm,
                                            const std::string& folder,
                                            const CheckpointHeader& header,
                                            const ParamStore& store,
                                            const CheckpointFiles& files,
                                            int64_t keep, int64_t best = -1);

// Makes the link `best` lead to the checkpoint of step `step`, or removes the
// link if there is no such checkpoint. Returns whether there is one. To be
// called by one rank.
absl::StatusOr<bool> LinkBest(const std::string& folder, int64_t step);

// For a run that resumes from `step`: later checkpoints of the folder belong to
// a course that the run has left. Renames them to step-NNNNNNNN.left, which
// nothing reads or removes. Returns how many.
absl::StatusOr<int> SetLaterAside(const std::string& folder, int64_t step);

// Checks SHA256SUMS, the files split among the ranks. Names what is missing,
// truncated or damaged.
absl::Status VerifyCheckpoint(Communicator& comm, const std::string& path);

// Reads the header of a verified checkpoint. If its format is newer, the error
// says which it is, and what to do.
absl::StatusOr<CheckpointHeader> ReadHeader(const std::string& path);

// A tensor as the checkpoint lists it.
struct TensorInfo {
  std::string name;
  std::string link;  // what it is a soft link to, or empty
  std::vector<int64_t> shape;
};
// "[2, 3]". A file may have shapes that no `Shape` has.
std::string ShapeText(const std::vector<int64_t>& shape);

// Every tensor of /model, links included, in name order.
absl::StatusOr<std::vector<TensorInfo>> ListTensors(const std::string& path);

// The sharing map that the links of a checkpoint show, for the blocks and parts
// of this model. Blocks without tensors in the checkpoint are not visited. A
// block with only some of its tensors is an error, as is a checkpoint without
// blocks. Where a checkpoint of another model has nothing of a part (SavedAs),
// blocks count as sharing it, so that any sharing is possible.
absl::StatusOr<SharingMap> ReadSharing(const std::string& path,
                                       const ParamRegistry& registry,
                                       int blocks,
                                       const SavedAs& saved_as = {});

// Fills weights and optimizer state, whatever the store's layout. If the store
// has gradients or state, fills the update counts too. The store's sharing must
// be the checkpoint's. If shapes differ, the error names both; state that the
// checkpoint lacks is an error too.
absl::Status LoadCheckpoint(Communicator& comm, const std::string& path,
                            ParamStore& store);

// Fills only the weights. The store's state and update counts are not read and
// stay as they are. The store may share less than the checkpoint; then layers
// get copies of what was shared. Tensors that begin fresh (SavedAs) stay as
// they are.
absl::Status LoadWeights(Communicator& comm, const std::string& path,
                         ParamStore& store, const SavedAs& saved_as = {});

// The checkpoint that a CHECKPOINT on a command line names: a step folder
// itself, or the newest whole one of a run folder (or of its checkpoints
// folder). Skips damaged ones with a warning that names the damage. NotFound if
// there is none.
absl::StatusOr<std::string> FindCheckpoint(Communicator& comm,
                                           const std::string& path);

}  // namespace delink
