// The events of a run, as plain values. The run collects the facts of an event
// once (recipes/run/observers/recorder.h); each sink (sink.h) uses those it
// needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "data/loader/blend.h"
#include "framework/step/plan/memory.h"
#include "recipes/record/pipeline_table.h"
#include "recipes/record/source_count.h"

namespace delink {

// The position of a run, and the time.
struct RunMoment {
  int64_t step = 0;    // optimizer steps done
  int64_t tokens = 0;  // trained on
  double flops = 0;    // of these steps, on all ranks; NaN: not known
  std::string stage;
  double seconds = 0;  // of the run so far, over all resumes
};

struct StageFacts {
  std::string name;
  int64_t depth = 0;  // blocks that it visits
  int64_t unique_parameters = 0;
  int64_t virtual_parameters = 0;
  int64_t active_parameters = 0;      // of these: that work on a token
  std::string ranks;                  // their arrangement; empty: a single rank
  MemoryAccount account;              // of the rank that has most
  std::vector<PipelineRow> pipeline;  // empty without one
  double flops_per_token = 0;
  double loss = 0;  // on one fixed batch; only at a switch
};

// A data source, and the run's position in it.
struct SourceState {
  std::string name;
  std::string folder;  // of its corpus
  std::string corpus;  // its digest
  int64_t corpus_tokens = 0;
  bool validated = true;
  BlendSource at;
  int64_t tokens = 0;  // consumed
};

// Norms of gradients and weights, layer by layer.
struct NormsByLayer {
  // "embed", "blocks/0", ..., "head". Parameters that layers share have their
  // own entry, named after all these layers: "blocks/0..11", "embed,head".
  std::vector<std::string> layers;
  std::vector<double> gradient;  // of the mean loss, before clipping
  std::vector<double> weight;
};

// How the routers of a step chose, layer by layer; numbers are over counted
// targets.
struct RoutingByLayer {
  static constexpr int64_t kListed = 256;  // most experts whose choices are

  std::vector<std::string> layers;  // those with experts: "blocks/1"
  // Tokens of an expert, as ratios to their mean over experts: the least, the
  // quartiles and the largest.
  std::vector<std::vector<double>> load;
  std::vector<double> max_violation;  // (largest load - mean) / mean
  std::vector<double> dropped;   // the fraction of choices above the capacity
  std::vector<double> entropy;   // of a token's shares, nats
  std::vector<double> z;         // squared log sum exp of a token's logits
  std::vector<double> aux_loss;  // with its weight, of a token
  std::vector<std::vector<double>> choices;  // by expert, if those are few
};

// The speed of a step, and the running mean over recent steps.
struct Speed {
  double tokens_per_s = 0;
  double peak_fraction = 0;  // of the matmul peak
  double mean_seconds = 0;   // of a step
  double mean_tokens_per_s = 0;
  double mean_peak_fraction = 0;
  std::optional<double> new_peak_flops;  // if it was measured again
};

// How long ranks of a pipeline waited in a step; a mean over ranks.
struct PipelineWait {
  double bubble = 0;   // the fraction of the step, for other stages
  double seconds = 0;  // for all exchanges of ranks
};

struct RunBegan {
  RunMoment at;
  bool resumed = false;
  std::string recipe;  // TOML, every value resolved
  StageFacts stage;
  std::string device;
  int ranks = 1, threads = 1;  // threads of a rank
  double peak_flops = 0;       // of all ranks
  int64_t tokens_left = 0;     // as planned
  bool grows = false;          // a later stage visits more blocks
  std::vector<SourceState> sources;
  std::vector<SourceCount> counts;  // of the checkpoint; none at the start
};

struct StepDone {
  RunMoment at;  // after it
  size_t stage_index = 0;
  int64_t depth = 0;  // blocks that the stage visits
  int64_t steps = 0;  // of the whole run
  double loss = 0;    // nats
  double lr = 0;
  double grad_norm = 0;
  bool skipped = false;
  Speed speed;
  std::optional<PipelineWait> wait;       // with a pipeline
  int64_t memory = 0, peak_memory = 0;    // bytes of this process, resident
  std::optional<NormsByLayer> norms;      // if they were measured
  std::optional<RoutingByLayer> routing;  // of models with experts, if logged
  std::vector<SourceState> sources;       // after it
};

// The time of a stage's steps beside that which its plan predicts
// (recipes/run/observers/step_check.h).
struct StepsTimed {
  struct LaneTime {
    std::string lane;
    double planned = 0, measured = 0;  // busy seconds of a step, on rank 0
  };
  RunMoment at;
  double planned = 0, measured = 0;  // seconds of a step
  std::vector<LaneTime> lanes;       // none if the steps were not traced
};

// How well the gradients of layers that share agree.
struct GradientsProbed {
  RunMoment at;
  double rho = 0;
  double times_unrelated = 0;
  std::vector<std::pair<std::string, double>> rho_of;  // by part
};

struct StageSwitched {
  RunMoment at;
  size_t stage_index = 0;  // of the new stage
  std::string why;         // why the stage before is over
  StageFacts before, after;
};

struct RunValidated {
  RunMoment at;
  double loss = 0;  // nats
  // By source; empty where there is only one.
  std::vector<std::pair<std::string, double>> loss_of;
};

struct CheckpointSaved {
  RunMoment at;
  std::string path;
};

// The run ends here, before its last step, because its data ended or its
// validations stopped improving. Also recorded when a run that had ended so is
// resumed.
struct RunEndsEarly {
  RunMoment at;
  std::string why;
  double best_loss = 0;   // of all validations; infinite before any
  int64_t best_step = 0;  // of that loss; -1 before any
};

struct RunEnded {
  RunMoment at;
  int64_t peak_memory = 0;
  std::vector<SourceState> sources;
};

using RunEvent =
    std::variant<RunBegan, StepDone, StepsTimed, GradientsProbed, StageSwitched,
                 RunValidated, CheckpointSaved, RunEndsEarly, RunEnded>;

}  // namespace delink
