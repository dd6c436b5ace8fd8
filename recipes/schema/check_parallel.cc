#include "recipes/schema/check_parallel.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "recipes/schema/consistency.h"
#include "recipes/schema/describe.h"

namespace delink::schema {
namespace {

void FillIn(const ParallelConfig* before, ParallelConfig& parallel) {
  if (parallel.pipeline == 0) {
    parallel.pipeline = before != nullptr ? before->pipeline : 1;
  }
  if (!parallel.schedule) {
    parallel.schedule =
        before != nullptr ? before->schedule : PipelineSchedule::k1F1B;
  }
  if (parallel.chunks > 0) return;
  if (before != nullptr && before->schedule == parallel.schedule) {
    parallel.chunks = before->chunks;
  } else {
    parallel.chunks =
        parallel.schedule == PipelineSchedule::kInterleaved ? 2 : 1;
  }
}

// No switch moves what ranks have to other ranks.
void CheckSame(Section& document, const Recipe& recipe, size_t i) {
  const auto check = [&](std::string_view name, int64_t now, int64_t before) {
    if (now == before) return;
    document.Error(
        StageKey(i, absl::StrCat("parallel.", std::string(name))),
        absl::StrFormat("%d, but stage[%d] has %d; pipeline and data are the "
                        "same in all stages of a run",
                        now, i - 1, before));
  };
  const ParallelConfig& now = recipe.stages[i].parallel;
  const ParallelConfig& before = recipe.stages[i - 1].parallel;
  check("pipeline", now.pipeline, before.pipeline);
  if (now.data > 0 && before.data > 0) check("data", now.data, before.data);
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

// What there may be of where there are fewer layers than pieces.
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

// Whether the stage's layers are as many as its pieces.
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

// Which of the numbers would make them add up; empty: none alone.
std::string OneThatWould(const std::vector<int64_t>& numbers, int64_t missing) {
  for (size_t k = numbers.size(); k-- > 0;) {
    const bool end = k == 0 || k + 1 == numbers.size();
    const int64_t would = numbers[k] + missing;
    if (would < (end ? 0 : 1)) continue;
    return absl::StrFormat("number %d would be %d, not %d", k, would,
                           numbers[k]);
  }
  return "make them fewer";
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
                             "[] to have the model cut by cost",
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
                                   "last piece may be without blocks, which "
                                   "have the embedding and the head",
                                   k));
    return;
  }
}

}  // namespace

void CompleteParallel(Section& document, Recipe& recipe) {
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    FillIn(i > 0 ? &recipe.stages[i - 1].parallel : nullptr,
           recipe.stages[i].parallel);
    if (i > 0) CheckSame(document, recipe, i);
    // Without a pipeline nothing is cut, whatever else is said of one.
    if (recipe.stages[i].parallel.pipeline > 1 &&
        CheckPieces(document, recipe, i)) {
      CheckLayers(document, recipe, i);
    }
    // Stages that omit theirs would say the same again.
    if (!document.complete()) return;
  }
  const int64_t pipeline = recipe.stages.front().parallel.pipeline;
  if (pipeline > 1 && recipe.run.order == MicroBatchOrder::kLayerMajor) {
    document.Error("run.order",
                   absl::StrFormat("\"layer\" is for one rank's layers alone; "
                                   "in a pipeline (%d) a schedule orders "
                                   "micro-batches, so leave the key out",
                                   pipeline));
  }
}

}  // namespace delink::schema
