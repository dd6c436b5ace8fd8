#include "recipes/schema/check_parallel.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "recipes/schema/consistency.h"
#include "recipes/schema/describe.h"
#include "recipes/schema/nearest.h"

namespace delink::schema {
namespace {

template <typename T>
void FillIn(std::optional<T> before, std::optional<T>& value) {
  if (!value) value = before;
}

void FillIn(int64_t before, int64_t& value) {
  if (value == 0) value = before;
}

// For the first stage.
ParallelConfig First() {
  const Mesh mesh;
  return {.tensor = 1,
          .context = 1,
          .expert = 1,
          .dispatch = ExpertDispatch::kAuto,
          .expert_room = 2,
          .expert_overlap = false,
          .pipeline = 1,
          .schedule = PipelineSchedule::k1F1B,
          .chunks = 1,
          .rank_order = {mesh.order.begin(), mesh.order.end()},
          .tensor_across_nodes = false};
}

void FillIn(const ParallelConfig& before, ParallelConfig& parallel) {
  FillIn(before.tensor, parallel.tensor);
  FillIn(before.context, parallel.context);
  FillIn(before.expert, parallel.expert);
  FillIn(before.dispatch, parallel.dispatch);
  FillIn(before.expert_room, parallel.expert_room);
  FillIn(before.expert_overlap, parallel.expert_overlap);
  FillIn(before.pipeline, parallel.pipeline);
  FillIn(before.schedule, parallel.schedule);
  FillIn(before.tensor_across_nodes, parallel.tensor_across_nodes);
  if (parallel.rank_order.empty()) parallel.rank_order = before.rank_order;
  if (before.tensor > 1) FillIn(before.sequence, parallel.sequence);
  if (!parallel.sequence) parallel.sequence = parallel.tensor > 1;
  if (before.schedule == parallel.schedule) {
    FillIn(before.chunks, parallel.chunks);
  }
  FillIn(parallel.schedule == PipelineSchedule::kInterleaved ? 2 : 1,
         parallel.chunks);
}

void CheckTensor(Section& document, const Recipe& recipe, size_t i) {
  const int64_t tensor = recipe.stages[i].parallel.tensor;
  const ModelConfig& model = *recipe.model;
  for (const ModelConfig::Cut& cut : model.cuts()) {
    if (cut.Into(tensor)) continue;
    document.Error(
        StageKey(i, "parallel.tensor"),
        absl::StrFormat("%d does not divide model.%s %d%s; use tensor %s",
                        tensor, cut.key, cut.count,
                        cut.repeated ? ", nor is it a multiple of that" : "",
                        Nearest(tensor, model.cuts().front().count,
                                [&](int64_t n) { return model.CutsInto(n); })));
    return;
  }
}

void CheckContext(Section& document, const Recipe& recipe, size_t i) {
  const int64_t context = recipe.stages[i].parallel.context;
  const int64_t seq = recipe.data.seq;
  if (context == 1 || seq % (2 * context) == 0) return;
  const int64_t below = seq / (2 * context) * 2 * context;
  const std::string lengths =
      below > 0 ? absl::StrCat(below, " or ", below + 2 * context)
                : absl::StrCat(2 * context);
  document.Error(
      StageKey(i, "parallel.context"),
      absl::StrFormat("%d, but data.seq %d is no multiple of %d: each rank has "
                      "an early and a late piece of every sequence; use "
                      "context %s, or data.seq %s",
                      context, seq, 2 * context,
                      Nearest(context, seq / 2,
                              [&](int64_t c) { return seq % (2 * c) == 0; }),
                      lengths));
}

// "pipeline 4 x 2 chunks"
std::string Pieces(const ParallelConfig& parallel) {
  std::string text = absl::StrCat("pipeline ", parallel.pipeline);
  if (parallel.pieces() > parallel.pipeline) {
    absl::StrAppend(&text, " x ", parallel.chunks, " chunks");
  }
  return text;
}

// "3 blocks"
std::string Blocks(int64_t count) {
  return absl::StrCat(count, count == 1 ? " block" : " blocks");
}

struct Most {
  std::string_view key;
  std::string text;  // "chunks 3"
};

// The largest valid value if there are fewer layers than pieces.
Most AtMost(const ParallelConfig& parallel, int64_t layers) {
  constexpr std::string_view kPipeline = "parallel.pipeline";
  const int64_t chunks = layers / parallel.pipeline;
  const int64_t pipeline = layers / parallel.chunks;
  if (parallel.chunks == 1)
    return {kPipeline, absl::StrCat("pipeline ", layers)};
  if (chunks > 1) return {"parallel.chunks", absl::StrCat("chunks ", chunks)};
  if (pipeline > 1) return {kPipeline, absl::StrCat("pipeline ", pipeline)};
  return {kPipeline,
          absl::StrCat("pipeline ", layers, " with schedule \"1f1b\"")};
}

// Checks that chunks fit the schedule, and that no piece lacks a layer.
bool CheckPieces(Section& document, const Recipe& recipe, size_t i) {
  const ParallelConfig& parallel = recipe.stages[i].parallel;
  const bool interleaved = parallel.schedule == PipelineSchedule::kInterleaved;
  if (interleaved != (parallel.chunks > 1)) {
    document.Error(
        StageKey(i, "parallel.chunks"),
        absl::StrFormat("%d with schedule \"%s\"; it is 2 or more with "
                        "\"interleaved\", else 1",
                        parallel.chunks, Word(*parallel.schedule)));
    return false;
  }
  const int64_t blocks = recipe.Depth(i);
  const int64_t layers = blocks + 2;
  if (parallel.pieces() <= layers) return true;
  const auto [key, most] = AtMost(parallel, layers);
  document.Error(
      StageKey(i, key),
      absl::StrFormat(
          "%d pieces (%s), but %s %d layers: %s, embedding, head; at most %s",
          parallel.pieces(), Pieces(parallel),
          recipe.stages[i].depth ? "the stage visits" : "there are", layers,
          Blocks(blocks), most));
  return false;
}

// Names an entry that could be changed to make the sum right; if there is none,
// says that the entries must be smaller.
std::string OneThatWould(const std::vector<int64_t>& numbers, int64_t missing) {
  for (size_t k = numbers.size(); k-- > 0;) {
    const bool end = k == 0 || k + 1 == numbers.size();
    const int64_t would = numbers[k] + missing;
    if (would < (end ? 0 : 1)) continue;
    return absl::StrFormat("number %d should be %d, not %d", k, would,
                           numbers[k]);
  }
  return "use smaller numbers";
}

void CheckLayers(Section& document, const Recipe& recipe, size_t i) {
  const ParallelConfig& parallel = recipe.stages[i].parallel;
  const std::vector<int64_t>& layers = parallel.layers;
  if (layers.empty()) return;
  const std::string key = StageKey(i, "parallel.layers");
  const auto count = static_cast<int64_t>(layers.size());
  if (count != parallel.pieces()) {
    document.Error(
        key, absl::StrFormat("%d numbers, but %s makes %d pieces; give %d, or "
                             "[] to divide the model by cost",
                             count, Pieces(parallel), parallel.pieces(),
                             parallel.pieces()));
    return;
  }
  const int64_t blocks = recipe.Depth(i);
  const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  if (sum != blocks) {
    document.Error(
        key,
        absl::StrFormat("add up to %d, but the stage visits %s; %s", sum,
                        Blocks(blocks), OneThatWould(layers, blocks - sum)));
    return;
  }
  for (int64_t k = 1; k + 1 < count; ++k) {
    if (layers[static_cast<size_t>(k)] > 0) continue;
    document.Error(key,
                   absl::StrFormat("number %d is 0; only the first and the "
                                   "last piece may have no blocks, because "
                                   "they have the embedding and the head",
                                   k));
    return;
  }
}

void CheckReduce(Section& document, const Recipe& recipe, size_t i) {
  const ParallelConfig& parallel = recipe.stages[i].parallel;
  if (parallel.reduce == GradientReduction::kStep || parallel.zero >= 2) return;
  document.Error(
      StageKey(i, "parallel.reduce"),
      absl::StrFormat("\"micro_batch\", but zero = %d keeps whole "
                      "gradients; use zero = 2 or 3, or reduce \"step\"",
                      parallel.zero));
}

void CheckShard(Section& document, const Recipe& recipe, size_t i) {
  const ParallelConfig& parallel = recipe.stages[i].parallel;
  if (parallel.shard == 0 || parallel.zero == 3) return;
  document.Error(
      StageKey(i, "parallel.shard"),
      absl::StrFormat("%d, but zero = %d keeps whole weights; use zero = 3, or "
                      "leave shard out",
                      parallel.shard, parallel.zero));
}

// Ranks of the tensor axis update such matrices together, on their devices.
void CheckHostUpdates(Section& document, const Recipe& recipe, size_t i) {
  const Stage& stage = recipe.stages[i];
  const OptimizerConfig::Kind kind = recipe.optimizer.kind;
  if (kind != OptimizerConfig::Kind::kMuon &&
      kind != OptimizerConfig::Kind::kAdafactor) {
    return;
  }
  if (stage.parallel.tensor == 1 || stage.offload.all.update != Home::kHost) {
    return;
  }
  document.Error(
      StageKey(i, "offload.update"),
      absl::StrFormat(
          "\"host\", but with optimizer.kind \"%s\" the %d tensor ranks update "
          "a matrix together, which only devices do; use \"device\", or tensor "
          "1",
          kind == OptimizerConfig::Kind::kMuon ? "muon" : "adafactor",
          stage.parallel.tensor));
}

// At a switch to another mesh, the layers of the old stage first take the
// layout of the next stage.
void CheckBefore(Section& document, const Recipe& recipe, size_t i) {
  const ParallelConfig& parallel = recipe.stages[i].parallel;
  if (i == 0 || SameMesh(recipe.stages[i - 1].parallel, parallel)) return;
  const int64_t layers = recipe.Depth(i - 1) + 2;
  if (parallel.pieces() <= layers) return;
  const auto [key, most] = AtMost(parallel, layers);
  document.Error(
      StageKey(i, key),
      absl::StrFormat(
          "%d pieces (%s), but at the switch stage[%d] is first laid out in "
          "these pieces and has only %d layers: %s, embedding, head; at most "
          "%s",
          parallel.pieces(), Pieces(parallel), i - 1, layers,
          Blocks(layers - 2), most));
}

}  // namespace

void CompleteParallel(Section& document, Recipe& recipe) {
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    const ParallelConfig& parallel = recipe.stages[i].parallel;
    FillIn(i > 0 ? recipe.stages[i - 1].parallel : First(),
           recipe.stages[i].parallel);
    CheckTensor(document, recipe, i);
    if (const auto objection =
            recipe.model->ObjectionTo(recipe.stages[i].parallel)) {
      document.Error(StageKey(i, objection->key), objection->message);
    }
    CheckContext(document, recipe, i);
    CheckReduce(document, recipe, i);
    CheckShard(document, recipe, i);
    CheckHostUpdates(document, recipe, i);
    // Without a pipeline nothing is cut, whatever the other keys say.
    if (parallel.pipeline > 1 && CheckPieces(document, recipe, i)) {
      CheckLayers(document, recipe, i);
      CheckBefore(document, recipe, i);
    }
    if (parallel.pipeline > 1 &&
        recipe.run.order == MicroBatchOrder::kLayerMajor) {
      document.Error(
          "run.order",
          absl::StrFormat("\"layer\" needs all layers on one rank; in a "
                          "pipeline (%d) the schedule orders micro-batches, so "
                          "leave the key out",
                          parallel.pipeline));
    }
    // Stages that omit their layout would repeat the problem.
    if (!document.complete()) return;
  }
}

}  // namespace delink::schema
