// Checkpoints: one logical model on disk, whatever layout wrote it.
//
// A checkpoint is a folder (format: framework/checkpoint/format.md):
//   index.h5         every logical tensor whole, as virtual datasets over the
//                    writers' files; what is shared is a soft link
//   rank-00000.h5 .. the elements that each rank owned
//   recipe.toml, tokenizer.*, ...   small files handed in
//   SHA256SUMS       of all of them, written last; checked before HDF5 opens
//                    anything
// It is written under a temporary name, synced, and renamed: a folder named
// step-NNNNNNNN is whole or damaged later, never half-written.
//
// Weights are f32 whatever the run's precision: under bf16 they are saved from
// the master, and read into it and, rounded, into the weights. So is the
// optimizer's state, however few bits a run keeps it in. So a run of any
// precision opens a checkpoint of any other, and one that is resumed as it was
// goes on to the bit.
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
#include "framework/comm/communicator.h"
#include "framework/module/param_store.h"
#include "framework/module/value_end.h"

namespace delink {

// The newest format that this build reads, and the one that it writes.
inline constexpr int64_t kCheckpointFormat = 1;

// What a checkpoint is of, as attributes of the root of index.h5, and what its
// writer has given it to keep.
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

// What a checkpoint is made of, wherever it is: in a store, or in a file.
struct ModelValues {
  // Who writes what, of as many ranks as write; the tensors, their names and
  // links.
  const Layout* layout = nullptr;
  DType type = DType::kF32;       // of values: kF32 or kF64
  std::vector<StateSpec> states;  // by name and extent
  std::vector<int64_t> updates;   // by logical slab
  // Of the tensors of the layout; on each rank all that it owns.
  ValueSource* values = nullptr;
};

// Writes folder/step-NNNNNNNN, of `model` what each rank owns, then removes
// what interrupted writers left in the folder, and all but `keep` (0: keeps
// all) of its checkpoints: this one stays, then those of the steps before it,
// newest first, then those of later steps. The checkpoint of step `best` (none
// where it is negative) is not among those: it stays besides, with a link
// `best` that leads to it. On any failure (a full disk) the temporary folder is
// removed, and everything older is left as it was.
absl::StatusOr<std::string> WriteCheckpoint(Communicator& comm,
                                            const std::string& folder,
                                            const CheckpointHeader& header,
                                            const ModelValues& model,
                                            const CheckpointFiles& files,
                                            int64_t keep, int64_t best = -1);
// The same of a store.
absl::StatusOr<std::string> WriteCheckpoint(Communicator& comm,
                                            const std::string& folder,
                                            const CheckpointHeader& header,
                                            const ParamStore& store,
                                            const CheckpointFiles& files,
                                            int64_t keep, int64_t best = -1);

// Makes the link `best` of a run's checkpoints lead to that of step `step`, or
// removes it where there is none. Returns whether there is one. For one rank.
absl::StatusOr<bool> LinkBest(const std::string& folder, int64_t step);

// For a run that goes on from `step`: checkpoints of the folder that are later
// belong to a course that has been left. They are renamed step-NNNNNNNN.left,
// which nothing reads or removes. Returns how many.
absl::StatusOr<int> SetLaterAside(const std::string& folder, int64_t step);

// Checks SHA256SUMS, the files split among the ranks. Names what is missing,
// truncated or damaged.
absl::Status VerifyCheckpoint(Communicator& comm, const std::string& path);

// Reads the header of a verified checkpoint; a newer format is an error that
// says which, and what to do.
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
// of this model. Blocks of which it has no tensor are not visited; one of which
// it lacks some is an error, as is a checkpoint without any block.
absl::StatusOr<SharingMap> ReadSharing(const std::string& path,
                                       const ParamRegistry& registry,
                                       int blocks);

// Fills weights, the optimizer's state and, of a store with gradients or state,
// update counts, in whatever layout the store has. The store's sharing must be
// the checkpoint's. Shapes that differ are an error that names both, as is
// state that the checkpoint lacks.
absl::Status LoadCheckpoint(Communicator& comm, const std::string& path,
                            ParamStore& store);

// The weights alone: state and update counts of the store stay as they are, and
// are not read. The store may share less than the checkpoint; then layers get
// copies of what was shared.
absl::Status LoadWeights(Communicator& comm, const std::string& path,
                         ParamStore& store);

// The checkpoint that CHECKPOINT on a command line means: a step folder itself,
// or the newest whole one of a run folder (or of its checkpoints folder).
// Damaged ones are passed over with a warning that names the damage; NotFound
// when there is none.
absl::StatusOr<std::string> FindCheckpoint(Communicator& comm,
                                           const std::string& path);

}  // namespace delink
