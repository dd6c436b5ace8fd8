// Private to the checkpoint code: names inside a checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "framework/hdf5/hdf5.h"
#include "framework/module/param_store.h"

namespace delink::checkpoint {

inline constexpr char kIndexName[] = "index.h5";
inline constexpr char kStepPrefix[] = "step-";
inline constexpr char kTemporary[] = ".tmp";  // behind the name, while written
inline constexpr char kReplaced[] = ".old";   // while another takes its place
// Suffix of a checkpoint of a course that a run has left.
inline constexpr char kLeft[] = ".left";
inline constexpr char kStageLosses[] = "/stage/losses";
inline constexpr char kStageProbes[] = "/stage/probes";

// "rank-00003.h5".
std::string WriterName(int rank);
// "step-00000100".
std::string StepName(int64_t step);
// The step of such a name, or -1.
int64_t StepOfName(const std::string& name);
// Whether `name` is what a writer that was interrupted left behind.
bool IsLeftover(const std::string& name);

// The planes that a checkpoint holds, and how a writer's file calls them. The
// weight is saved from the store's master() and read by its SetParameters.
struct SavedPlane {
  Plane plane;
  const char* name;  // "weight", "m", "v"
};
inline constexpr SavedPlane kSavedPlanes[] = {
    {Plane::kWeight, "weight"}, {Plane::kState0, "m"}, {Plane::kState1, "v"}};

// "/m/blocks/0/attention": one rank's elements of a slab's plane.
std::string SlabDataset(const SavedPlane& plane, const Slab& slab);
// Where the index shows a logical tensor: "/model/NAME", "/optimizer/NAME/m".
std::string TensorPath(const std::string& tensor);
std::string StateGroup(const std::string& tensor);
std::string PlanePath(const SavedPlane& plane, const std::string& tensor);

// The plane of `store` that is saved as `plane`.
Plane SourceOf(const ParamStore& store, const SavedPlane& plane);

hdf5::ElementType ElementOf(DType dtype);

}  // namespace delink::checkpoint
