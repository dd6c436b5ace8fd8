#include "recipes/saved/saved_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "offload/inference/homes_of_weights.h"
#include "recipes/huggingface/model_folder.h"
#include "recipes/run/setup/check_kinds.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/saved/layout_sets.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

// Data ranks that share the weights; 0: all, or none.
int64_t ShardOf(const ParallelConfig& parallel) {
  return parallel.zero == 3 ? parallel.shard : 0;
}

// Ranks that have the weights together have equally many of each group with the
// same experts.
bool ShardFits(const ParallelConfig& parallel) {
  const int64_t ranks = ShardOf(parallel) * parallel.tensor;
  return ranks <= parallel.expert || ranks % parallel.expert == 0;
}

absl::Status CheckForm(const std::string& path) {
  if (!huggingface::IsModelFolder(path)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   ": is a Hugging Face model; convert it to a checkpoint with "
                   "delink convert ",
                   path, " OUT"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SavedModel>> SavedModel::Open(
    Communicator& comm, const std::string& checkpoint, const ModelList& models,
    DType dtype, const std::vector<std::string>& sets) {
  // Found or not, all ranks have the same answer.
  const absl::StatusOr<std::string> path = FindCheckpoint(comm, checkpoint);
  if (!path.ok()) {
    DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, CheckForm(checkpoint)));
    return path.status();
  }
  return OpenStep(comm, *path, models, dtype, sets);
}

absl::StatusOr<std::unique_ptr<SavedModel>> SavedModel::OpenStep(
    Communicator& comm, const std::string& path, const ModelList& models,
    DType dtype, const std::vector<std::string>& sets) {
  std::unique_ptr<SavedModel> saved(new SavedModel(dtype));
  saved->path_ = path;
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, saved->Read(models, sets)));
  return saved;
}

absl::Status SavedModel::Read(const ModelList& models,
                              const std::vector<std::string>& sets) {
  DELINK_ASSIGN_OR_RETURN(header_, ReadHeader(path_));
  DELINK_ASSIGN_OR_RETURN(run_, SavedRun::From(path_, header_));
  const std::string recipe = JoinPath(path_, "recipe.toml");
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(recipe));
  const auto stage = static_cast<size_t>(run_.stage_index);
  DELINK_ASSIGN_OR_RETURN(const SavedSets sorted, SortSets(sets, stage));
  set_ = !sorted.parallel.empty();
  DELINK_ASSIGN_OR_RETURN(
      recipe_,
      ParseRecipe(text, recipe, path_, sorted.offload, KindsOf(models)));
  if (stage < recipe_.stages.size()) {
    DELINK_RETURN_IF_ERROR(
        SetParallel(sorted.parallel, stage, recipe_.stages[stage].parallel));
  } else if (!sets.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--set ", sets.front(), ": ", path_, ": was saved in stage ", stage,
        ", which its recipe does not have; leave --set out"));
  }
  DELINK_RETURN_IF_ERROR(CheckKinds(path_, header_, recipe_));
  model_ = BuildModel(models, Scope(registry_, dtype_), *recipe_.model);
  if (!sorted.offload.empty()) {
    DELINK_RETURN_IF_ERROR(CheckOffload(recipe_, registry_, stage));
  }
  DELINK_ASSIGN_OR_RETURN(sharing_, ReadSharing(path_, registry_, blocks()));
  return absl::OkStatus();
}

int64_t SavedModel::RanksOfWeights() const {
  const auto stage = static_cast<size_t>(run_.stage_index);
  if (stage >= recipe_.stages.size()) return 1;
  const ParallelConfig& parallel = recipe_.stages[stage].parallel;
  const int64_t shard = std::max<int64_t>(1, ShardOf(parallel));
  return std::lcm(parallel.tensor * shard, parallel.expert) * parallel.pipeline;
}

