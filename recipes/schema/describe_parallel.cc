// `parallel` of a stage.
#include <utility>

#include "absl/strings/str_format.h"
#include "recipes/schema/describe.h"
#include "recipes/schema/limits.h"

namespace delink::schema {

std::string_view Word(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::k1F1B:
      return "1f1b";
    case PipelineSchedule::kInterleaved:
      return "interleaved";
    case PipelineSchedule::kZeroBubble:
      return "zero-bubble";
  }
  return "";
}

namespace {

void DescribePipeline(Section& s, ParallelConfig& parallel) {
  s.Int("pipeline", &parallel.pipeline,
        {.doc = "pipeline-parallel ranks, each with some of the layers; in all "
                "stages as many. At most the layers of the stage, which are "
                "its blocks, the embedding and the head: a stage of `depth = "
                "1` has 3, so that a recipe which grows from one block has "
                "at most pipeline 3 throughout. With 1, schedule, chunks and "
                "layers say nothing",
         .when_omitted = "as in the stage before; in the first `1`",
         .min = 1,
         .max = kMaxRanks});
  s.Enum("schedule", &parallel.schedule, Word,
         {.doc = "the order in which a rank of a pipeline works: one forward, "
                 "one backward (1F1B); that with several chunks a rank in "
                 "turn, which is idle for less time and exchanges more; or "
                 "that with backwards in two halves, which is idle for less "
                 "time and takes more memory",
          .when_omitted = "as in the stage before; in the first `\"1f1b\"`"});
  s.Int("chunks", &parallel.chunks,
        {.doc = "pieces of the model that each rank of an interleaved pipeline "
                "has; micro-batches are then a multiple of pipeline",
         .when_omitted = "as in the stage before where that has the same "
                         "schedule; else 1, interleaved 2",
         .min = 1,
         .max = kMaxRanks});
  s.Ints("layers", &parallel.layers,
         {.doc = "blocks of each piece of the model, from its front; of those "
                 "that the stage visits. The first also has the embedding, the "
                 "last the head, and either may have no blocks. Not taken "
                 "from the stage before",
          .when_omitted = "cut by what forward and backward compute",
          .min = 0,
          .max = kMaxLayers});
}

}  // namespace

void DescribeParallel(Section& s, ParallelConfig& parallel) {
  s.Int("data", &parallel.data,
        {.doc = "data-parallel ranks; in all stages as many",
         .when_omitted = "the ranks left over",
         .min = 1,
         .max = kMaxRanks});
  s.Int("zero", &parallel.zero,
        {.doc = "ZeRO stage: 1 shards optimizer state over the data ranks. "
                "Not taken from the stage before",
         .min = 0,
         .max = 1});
  DescribePipeline(s, parallel);
  const std::pair<const char*, int64_t*> others[] = {
      {"tensor", &parallel.tensor}, {"expert", &parallel.expert}};
  for (const auto& [name, ranks] : others) {
    const std::string doc = absl::StrFormat(
        "%s-parallel ranks; more than 1 comes with a later "
        "version",
        name);
    s.Int(name, ranks, {.doc = doc, .min = 1, .max = kMaxRanks});
    if (s.complete() && *ranks > 1) {
      s.Error(name, absl::StrFormat("%s parallelism comes with a later version;"
                                    " for now only 1",
                                    name));
    }
  }
}

}  // namespace delink::schema
