#include "recipes/plan/search_space.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/run/stage/nodes.h"
#include "recipes/schema/check_parallel.h"
#include "recipes/schema/describe.h"
#include "recipes/schema/reader.h"

namespace delink {
namespace {

constexpr int64_t kMostSequences = 32;

std::vector<int64_t> Divisors(int64_t of, int64_t most) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= std::min(of, most); ++d) {
    if (of % d == 0) divisors.push_back(d);
  }
  return divisors;
}

std::vector<ParallelConfig> SchedulesOf(const ParallelConfig& mesh) {
  std::vector<ParallelConfig> all;
  const auto add = [&](PipelineSchedule schedule, int64_t chunks) {
    all.push_back(mesh);
    all.back().schedule = schedule;
    all.back().chunks = chunks;
  };
  add(PipelineSchedule::k1F1B, 1);
  if (mesh.pipeline == 1) return all;
  for (const int64_t chunks : {2, 4, 8}) {
    add(PipelineSchedule::kInterleaved, chunks);
  }
  add(PipelineSchedule::kZeroBubble, 1);
  return all;
}

std::vector<ExpertDispatch> DispatchesOf(const ParallelConfig& mesh,
                                         const std::vector<int>& nodes) {
  if (mesh.expert == 1) return {*mesh.dispatch};
  std::vector<ExpertDispatch> all = {ExpertDispatch::kGather,
                                     ExpertDispatch::kAllToAll};
  if (ExpertNodes(MeshOf(mesh), nodes) > 1) {
    all.push_back(ExpertDispatch::kDeduplicated);
  }
  return all;
}

// As when a file is read.
absl::Status CheckKeys(Recipe& recipe) {
  const schema::Table empty;
  Positions positions{""};
  schema::ReadContext context;
  context.positions = &positions;
  schema::Reader reader(empty, "", &context);
  schema::CompleteParallel(reader, recipe);
  return context.problems.ToStatus();
}

}  // namespace

Recipe WithForm(const Recipe& recipe, size_t index, const StageForm& form) {
  Recipe result = recipe;
  result.positions = nullptr;
  result.stages.resize(index + 1);
  Stage& stage = result.stages[index];
  stage.parallel = form.parallel;
  stage.parallel.layers.clear();
  stage.parallel.reduce = GradientReduction::kStep;
  stage.micro_batch = form.micro_batch;
  stage.recompute = form.recompute;
  stage.offload = form.offload;
  return result;
}

std::vector<ParallelConfig> MeshesOf(const ParallelConfig& given, int64_t ranks,
                                     bool experts) {
  std::vector<ParallelConfig> meshes;
  ParallelConfig mesh = given;
  mesh.zero = 0;
  mesh.shard = 0;
  for (const int64_t tensor : Divisors(ranks, ranks)) {
    for (const int64_t pipeline : Divisors(ranks / tensor, ranks)) {
      for (const int64_t context : Divisors(ranks / tensor / pipeline, ranks)) {
        mesh.tensor = tensor;
        mesh.pipeline = pipeline;
        mesh.context = context;
        mesh.data = ranks / tensor / pipeline / context;
        for (const int64_t expert :
             Divisors(ranks / pipeline, experts ? ranks : 1)) {
          mesh.expert = expert;
          meshes.push_back(mesh);
        }
      }
    }
  }
  return meshes;
}

std::vector<StageForm> CoresOf(const Recipe& recipe, size_t index,
                               const std::vector<int>& nodes) {
  std::vector<StageForm> cores;
  const ParallelConfig& mesh = recipe.stages[index].parallel;
  const int64_t sequences = recipe.Batch(index) / mesh.data;
  for (const ParallelConfig& scheduled : SchedulesOf(mesh)) {
    for (const ExpertDispatch dispatch : DispatchesOf(mesh, nodes)) {
      for (const bool sequence : {true, false}) {
        if (!sequence && mesh.tensor == 1) continue;
        for (const int64_t micro_batch :
             Divisors(std::max<int64_t>(1, sequences), kMostSequences)) {
          StageForm core{.parallel = scheduled, .micro_batch = micro_batch};
          core.parallel.dispatch = dispatch;
          core.parallel.sequence = sequence && mesh.tensor > 1;
          cores.push_back(std::move(core));
        }
      }
    }
  }
  return cores;
}

std::vector<StageForm> ShardedFormsOf(const StageForm& core, bool whole,
                                      int64_t per_node) {
  std::vector<StageForm> forms;
  const ParallelConfig& parallel = core.parallel;
  const auto add = [&](int64_t zero, int64_t shard) {
    forms.push_back(core);
    forms.back().parallel.zero = zero;
    forms.back().parallel.shard = shard;
  };
  const bool one = parallel.data * parallel.context == 1;
  if (one || whole) add(0, 0);
  if (one) return forms;
  for (const int64_t zero : {1, 2, 3}) add(zero, 0);
  const int64_t shard = per_node / (parallel.tensor * parallel.context);
  if (shard > 1 && shard < parallel.data && parallel.data % shard == 0) {
    add(3, shard);
  }
  return forms;
}

absl::StatusOr<Recipe> FitForm(const RunEnv& env, size_t index,
                               const StageForm& form) {
  Recipe recipe = WithForm(*env.recipe, index, form);
  DELINK_RETURN_IF_ERROR(CheckKeys(recipe));
  DELINK_ASSIGN_OR_RETURN(
      recipe, CheckWorld(recipe, env.world->size(), /*planned=*/true));
  DELINK_RETURN_IF_ERROR(CheckNodes(recipe, env.nodes, index));
  DELINK_RETURN_IF_ERROR(CheckCut(recipe, *env.registry, index));
  DELINK_RETURN_IF_ERROR(CheckExperts(recipe, *env.registry, index));
  return recipe;
}

std::string TextOfError(const absl::Status& error) {
  const std::string text(error.message());
  const std::string line = text.substr(0, text.find('\n'));
  size_t key = line.find("stage[");
  for (const char* other : {"run.", "data.", "model."}) {
    key = std::min(key, line.find(other));
  }
  return key == std::string::npos ? line : line.substr(key);
}

std::string KeyOfError(const absl::Status& error) {
  std::string key = TextOfError(error);
  key = key.substr(0, key.find(": "));
  return key.starts_with("stage[") ? key.substr(key.find('.') + 1) : key;
}

std::string ToString(const StageForm& form) {
  const ParallelConfig& of = form.parallel;
  std::string text;
  const auto axis = [&](const char* name, int64_t ranks) {
    if (ranks == 1) return;
    absl::StrAppend(&text, text.empty() ? "" : " x ", name, " ", ranks);
  };
  axis("tensor", of.tensor);
  axis("context", of.context);
  axis("data", of.data);
  axis("pipeline", of.pipeline);
  if (text.empty()) text = "1 rank";
  if (of.tensor > 1 && !*of.sequence) text += ", sequence off";
  if (of.expert > 1) {
    absl::StrAppend(&text, ", expert ", of.expert, " ",
                    std::string(schema::Word(*of.dispatch)));
  }
  if (of.pipeline > 1) {
    absl::StrAppend(&text, ", ", std::string(schema::Word(*of.schedule)));
    if (of.chunks > 1) absl::StrAppend(&text, " ", of.chunks, " chunks");
  }
  absl::StrAppend(&text, ", micro_batch ", form.micro_batch, ", recompute ",
                  std::string(schema::Word(form.recompute)), ", zero ",
                  of.zero);
  if (of.shard > 0) absl::StrAppend(&text, " shard ", of.shard);
  if (form.offload.any()) text += ", offload";
  return text;
}

}  // namespace delink
