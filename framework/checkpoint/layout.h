// Private to the checkpoint code: names inside a checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/hdf5/hdf5.h"
#include "framework/module/field.h"
#include "framework/module/layout.h"
#include "framework/module/state_spec.h"

namespace delink::checkpoint {

inline constexpr char kIndexName[] = "index.h5";
inline constexpr char kStepPrefix[] = "step-";
inline constexpr char kTemporary[] = ".tmp";  // suffix while written
inline constexpr char kReplaced[] = ".old";   // suffix while replaced
// Suffix of a checkpoint of a course that a run has left.
inline constexpr char kLeft[] = ".left";
// How gradients of layers that share weights were combined: a root attribute.
inline constexpr char kSharedGradient[] = "shared_gradient";
// Groups of the index that are no named values.
inline constexpr char kModelGroup[] = "/model";
inline constexpr char kOptimizerGroup[] = "/optimizer";
// The link to the checkpoint that validates best.
inline constexpr char kBest[] = "best";

// Prefix of writers' files: "rank-00003.h5".
inline constexpr char kWriters[] = "rank";
std::string WriterName(int rank);
bool IsWriterName(std::string_view name);
// "step-00000100".
std::string StepName(int64_t step);
// The step of such a name, or -1.
int64_t StepOfName(const std::string& name);
// Whether an interrupted writer left `name` behind.
bool IsLeftover(const std::string& name);

// The name of the parameters in a writer's file; states have the names of their
// StateSpecs.
inline constexpr char kWeight[] = "weight";

// "/m/blocks/0/attention": what one rank owned of a slab's parameters, or of
// one of its states.
std::string SlabDataset(std::string_view what, const Slab& slab);
// Where the index shows a logical tensor: "/model/NAME", "/optimizer/NAME/m".
std::string TensorPath(const std::string& tensor);
std::string StateGroup(const std::string& tensor);
std::string StatePath(const std::string& tensor, std::string_view state);

hdf5::ElementType ElementOf(DType dtype);

// Whether a field is a state of the optimizer; else it is the parameters.
bool IsState(const Field& field);
// Where the index shows it.
std::string PathOf(const Field& field, const LogicalTensor& tensor);
// The grid of a field's values for a tensor; none for a state that is not among
// `states`.
StateExtent GridOf(const Layout& layout, std::span<const StateSpec> states,
                   const Field& field, const LogicalTensor& tensor);

// As many steps as a recipe may ask for.
inline constexpr int64_t kMostSteps = 1'000'000'000;

// Checks that the header of the checkpoint at `path` is possible, and that its
// step is the one in the folder's name.
absl::Status CheckHeader(const std::string& path, const CheckpointHeader& h);

// The attributes of the root that identify a checkpoint.
std::vector<KeptValue> IdentityOf(CheckpointHeader& h);

// The named values of an index.
absl::Status WriteValues(const NamedValues& values, hdf5::File& file);
absl::StatusOr<NamedValues> ReadValues(const hdf5::File& file);

}  // namespace delink::checkpoint
