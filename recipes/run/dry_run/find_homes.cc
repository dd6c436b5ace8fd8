#include "recipes/run/dry_run/find_homes.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/format_bytes.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "layers/kernels/cpu/threads.h"
#include "offload/plan/place.h"
#include "recipes/run/dry_run/switch_memory.h"
#include "recipes/run/stage/stage_layout.h"

namespace delink {
namespace {

// By rank, the planes of the stage before; none: `index` is the first.
absl::StatusOr<std::vector<PlaneBytes>> PlanesBefore(const RunEnv& env,
                                                     size_t first,
                                                     size_t index) {
  if (index == first) return std::vector<PlaneBytes>();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> stage,
                          ImaginedStage::Create(env, index - 1, 0));
  return PlanesByRank(stage->stage().store());
}

// The sum over the ranks of the machine that takes most.
int64_t MostOfMachine(const RunEnv& env, const std::vector<int64_t>& by_rank) {
  const auto ranks = static_cast<int>(by_rank.size());
  const std::vector<int> nodes = env.NodesOfRanks();
  std::map<int, int64_t> bytes;
  for (int rank = 0; rank < ranks; ++rank) {
    bytes[At(nodes, rank)] += At(by_rank, rank);
  }
  int64_t most = 0;
  for (const auto& [node, of] : bytes) most = std::max(most, of);
  return most;
}

// The same, if each rank takes the most of its pipeline stage.
int64_t MostOfMachine(const Mesh& mesh, const RunEnv& env,
                      const std::vector<int64_t>& by_stage) {
  std::vector<int64_t> by_rank;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    by_rank.push_back(At(by_stage, mesh.PlaceOf(rank)[Axis::kPipeline]));
  }
  return MostOfMachine(env, by_rank);
}

// The ranks on the machine of this one.
int64_t RanksHere(const RunEnv& env) {
  const std::vector<int> nodes = env.NodesOfRanks();
  return std::ranges::count(nodes, At(nodes, env.world->rank()));
}

// The part of the rank of `env` of its machine's rates while all ranks work.
offload::StepRates OfOneRank(const RunEnv& env, offload::StepRates rates) {
  const auto here = static_cast<double>(RanksHere(env));
  rates.host_memory /= here;
  if (IsCuda(env.device->kind())) return rates;
  rates.flops /= here;
  rates.device_memory /= here;
  rates.to_device /= here;
  rates.to_host /= here;
  return rates;
}

// A placement that is tried.
struct Tried {
  PlaceCost cost;
  PlaceCost step;          // without the switch
  SwitchMemory at_switch;  // each for the rank that has most
};

// `before`: by rank, the planes of the stage before, where there is a switch.
absl::StatusOr<Tried> Try(const RunEnv& env, size_t index,
                          const KnownRates& rates,
                          const std::vector<PlaneBytes>& before,
                          const AutoPlace& place) {
  RunEnv tried = env;
  tried.more_room = 2;
  tried.homes.resize(env.recipe->stages.size());
  tried.homes[index] = place;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> first,
                          ImaginedStage::Create(tried, index, 0));
  Tried result;
  DELINK_ASSIGN_OR_RETURN(const ForeseenStage foreseen,
                          ForeseeStage(*first, rates));
  result.step = foreseen.cost;
  result.cost = result.step;
  if (before.empty()) return result;
  DELINK_ASSIGN_OR_RETURN(const std::vector<SwitchMemory> by_rank,
                          SwitchByRank(*first, before));
  std::vector<int64_t> hosts;
  for (const SwitchMemory& of : by_rank) {
    hosts.push_back(of.most().host);
    result.at_switch = {
        .planes = Most(result.at_switch.planes, of.planes),
        .laid_out = Most(result.at_switch.laid_out, of.laid_out)};
  }
  PlaceCost& cost = result.cost;
  cost.device = std::max(cost.device, result.at_switch.most().device);
  cost.host = std::max(cost.host, MostOfMachine(first->env(), hosts));
  return result;
}

// Where an open update may run. Muon's products would differ in bits between a
// GPU and the host, and the host does not exchange.
std::vector<Tier> UpdatersOf(const RunEnv& env, size_t index) {
  const Recipe& recipe = *env.recipe;
  const bool together = recipe.stages[index].parallel.tensor > 1 &&
                        env.optimizer->whole_tensors() != WholeTensors::kNone;
  const bool products = IsCuda(env.device->kind()) &&
                        recipe.optimizer.kind == OptimizerConfig::Kind::kMuon;
  if (together || products) return {Tier::kDevice};
  return {Tier::kDevice, Tier::kHost};
}

