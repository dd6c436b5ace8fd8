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

std::string_view Word(ExpertDispatch dispatch) {
  switch (dispatch) {
    case ExpertDispatch::kAuto:
      return "auto";
    case ExpertDispatch::kGather:
      return "gather";
    case ExpertDispatch::kAllToAll:
      return "all-to-all";
    case ExpertDispatch::kDeduplicated:
      return "deduplicated";
  }
  return "";
}

std::string_view Word(GradientReduction reduction) {
  switch (reduction) {
    case GradientReduction::kStep:
      return "step";
    case GradientReduction::kMicroBatch:
      return "micro_batch";
  }
  return "";
}

std::string_view Word(Axis axis) {
  return static_cast<int>(axis) < kMeshAxes ? ToString(axis) : "";
}

namespace {

// A list of all axes by name.
void RankOrderKey(Section& s, std::vector<Axis>* order) {
  Field field;
  field.name = "rank_order";
  field.type = "list of \"tensor\", \"context\", \"data\" and \"pipeline\"";
  field.doc =
      "how ranks are numbered, fastest axis first: neighbours along it have "
      "consecutive numbers and share a machine if any ranks do";
  field.when_omitted =
      "as in the previous stage; in the first `[\"tensor\", \"context\", "
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
    if (list == nullptr || axes.size() != kMeshAxes ||
        list->size() != kMeshAxes) {
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

// Axes whose ranks share a micro-batch.
void DescribeWithin(Section& s, ParallelConfig& parallel) {
  s.Int("tensor", &parallel.tensor,
        {.doc = "tensor-parallel ranks, each with some attention heads, a part "
                "of the MLP width and a part of the vocabulary. Divides "
                "`model.heads` and `model.ffn`; `model.kv_heads` is a multiple "
                "of it or divides it",
         .when_omitted = "as in the previous stage; in the first `1`",
         .min = 1,
         .max = kMaxRanks});
  s.Bool("sequence", &parallel.sequence,
         {.doc = "sequence parallelism: in norms and on the residual stream "
                 "each tensor rank holds only some of the tokens, which saves "
                 "memory. `tensor` must then divide the tokens of a rank's "
                 "micro-batch, micro_batch x data.seq / context",
          .when_omitted = "as in the previous stage if its tensor is above 1; "
                          "else true if tensor is above 1"});
  s.Bool("tensor_across_nodes", &parallel.tensor_across_nodes,
         {.doc = "whether a tensor group may span several machines; each layer "
                 "then waits for the network",
          .when_omitted = "as in the previous stage; in the first `false`"});
  s.Int("context", &parallel.context,
        {.doc = "context-parallel ranks, each with an early and a late piece "
                "of every sequence; `data.seq` is a multiple of 2 x context",
         .when_omitted = "as in the previous stage; in the first `1`",
         .min = 1,
         .max = kMaxRanks});
}

void DescribeExpert(Section& s, ParallelConfig& parallel) {
  s.Int("expert", &parallel.expert,
        {.doc = "expert-parallel ranks: how many neighbouring ranks of a "
                "pipeline stage share the experts of each layer. Part of "
                "data x tensor x context, which it must divide",
         .when_omitted = "as in the previous stage; in the first `1`",
         .min = 1,
         .max = 512});
  s.Enum("dispatch", &parallel.dispatch, Word,
         {.doc = "how tokens reach the experts of other ranks. gather: every "
                 "rank gathers the tokens of all; all-to-all: a token goes to "
                 "the ranks whose experts it chose; deduplicated: the same, "
                 "but only once to each machine, and on from there; auto: "
                 "all-to-all if expert_room x model.top_k is less than expert, "
                 "because less is then sent, else gather",
          .when_omitted = "as in the previous stage; in the first `\"auto\"`"});
  s.Float("expert_room", &parallel.expert_room,
          {.doc = "unless tokens are gathered, the choices that a rank has "
                  "room for, of "
                  "each other rank's tokens, as a multiple of their mean "
                  "number. If a batch needs more, all ranks take twice the "
                  "room and run the step again",
           .when_omitted = "as in the previous stage; in the first `2`",
           .min = 0.01,
           .max = 1024});
  s.Bool("expert_overlap", &parallel.expert_overlap,
         {.doc = "unless tokens are gathered, each rank computes one half of "
                 "its experts while the tokens of the other half are sent, and "
                 "shared experts during the first exchange. It changes no bit; "
                 "the halves' products are smaller",
          .when_omitted = "as in the previous stage; in the first `false`"});
}

void DescribePipeline(Section& s, ParallelConfig& parallel) {
  s.Int(
      "pipeline", &parallel.pipeline,
      {.doc = "pipeline-parallel ranks, each with some of the layers. At most "
              "the number of layers of the stage: its blocks, the embedding "
              "and the head, so 3 with `depth = 1`. If the previous stage "
              "arranges its ranks differently, also at most its number of "
              "layers. With 1, schedule, chunks and layers have no effect",
       .when_omitted = "as in the previous stage; in the first `1`",
       .min = 1,
       .max = kMaxRanks});
  s.Enum("schedule", &parallel.schedule, Word,
         {.doc = "order of work in a pipeline. 1f1b: one forward, one "
                 "backward; interleaved: 1F1B with several chunks per rank, "
                 "which reduces idle time and sends more; zero-bubble: 1F1B "
                 "with each backward in two halves, which reduces idle time "
                 "and needs more memory",
          .when_omitted = "as in the previous stage; in the first `\"1f1b\"`"});
  s.Int("chunks", &parallel.chunks,
        {.doc = "pieces of the model per rank of an interleaved pipeline; the "
                "number of micro-batches is then a multiple of pipeline",
         .when_omitted = "as in the previous stage if it has the same "
                         "schedule; else 1, interleaved 2",
         .min = 1,
         .max = kMaxRanks});
  s.Ints("layers", &parallel.layers,
         {.doc = "number of visited blocks in each piece of the model, in "
                 "order. The first piece also has the embedding, the last one "
                 "the head; these two may have no blocks. Not inherited from "
                 "the previous stage",
          .when_omitted = "balanced by the FLOPs of forward and backward",
          .min = 0,
          .max = kMaxLayers});
}

}  // namespace

void DescribeParallel(Section& s, ParallelConfig& parallel) {
  s.Int(
      "data", &parallel.data,
      {.doc = "data-parallel ranks, each with some of the sequences. All "
              "stages have the same number of ranks, data x tensor x context x "
              "pipeline, but can arrange them differently",
       .when_omitted = "the remaining ranks",
       .min = 1,
       .max = kMaxRanks});
  s.Int("zero", &parallel.zero,
        {.doc = "ZeRO stage: 1 shards optimizer state over the data ranks, 2 "
                "gradients as well (run.order = \"layer\", or one micro-batch "
                "per step, saves most), 3 weights as well, which are gathered "
                "for each layer. Not inherited from the previous stage",
         .min = 0,
         .max = 3});
  s.Int("shard", &parallel.shard,
        {.doc = "with zero = 3: neighbouring data ranks that have the weights "
                "together, such as those of a node; the next ones have them "
                "again. Gradients are then summed in two steps. Not inherited "
                "from the previous stage",
         .when_omitted = "all data ranks",
         .min = 1,
         .max = kMaxRanks});
  s.Enum(
      "reduce", &parallel.reduce, Word,
      {.doc = "when gradients are reduced. step: once, when they are "
              "complete; micro_batch: after each micro-batch, into the "
              "shards of zero = 2 and 3, so that whole gradients of few layers "
              "exist at a time. That rounds sums in another order and sends "
              "as often as there are micro-batches. Not inherited from the "
              "previous stage"});
  DescribeWithin(s, parallel);
  DescribePipeline(s, parallel);
  RankOrderKey(s, &parallel.rank_order);
  DescribeExpert(s, parallel);
}

}  // namespace delink::schema