absl::StatusOr<Layout::Options> SavedModel::LayoutFor(int ranks) const {
  const Layout::Options alone{.mesh = {.data = ranks}};
  const auto stage = static_cast<size_t>(run_.stage_index);
  if (stage >= recipe_.stages.size()) return alone;
  const ParallelConfig& parallel = recipe_.stages[stage].parallel;
  const int64_t together = RanksOfWeights();
  const auto layers = std::ssize(sharing_.VisitedOf(blocks())) + 2;
  const int64_t shard = ShardOf(parallel);
  if (ranks % together == 0 && parallel.pipeline <= layers &&
      ShardFits(parallel)) {
    DELINK_RETURN_IF_ERROR(CheckCut(recipe_, registry_, stage));
    DELINK_RETURN_IF_ERROR(CheckExperts(recipe_, registry_, stage));
    const Mesh mesh{
        .tensor = static_cast<int>(parallel.tensor),
        .data = static_cast<int>(ranks / parallel.tensor / parallel.pipeline),
        .pipeline = static_cast<int>(parallel.pipeline),
        .expert = static_cast<int>(parallel.expert)};
    return Layout::Options{.mesh = mesh,
                           .zero = parallel.zero == 3 ? 3 : 0,
                           .shard = static_cast<int>(shard)};
  }
  if (!set_) return alone;
  if (parallel.pipeline > layers) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "stage[%d].parallel.pipeline: %d ranks, but there are %d layers; use "
        "at most pipeline %d",
        stage, parallel.pipeline, layers, layers));
  }
  // What cannot be mended with other ranks comes first.
  DELINK_RETURN_IF_ERROR(CheckExperts(recipe_, registry_, stage));
  if (!ShardFits(parallel)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "stage[%d].parallel.shard: %d x tensor %d neither divides expert %d "
        "nor is a multiple of it; use shard %d",
        stage, shard, parallel.tensor, parallel.expert,
        std::lcm(parallel.tensor, parallel.expert) / parallel.tensor));
  }
  const auto with = [](const char* key, int64_t value, int64_t without) {
    return value == without ? "" : absl::StrCat(" with ", key, " ", value);
  };
  return absl::InvalidArgumentError(absl::StrFormat(
      "stage[%d].parallel: tensor %d x pipeline %d%s%s is %d ranks or a "
      "multiple, but %d %s started; start it with mpirun -np %d",
      stage, parallel.tensor, parallel.pipeline,
      with("expert", parallel.expert, 1), with("shard", shard, 0), together,
      ranks, ranks == 1 ? "was" : "were", together));
}

absl::StatusOr<std::unique_ptr<ParamStore>> SavedModel::Load(
    Communicator& comm, Device& device, std::vector<StateSpec> states,
    const Layout::Options& of_ranks) const {
  const bool whole = of_ranks.mesh.ranks() == 1;
  Layout layout = Layout::Create(registry_, blocks(), sharing_, of_ranks);
  const auto stage = static_cast<size_t>(run_.stage_index);
  if (stage < recipe_.stages.size()) {
    DELINK_ASSIGN_OR_RETURN(
        layout,
        WithHomesOfWeights(layout, recipe_.stages[stage].offload, dtype_));
  }
  absl::StatusOr<std::unique_ptr<ParamStore>> store =
      ParamStore::Create(device, std::move(layout), whole ? 0 : comm.rank(),
                         {.dtype = dtype_,
                          .gradients = false,
                          .states = std::move(states),
                          .master = MasterForm::kNone});
  if (absl::IsResourceExhausted(store.status())) {
    store = absl::ResourceExhaustedError(
        absl::StrCat(store.status().message(),
                     "; to keep the weights in host memory, add --set stage.",
                     run_.stage_index, ".offload.weights=host"));
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, store.status()));
  DELINK_RETURN_IF_ERROR(LoadCheckpoint(comm, path_, **store));
  return store;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> SavedModel::MakeTokenizer() const {
  const std::string path = JoinPath(path_, "tokenizer");
  DELINK_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return LoadTokenizer(bytes, path);
}

absl::StatusOr<CheckpointFiles> SavedModel::Files() const {
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListDirectory(path_));
  CheckpointFiles files;
  for (const std::string& name : names) {
    if (name.ends_with(".h5") || name == kSumsName) continue;
    DELINK_ASSIGN_OR_RETURN(files[name], ReadFile(JoinPath(path_, name)));
  }
  return files;
}

}  // namespace delink