// Whether blocks may be recomputed that the recipe stores.
bool MayRecompute(const RunEnv& env, size_t index) {
  return env.recipe->RecomputeOf(index) == Recompute::kNormActivation;
}

// What would make the stage fit its budgets.
std::string DeviceKnobs(const Recipe& recipe, size_t index) {
  const OffloadWishes& all = recipe.stages[index].offload.all;
  const auto fixed = [](const std::optional<Home>& wish) {
    return wish.has_value() && *wish != Home::kAuto;
  };
  std::string knobs = "raise it";
  if (fixed(all.weights) || fixed(all.gradients) || fixed(all.state) ||
      fixed(all.activations)) {
    absl::StrAppend(&knobs,
                    ", leave offload.weights, gradients, state and activations "
                    "to \"auto\"");
  }
  if (recipe.MicroBatch(index) > 1) {
    absl::StrAppend(&knobs, ", use a smaller micro_batch");
  }
  if (recipe.RecomputeOf(index) == Recompute::kNone) {
    absl::StrAppend(&knobs, ", recompute = \"norm+activation\"");
  }
  return knobs + " or use more ranks (stage.parallel)";
}

// The error if the old stage takes too much: its planes, or all of its memory
// in the layout of this stage.
absl::Status SwitchTooLarge(const Recipe& recipe, size_t index,
                            const Tried& tried, const PlaneBytes& before) {
  const OffloadRules& rules = recipe.stages[index].offload;
  const bool device = rules.device && tried.cost.device > *rules.device;
  const auto of = [device](const PlaneBytes& bytes) {
    return device ? bytes.device : bytes.host;
  };
  const int64_t budget = device ? *rules.device : *rules.host;
  const int64_t taken = device ? tried.cost.device : tried.cost.host;
  const bool laid_out =
      of(tried.at_switch.laid_out) > of(tried.at_switch.planes);
  const std::string key =
      absl::StrCat("stage[", index, "].offload.", device ? "device" : "host");
  const auto [least, most] = FormatBytesApart(budget, taken);
  std::string message = absl::StrCat(
      least, device ? "" : " of a machine", ", but the switch takes ", most,
      device ? " of a rank's device, " : ", ", FormatBytes(taken - budget),
      " too much: stage ", recipe.stages[index - 1].name);
  if (laid_out) {
    absl::StrAppend(&message, " is then evaluated in this stage's layout; ",
                    DeviceKnobs(recipe, index), ", or keep ");
  } else {
    absl::StrAppend(&message, " has ", FormatBytes(of(before)),
                    device ? "" : " a rank",
                    " there until it is over; raise it or keep ");
  }
  absl::StrAppend(
      &message,
      device ? "some of that on the host" : "more of that on the device",
      " (stage[", index - 1, "].offload: ",
      device ? "a budget, or state = \"host\")"
             : "weights, gradients, state, resident)");
  return ErrorAt(recipe, key, key, message);
}

// `before`: for each tier, the most that a rank has of the old stage. `zero`:
// ZeroThatFits.
absl::Status TooLarge(const RunEnv& env, size_t index, const Tried& tried,
                      const PlaneBytes& before, const std::string& zero) {
  const Recipe& recipe = *env.recipe;
  const OffloadRules& rules = recipe.stages[index].offload;
  const PlaceCost& cost = tried.cost;
  const bool device = rules.device && cost.device > *rules.device;
  if (device ? tried.step.device <= *rules.device
             : tried.step.host <= *rules.host) {
    return SwitchTooLarge(recipe, index, tried, before);
  }
  const std::string key = absl::StrCat("stage[", index, "].offload.");
  if (device) {
    const auto [budget, taken] = FormatBytesApart(*rules.device, cost.device);
    return ErrorAt(
        recipe, key + "device", key + "device",
        absl::StrCat(budget,
                     ", but even with everything host-resident that "
                     "can be, a rank takes ",
                     taken, " of its device's memory, ",
                     FormatBytes(cost.device - *rules.device), " too much; ",
                     DeviceKnobs(recipe, index), zero));
  }
  const auto [budget, taken] = FormatBytesApart(*rules.host, cost.host);
  return ErrorAt(
      recipe, key + "host", key + "host",
      absl::StrCat(
          budget, " of a machine, but ", taken, " must be host-resident, ",
          FormatBytes(cost.host - *rules.host), " too much; raise it, ",
          rules.device ? "raise offload.device"
                       : "keep more on the device (offload.weights, gradients, "
                         "state, resident)",
          " or use fewer ranks a machine"));
}

