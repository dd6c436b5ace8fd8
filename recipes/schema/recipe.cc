#include "recipes/schema/recipe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "recipes/schema/nearest.h"
#include "recipes/schema/problems.h"

namespace delink {
namespace {

// "data 2 x tensor 2 x pipeline 2"
std::string Product(const ParallelConfig& parallel) {
  std::string text;
  for (const auto& [name, ranks] :
       {std::pair{"data", parallel.data}, std::pair{"tensor", parallel.tensor},
        std::pair{"context", parallel.context},
        std::pair{"pipeline", parallel.pipeline}}) {
    if (ranks == 1 && name != std::string_view("data")) continue;
    absl::StrAppend(&text, text.empty() ? "" : " x ", name, " ", ranks);
  }
  return text;
}

// Suggests a number below, unless it is 0, or one above.
std::string Either(int64_t below, int64_t above) {
  if (below == 0) return absl::StrCat(above);
  return absl::StrCat(below, " or ", above);
}

std::string BatchKey(const Recipe& recipe, size_t i) {
  return recipe.stages[i].batch ? absl::StrFormat("stage[%d].batch", i)
                                : std::string("data.batch");
}

absl::Status CheckExpert(const Recipe& recipe, size_t i,
                         const ParallelConfig& parallel) {
  const int64_t places = parallel.ranks() / parallel.pipeline;
  const int64_t expert = parallel.expert;
  if (places % expert == 0) return absl::OkStatus();
  const std::string key = absl::StrFormat("stage[%d].parallel.expert", i);
  return ErrorAt(
      recipe, key, key,
      absl::StrFormat("%d does not divide the %d ranks of a pipeline stage "
                      "(data x tensor x context); use expert %s",
                      expert, places, Nearest(expert, places, [&](int64_t n) {
                        return places % n == 0;
                      })));
}

// Parts of the data ranks that have the weights have equally many ranks of each
// group with the same experts, or at most one.
absl::Status CheckShard(const Recipe& recipe, size_t i,
                        const ParallelConfig& parallel) {
  const int64_t shard = parallel.shard;
  const auto fits = [&](int64_t n) {
    const int64_t ranks = n * parallel.tensor * parallel.context;
    return n == 0 || (parallel.data % n == 0 && (ranks <= parallel.expert ||
                                                 ranks % parallel.expert == 0));
  };
  if (fits(shard)) return absl::OkStatus();
  // All of them fit.
  int64_t below = std::min(shard, parallel.data), above = shard + 1;
  while (!fits(below)) --below;
  while (above < parallel.data && !fits(above)) ++above;
  const std::string key = absl::StrFormat("stage[%d].parallel.shard", i);
  return ErrorAt(
      recipe, key, key,
      absl::StrFormat(
          "%d does not divide the %d data ranks%s; use shard %s", shard,
          parallel.data,
          parallel.expert > 1
              ? absl::StrFormat(" into parts of which each has as "
                                "many of the %d expert ranks",
                                parallel.expert)
              : "",
          above > parallel.data ? absl::StrCat(below) : Either(below, above)));
}

absl::Status FitStage(const Recipe& recipe, size_t i, int64_t world_size,
                      bool planned, ParallelConfig& parallel) {
  const std::string subject = absl::StrFormat("stage[%d].parallel", i);
  const std::string key = subject + ".data";
  const std::string there =
      planned           ? absl::StrFormat("the plan is for %d", world_size)
      : world_size == 1 ? "one process was started"
                        : absl::StrFormat("mpirun started %d", world_size);
  const std::string_view mend =
      planned ? "give --ranks" : "start it with mpirun -np";
  if (parallel.data == 0) {
    ParallelConfig one = parallel;
    one.data = 1;
    const int64_t below = world_size / one.ranks() * one.ranks();
    if (below != world_size) {
      return ErrorAt(
          recipe, key, subject,
          absl::StrFormat("%s is %d ranks or a multiple, but %s; %s %s",
                          Product(one), one.ranks(), there, mend,
                          Either(below, below + one.ranks())));
    }
    parallel.data = world_size / one.ranks();
  }
  const int64_t ranks = parallel.ranks();
  if (ranks == world_size) {
    DELINK_RETURN_IF_ERROR(CheckExpert(recipe, i, parallel));
    return CheckShard(recipe, i, parallel);
  }
  const bool others = world_size % (ranks / parallel.data) == 0;
  return ErrorAt(
      recipe, key, subject,
      absl::StrFormat("%s = %d rank%s, but %s; %s %d%s", Product(parallel),
                      ranks, ranks == 1 ? "" : "s", there, mend, ranks,
                      others ? ", or leave parallel.data out" : ""));
}

// An interleaved pipeline works in groups of as many micro-batches as it has
// stages. At a switch, the old stage also runs a batch of the next stage, on
// its own ranks if the mesh is the same, unless the old stage is before
// `first`.
std::optional<size_t> InterleavedAt(const Recipe& recipe, size_t i,
                                    size_t first) {
  for (const size_t j : {i, i > first ? i - 1 : i}) {
    const ParallelConfig& parallel = recipe.stages[j].parallel;
    if (!SameMesh(parallel, recipe.stages[i].parallel)) continue;
    if (parallel.pipeline > 1 &&
        parallel.schedule == PipelineSchedule::kInterleaved) {
      return j;
    }
  }
  return std::nullopt;
}

absl::Status CheckInterleaved(const Recipe& recipe, size_t i, size_t first) {
  const std::optional<size_t> at = InterleavedAt(recipe, i, first);
  if (!at) return absl::OkStatus();
  const ParallelConfig& parallel = recipe.stages[*at].parallel;
  const int64_t pipeline = parallel.pipeline;
  const int64_t count = recipe.Accumulation(i);
  if (count % pipeline == 0) return absl::OkStatus();
  const int64_t batch = recipe.Batch(i);
  const int64_t unit = batch / count * pipeline;
  const int64_t below = batch / unit * unit;
  const std::string key = BatchKey(recipe, i);
  std::string smaller;
  for (int64_t micro = recipe.MicroBatch(i) - 1; micro > 0; --micro) {
    if (batch % (micro * parallel.data * pipeline) != 0) continue;
    smaller = absl::StrFormat(", or micro_batch %d", micro);
    break;
  }
  const std::string who =
      *at == i ? "schedule \"interleaved\""
               : absl::StrFormat(
                     "at the switch stage[%d] evaluates a batch of stage[%d], "
                     "and its schedule \"interleaved\"",
                     *at, i);
  return ErrorAt(
      recipe, key, key,
      absl::StrFormat("%d is %d micro-batch%s a rank (data %d x micro_batch "
                      "%d), but %s needs a multiple of pipeline %d (stage[%d]);"
                      " use %s%s",
                      batch, count, count == 1 ? "" : "es", parallel.data,
                      recipe.MicroBatch(i), who, pipeline, *at,
                      Either(below, below + unit), smaller));
}

// The default number of probes in a window of gradient agreement.
constexpr int64_t kDefaultProbes = 10;

// The largest micro-batch that is chosen by default. A pipeline gets four times
// as many micro-batches as ranks, if the batch allows; it is then idle for a
// fifth of the time.
int64_t MostAtOnce(const ParallelConfig& parallel, int64_t local) {
  constexpr int64_t kMost = 8, kByRanks = 4;
  if (parallel.pipeline == 1) return kMost;
  const int64_t enough = local / (kByRanks * parallel.pipeline);
  return std::clamp(enough, int64_t{1}, kMost);
}

// With sequence parallelism, all tensor ranks must have equally many rows.
absl::Status CheckRows(const Recipe& recipe, size_t i) {
  const ParallelConfig& parallel = recipe.stages[i].parallel;
  const int64_t tensor = parallel.tensor;
  const int64_t length = recipe.data.seq / parallel.context;
  const int64_t rows = recipe.MicroBatch(i) * length;
  if (!parallel.sequence.value_or(false) || rows % tensor == 0) {
    return absl::OkStatus();
  }
  const auto divides = [&](int64_t by) {
    return rows % by == 0 && recipe.model->CutsInto(by);
  };
  const std::string key = absl::StrFormat("stage[%d].parallel.tensor", i);
  return ErrorAt(
      recipe, key, key,
      absl::StrFormat("%d does not divide the %d tokens of a rank's "
                      "micro-batch (micro_batch %d x seq %d / context %d), "
                      "which sequence = true cuts; use tensor %s, a "
                      "micro_batch that is a multiple of %d, or sequence = "
                      "false",
                      tensor, rows, recipe.MicroBatch(i), recipe.data.seq,
                      parallel.context, Nearest(tensor, rows, divides),
                      tensor / std::gcd(tensor, length)));
}

int64_t LargestDivisor(int64_t n, int64_t limit) {
  for (int64_t d = std::min(n, limit); d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

// A divisor of the batches of all stages, including those that are over: a
// recipe must be valid as a whole.
int64_t ChosenMicroBatch(const Recipe& fitted, size_t first) {
  int64_t share = 0, most = INT64_MAX;
  for (size_t i = 0; i < fitted.stages.size(); ++i) {
    const Stage& stage = fitted.stages[i];
    int64_t local = fitted.Batch(i) / stage.parallel.data;
    if (i >= first) {
      most = std::min(most, MostAtOnce(stage.parallel, local));
      const int64_t pipeline = stage.parallel.pipeline;
      const bool rounds = InterleavedAt(fitted, i, first).has_value();
      if (rounds && local % pipeline == 0) local /= pipeline;
    }
    share = std::gcd(share, stage.micro_batch.value_or(local));
  }
  return LargestDivisor(share, most);
}

}  // namespace

absl::Status ErrorAt(const Recipe& recipe, std::string_view key,
                     std::string_view subject, std::string_view message) {
  std::string place;
  if (recipe.positions != nullptr) {
    place = absl::StrCat(recipe.positions->Find(key).ToString(), ": ");
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("%s%s: %s", place, subject, message));
}

Mesh MeshOf(const ParallelConfig& parallel) {
  DELINK_CHECK_GE(parallel.ranks(), 1) << "CheckWorld comes first";
  Mesh mesh{.tensor = static_cast<int>(parallel.tensor),
            .context = static_cast<int>(parallel.context),
            .data = static_cast<int>(parallel.data),
            .pipeline = static_cast<int>(parallel.pipeline),
            .expert = static_cast<int>(parallel.expert)};
  DELINK_CHECK_EQ(parallel.rank_order.size(), mesh.order.size());
  std::copy(parallel.rank_order.begin(), parallel.rank_order.end(),
            mesh.order.begin());
  return mesh;
}

bool SameMesh(const ParallelConfig& a, const ParallelConfig& b) {
  const auto once = [](const ParallelConfig& of) {
    return of.expert > 1 && of.dispatch == ExpertDispatch::kDeduplicated;
  };
  const bool rows = a.tensor == 1 || a.sequence == b.sequence;
  return a.tensor == b.tensor && a.context == b.context &&
         a.pipeline == b.pipeline && a.expert == b.expert &&
         a.rank_order == b.rank_order && rows && once(a) == once(b);
}

int64_t SpanSteps(const Span& span, int64_t steps) {
  if (const int64_t* count = std::get_if<int64_t>(&span)) return *count;
  return std::llround(std::get<double>(span) * static_cast<double>(steps));
}

std::vector<DataSource> DataConfig::Sources() const {
  if (sources.empty()) {
    return {{.name = "data",
             .train = train,
             .validation = validation,
             .repeat = repeat}};
  }
  std::vector<DataSource> all = sources;
  for (DataSource& source : all) source.repeat = source.repeat.value_or(repeat);
  return all;
}

int64_t Recipe::Batch(size_t stage) const {
  return stages.at(stage).batch.value_or(data.batch);
}

double Recipe::ExpertRoom(size_t stage) const {
  const ParallelConfig& parallel = stages.at(stage).parallel;
  const auto ranks = static_cast<double>(parallel.expert);
  const double room = *parallel.expert_room;
  // Each rank gathers the tokens of all, or sends a token to `choices` of them
  // with that room.
  const bool less = room * static_cast<double>(model->choices()) < ranks;
  const bool gathers = parallel.dispatch == ExpertDispatch::kGather ||
                       (parallel.dispatch == ExpertDispatch::kAuto && !less);
  return parallel.expert == 1 || gathers ? 0 : room;
}

int64_t Recipe::MicroBatch(size_t stage) const {
  return stages.at(stage).micro_batch.value_or(run.micro_batch);
}

std::vector<double> Recipe::Weights(size_t stage) const {
  const std::map<std::string, double>& blend = stages.at(stage).blend;
  std::vector<double> weights;
  for (const DataSource& source : data.Sources()) {
    const auto it = blend.find(source.name);
    weights.push_back(blend.empty()       ? source.weight
                      : it == blend.end() ? 0.0
                                          : it->second);
  }
  return weights;
}

Recompute Recipe::RecomputeOf(size_t stage) const {
  return stages.at(stage).recompute.value_or(run.recompute);
}

int64_t Recipe::Depth(size_t stage) const {
  return stages.at(stage).depth.value_or(model->layers);
}

std::vector<int> Recipe::Visited(size_t stage) const {
  return VisitedBlocks(stages.at(stage).visit, Depth(stage), model->layers);
}

int64_t Recipe::ProbeEvery(size_t stage) const {
  if (run.probe_every > 0 || !stages.at(stage).until.gradient) {
    return run.probe_every;
  }
  return std::max<int64_t>(1, stages[stage].until.window / kDefaultProbes);
}

int64_t Recipe::StageEnd(size_t stage, const StageMark& begin) const {
  const Until& until = stages.at(stage).until;
  if (until.fraction) return SpanSteps(*until.fraction, schedule.steps);
  if (until.tokens) {
    const int64_t left = *until.tokens - begin.samples * data.seq;
    const int64_t step = StepTokens(stage);
    return begin.step + std::max<int64_t>(0, (left + step - 1) / step);
  }
  return until.steps.value_or(schedule.steps);
}

StageMark Recipe::PlannedBegin(size_t stage) const {
  StageMark mark;
  for (size_t i = 0; i < stage; ++i) {
    const int64_t end = std::max(mark.step, StageEnd(i, mark));
    mark.samples += (end - mark.step) * Batch(i);
    mark.step = end;
  }
  return mark;
}

int64_t Recipe::Accumulation(size_t stage) const {
  const int64_t at_once = stages.at(stage).parallel.data * MicroBatch(stage);
  DELINK_CHECK(at_once > 0 && Batch(stage) % at_once == 0)
      << "CheckWorld comes first";
  return Batch(stage) / at_once;
}

Recipe Recipe::WithVocab(int64_t vocab) const {
  Recipe result = *this;
  std::unique_ptr<ModelConfig> changed = model->Clone();
  changed->vocab = vocab;
  result.model = std::move(changed);
  return result;
}

absl::Status CheckBatch(const Recipe& recipe) {
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    const int64_t batch = recipe.Batch(i);
    const int64_t ranks = std::max<int64_t>(1, recipe.stages[i].parallel.data);
    const int64_t micro = std::max<int64_t>(1, recipe.MicroBatch(i));
    if (batch % (ranks * micro) == 0) continue;
    const int64_t unit = ranks * micro;
    const int64_t below = batch / unit * unit;
    const std::string key = BatchKey(recipe, i);
    return ErrorAt(recipe, key, key,
                   absl::StrFormat("%d is not a multiple of %d = data %d x "
                                   "micro_batch %d (stage[%d]); use %s",
                                   batch, unit, ranks, micro, i,
                                   Either(below, below + unit)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Recipe> CheckWorld(const Recipe& recipe, int64_t world_size,
                                  bool planned, size_t first) {
  DELINK_CHECK(world_size >= 1);
  Recipe fitted = recipe;
  for (size_t i = 0; i < fitted.stages.size(); ++i) {
    ParallelConfig& parallel = fitted.stages[i].parallel;
    if (i < first) {
      parallel.data = std::max<int64_t>(1, parallel.data);
      continue;
    }
    DELINK_RETURN_IF_ERROR(FitStage(recipe, i, world_size, planned, parallel));
  }
  DELINK_RETURN_IF_ERROR(CheckBatch(fitted));
  if (fitted.run.micro_batch == 0) {
    fitted.run.micro_batch = ChosenMicroBatch(fitted, first);
  }
  for (size_t i = first; i < fitted.stages.size(); ++i) {
    DELINK_RETURN_IF_ERROR(CheckInterleaved(fitted, i, first));
    DELINK_RETURN_IF_ERROR(CheckRows(fitted, i));
  }
  return fitted;
}

}  // namespace delink
