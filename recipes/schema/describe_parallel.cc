// `parallel` of a stage.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

std::string_view Word(Axis axis) {
  switch (axis) {
    case Axis::kTensor:
      return "tensor";
    case Axis::kContext:
      return "context";
    case Axis::kData:
      return "data";
    case Axis::kPipeline:
      return "pipeline";
  }
  return "";
}

namespace {

// A list of all axes by name.
void RankOrderKey(Section& s, std::vector<Axis>* order) {
  Field field;
  field.name = "rank_order";
  field.type = "list of \"tensor\", \"context\", \"data\" and \"pipeline\"";
  field.doc =
      "how ranks are numbered, the axis first along which neighbours have "
      "neighbouring numbers, and so are on one machine if any are";
  field.when_omitted =
      "as in the stage before; in the first `[\"tensor\", \"context\", "
      "\"data\", \"pipeline\"]`";
  field.read = [=](const Value& given, Report& report) {
    const List* const list = given.As<List>();
    std::vector<Axis> axes;
    for (const Value& item : list != nullptr ? *list : List()) {
      const std::string* const word = item.As<std::string>();
      for (const Axis axis : ValuesOf<Axis>(Word)) {
        if (word == nullptr || *word != Word(axis)) continue;
        if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
          axes.push_back(axis);
        }
      }
    }
    if (list == nullptr || axes.size() != kAxes || list->size() != kAxes) {
      report.Error(given.source,
                   "expected each of \"tensor\", \"context\", \"data\" and "
                   "\"pipeline\" once, the fastest first");
    } else {
      *order = axes;
    }
  };
  field.write = [=]() -> std::optional<Value> {
    if (order->empty()) return std::nullopt;
    List list;
    for (const Axis axis : *order) list.emplace_back(std::string(Word(axis)));
    return Value(std::move(list));
  };
  s.Custom(field);
}

// What ranks that work on the same micro-batch have each its part of.
void DescribeWithin(Section& s, ParallelConfig& parallel) {
  s.Int(
      "tensor", &parallel.tensor,
      {.doc = "tensor-parallel ranks, each with some heads of attention, some "
              "of the width of the MLP and some of the vocabulary; divides "
              "`model.heads` and `model.ffn`; `model.kv_heads` is a multiple "
              "of it or divides it",
       .when_omitted = "as in the stage before; in the first `1`",
       .min = 1,
       .max = kMaxRanks});
  s.Bool("sequence", &parallel.sequence,
         {.doc = "whether tensor ranks have each some of the tokens in norms "
                 "and on the residual stream (sequence parallelism), where "
                 "otherwise each has all: less memory",
          .when_omitted = "as in the stage before where that has tensor above "
                          "1; else true where tensor is above 1"});
  s.Bool("tensor_across_nodes", &parallel.tensor_across_nodes,
         {.doc = "whether ranks of a tensor group may be on several machines, "
                 "which each layer then waits for",
          .when_omitted = "as in the stage before; in the first `false`"});
  s.Int("context", &parallel.context,
        {.doc = "context-parallel ranks, each with some of the tokens of every "
                "sequence, an early and a late piece; `data.seq` is a multiple "
                "of twice as many",
         .when_omitted = "as in the stage before; in the first `1`",
         .min = 1,
         .max = kMaxRanks});
}

void DescribePipeline(Section& s, ParallelConfig& parallel) {
  s.Int(
      "pipeline", &parallel.pipeline,
      {.doc = "pipeline-parallel ranks, each with some of the layers. At most "
              "the layers of the stage, which are its blocks, the embedding "
              "and the head, and of the stage before where ranks are "
              "arranged otherwise there: a stage of `depth = 1` has 3. With "
              "1, schedule, chunks and layers say nothing",
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
  s.Int(
      "data", &parallel.data,
      {.doc = "data-parallel ranks, each with some of the sequences. All "
              "stages have as many ranks, data x tensor x context x pipeline, "
              "but may arrange them otherwise",
       .when_omitted = "the ranks left over",
       .min = 1,
       .max = kMaxRanks});
  s.Int("zero", &parallel.zero,
        {.doc = "ZeRO stage: 1 shards optimizer state over the data ranks. "
                "Not taken from the stage before",
         .min = 0,
         .max = 1});
  DescribeWithin(s, parallel);
  DescribePipeline(s, parallel);
  RankOrderKey(s, &parallel.rank_order);
  s.Int("expert", &parallel.expert,
        {.doc = "expert-parallel ranks; more than 1 comes with a later version",
         .min = 1,
         .max = kMaxRanks});
  if (s.complete() && parallel.expert > 1) {
    s.Error("expert",
            "expert parallelism comes with a later version; for now only 1");
  }
}

}  // namespace delink::schema