// Of the budgets of stage `index`; before: PlanesBefore.
absl::StatusOr<FoundPlace> Search(const RunEnv& env, size_t index,
                                  const KnownRates& rates,
                                  const std::vector<PlaneBytes>& before) {
  const OffloadRules& rules = env.recipe->stages[index].offload;
  DELINK_ASSIGN_OR_RETURN(const SharingMap sharing, SharingOf(env, index));
  return FindPlace({.device = rules.device,
                    .host = rules.host,
                    .updates = UpdatersOf(env, index),
                    .recompute = MayRecompute(env, index)},
                   BlockSlabs(LayoutOf(env, index, sharing)),
                   [&](const AutoPlace& place) -> absl::StatusOr<PlaceCost> {
                     DELINK_ASSIGN_OR_RETURN(
                         const Tried tried,
                         Try(env, index, rates, before, place));
                     return tried.cost;
                   });
}

// The same; without budgets, the place that the recipe says.
absl::StatusOr<FoundPlace> PlaceOf(const RunEnv& env, size_t first,
                                   size_t index, const KnownRates& rates) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<PlaneBytes> before,
                          PlanesBefore(env, first, index));
  if (env.recipe->stages[index].offload.budgeted()) {
    return Search(env, index, rates, before);
  }
  DELINK_ASSIGN_OR_RETURN(const Tried tried,
                          Try(env, index, rates, before, {}));
  return FoundPlace{.cost = tried.cost, .fits = true};
}

absl::Status DecideHomes(const RunEnv& env, size_t first,
                         std::vector<AutoPlace>* homes) {
  const KnownRates rates = RatesFor(*env.device, *env.recipe);
  RunEnv decided = env;
  for (size_t i = first; i < env.recipe->stages.size(); ++i) {
    const Stage& stage = env.recipe->stages[i];
    if (!stage.offload.budgeted()) continue;
    decided.homes = *homes;
    DELINK_ASSIGN_OR_RETURN(const FoundPlace found,
                            FindHomes(decided, first, i, rates));
    (*homes)[i] = found.place;
    DELINK_LOG(kInfo) << "stage " << stage.name << " has "
                      << ToString(found.place) << ": "
                      << FormatBytes(found.cost.device)
                      << " of device memory per rank and "
                      << FormatBytes(found.cost.host)
                      << " of host memory per machine";
  }
  return absl::OkStatus();
}

// A placement as numbers, for ranks to exchange.
constexpr size_t kNumbers = 8;

void ToNumbers(const AutoPlace& place, double* to) {
  const double numbers[kNumbers] = {
      place.state,        place.gradients,
      place.weights,      place.ends,
      place.recompute,    place.activations,
      place.host_updates, static_cast<double>(place.ahead)};
  std::copy_n(numbers, kNumbers, to);
}

AutoPlace FromNumbers(const double* from) {
  return {.state = from[0],
          .gradients = from[1],
          .weights = from[2],
          .activations = from[5],
          .recompute = from[4],
          .ends = from[3],
          .host_updates = from[6],
          .ahead = static_cast<int32_t>(from[7])};
}

}  // namespace

std::vector<offload::WorkSeconds> StepSeconds(const ImaginedStage& imagined,
                                              const KnownRates& rates) {
  const RunEnv& env = imagined.env();
  const StageRun& stage = imagined.stage();
  const Executor& executor = stage.executor();
  std::optional<offload::KernelPrices> prices;
  if (rates.machine != nullptr) {
    prices.emplace(*rates.machine, RanksHere(env), cpu::MaxThreads());
  }
  return SecondsOf({.program = executor.program(),
                    .store = stage.store(),
                    .memory = executor.memory(),
                    .layers = executor.layers(),
                    .rates = OfOneRank(env, rates.rates),
                    .prices = prices ? &*prices : nullptr,
                    .analysis = &executor.analysis()});
}

absl::StatusOr<ForeseenStage> ForeseeStage(ImaginedStage& first,
                                           const KnownRates& rates,
                                           int columns) {
  ForeseenStage foreseen;
  PlaceCost& cost = foreseen.cost;
  std::vector<int64_t> hosts;
  std::vector<TimedRank> ranks;
  const std::vector<Program>& programs =
      first.env().shared->plan->Of(PassKind::kStep);
  DELINK_RETURN_IF_ERROR(ForEachHeaviest(
      first, [&](const ImaginedStage& of, const HeaviestRank& heaviest) {
        const StageRun& stage = of.stage();
        const Executor& executor = stage.executor();
        cost.device = std::max(cost.device, stage.account().total());
        hosts.push_back(heaviest.host);
        ranks.push_back({.rank = stage.store().rank(),
                         .program = &At(programs, executor.program().stage),
                         .seconds = StepSeconds(of, rates)});
        return absl::OkStatus();
      }));
  const Mesh& mesh = first.stage().store().layout().mesh();
  cost.host = MostOfMachine(mesh, first.env(), hosts);
  DELINK_ASSIGN_OR_RETURN(foreseen.step, Foresee(ranks, columns));
  cost.seconds = foreseen.step.seconds;
  return foreseen;
}

absl::StatusOr<FoundPlace> FindHomes(const RunEnv& env, size_t first,
                                     size_t index, const KnownRates& rates) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<PlaneBytes> before,
                          PlanesBefore(env, first, index));
  DELINK_ASSIGN_OR_RETURN(const FoundPlace found,
                          Search(env, index, rates, before));
  if (found.fits) return found;
  DELINK_ASSIGN_OR_RETURN(const Tried tried,
                          Try(env, index, rates, before, found.place));
  PlaneBytes most;
  for (const PlaneBytes& of : before) most = Most(most, of);
  const OffloadRules& rules = env.recipe->stages[index].offload;
  return TooLarge(env, index, tried, most,
                  rules.device
                      ? ZeroThatFits(env, first, index, *rules.device, rates)
                      : "");
}

Recipe WithZero(Recipe recipe, size_t index, int64_t zero) {
  ParallelConfig& parallel = recipe.stages[index].parallel;
  parallel.zero = zero;
  if (zero < 2) parallel.reduce = GradientReduction::kStep;
  if (zero < 3) parallel.shard = 0;
  return recipe;
}

std::string ZeroThatFits(const RunEnv& env, size_t first, size_t index,
                         int64_t device, const KnownRates& rates) {
  const ParallelConfig& parallel = env.recipe->stages[index].parallel;
  for (int64_t zero = parallel.zero + 1; zero <= 3; ++zero) {
    const Recipe recipe = WithZero(*env.recipe, index, zero);
    RunEnv other = env;
    other.recipe = &recipe;
    other.shared = nullptr;
    const absl::StatusOr<FoundPlace> found =
        PlaceOf(other, first, index, rates);
    if (!found.ok() || !found->fits || found->cost.device > device) continue;
    return absl::StrCat("; zero = ", zero, " (stage[", index,
                        "].parallel) would take ",
                        FormatBytes(found->cost.device),
                        found->place.ahead == 0 ? ", without prefetch" : "");
  }
  return "";
}

absl::StatusOr<std::vector<AutoPlace>> AgreeOnHomes(const RunEnv& env,
                                                    size_t first) {
  const std::vector<Stage>& stages = env.recipe->stages;
  std::vector<AutoPlace> homes(stages.size());
  const bool any = std::ranges::any_of(
      stages, [](const Stage& stage) { return stage.offload.budgeted(); });
  if (!any) return homes;
  Communicator& world = *env.world;
  DELINK_RETURN_IF_ERROR(
      AgreeOnStatus(world, world.rank() == 0 ? DecideHomes(env, first, &homes)
                                             : absl::OkStatus()));
  std::vector<double> numbers(homes.size() * kNumbers);
  for (size_t i = 0; i < homes.size(); ++i) {
    ToNumbers(homes[i], &numbers[i * kNumbers]);
  }
  DELINK_RETURN_IF_ERROR(world
                             .Broadcast(numbers.data(),
                                        static_cast<int64_t>(numbers.size()),
                                        DType::kF64, 0)
                             ->Wait());
  for (size_t i = 0; i < homes.size(); ++i) {
    homes[i] = FromNumbers(&numbers[i * kNumbers]);
  }
  return homes;
}

}  // namespace delink
