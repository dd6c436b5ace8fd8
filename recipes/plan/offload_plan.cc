#include "recipes/plan/offload_plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/format_bytes.h"
#include "framework/base/machine_memory.h"
#include "framework/base/status_macros.h"
#include "framework/step/plan/memory.h"
#include "offload/plan/place.h"
#include "recipes/plan/lanes_report.h"
#include "recipes/plan/pipeline_report.h"
#include "recipes/run/dry_run/find_homes.h"
#include "recipes/run/stage/stage_layout.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

std::vector<SlabHomes> HomesOf(const ParamStore& store) {
  std::vector<SlabHomes> all;
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    SlabHomes homes{.slab = store.slab(slab).name,
                    .row = store.placement(slab)};
    const auto add = [&](PlaneSet set, const PlanePlacement& place) {
      const bool host = place.tier == Tier::kHost;
      for (const Plane plane : PlanesOf(store, set)) {
        const int64_t bytes = store.bytes(slab, plane);
        if (host) homes.host += bytes;
        if (!host || place.resident) homes.device += bytes;
      }
    };
    add(PlaneSet::kWeight, homes.row.weight);
    add(PlaneSet::kGradient, homes.row.gradient);
    add(PlaneSet::kState, homes.row.state);
    all.push_back(std::move(homes));
  }
  return all;
}

std::string HomeText(const PlanePlacement& place) {
  if (place.tier != Tier::kHost) return "device";
  return place.resident ? "host, copy" : "host";
}

const char* UpdateText(const PlacementRow& row) {
  return row.update == Tier::kHost ? "host" : "device";
}

// Slabs whose names differ in a number alone, and nothing else.
struct Alike {
  const SlabHomes* first;
  std::vector<int> numbers;
};

std::vector<Alike> Group(const std::vector<SlabHomes>& slabs) {
  using Key = std::tuple<std::string, std::string, std::string, std::string,
                         std::string, int64_t, int64_t>;
  std::map<Key, size_t> places;
  std::vector<Alike> groups;
  for (const SlabHomes& of : slabs) {
    std::string name = of.slab;
    const size_t begin = name.find('/') + 1, end = name.find('/', begin);
    int number = -1;
    const bool numbered =
        begin > 0 && end != std::string::npos &&
        absl::SimpleAtoi(name.substr(begin, end - begin), &number);
    if (numbered) name.replace(begin, end - begin, "#");
    const Key key(name, HomeText(of.row.weight), HomeText(of.row.gradient),
                  HomeText(of.row.state), UpdateText(of.row), of.device,
                  of.host);
    const auto [at, fresh] = places.try_emplace(key, groups.size());
    if (fresh) groups.push_back({.first = &of, .numbers = {}});
    if (numbered) groups[at->second].numbers.push_back(number);
  }
  return groups;
}

std::string NameOf(const Alike& group) {
  const std::string& name = group.first->slab;
  if (group.numbers.size() < 2) return name;
  const size_t begin = name.find('/') + 1;
  return absl::StrCat(name.substr(0, begin), NumbersText(group.numbers),
                      name.substr(name.find('/', begin)));
}

std::string SlabTable(const std::vector<SlabHomes>& slabs) {
  const std::vector<Alike> groups = Group(slabs);
  size_t width = 4;
  for (const Alike& group : groups) {
    width = std::max(width, NameOf(group).size());
  }
  const auto name_width = static_cast<int>(width);
  std::string text = absl::StrFormat(
      "  %-*s  %-10s  %-10s  %-6s  %-6s  %10s  %10s\n", name_width, "slab",
      "weights", "gradients", "state", "update", "on device", "on host");
  for (const Alike& group : groups) {
    const SlabHomes& of = *group.first;
    const auto count =
        static_cast<int64_t>(std::max<size_t>(group.numbers.size(), 1));
    absl::StrAppendFormat(
        &text, "  %-*s  %-10s  %-10s  %-6s  %-6s  %10s  %10s\n", name_width,
        NameOf(group), HomeText(of.row.weight), HomeText(of.row.gradient),
        HomeText(of.row.state), UpdateText(of.row),
        FormatBytes(count * of.device), FormatBytes(count * of.host));
  }
  return text;
}

// The blocks of the places that are set.
std::vector<int> BlocksOf(const Layout& layout, const std::vector<bool>& are) {
  std::vector<int> blocks;
  for (size_t place = 0; place < are.size(); ++place) {
    if (are[place]) blocks.push_back(layout.visited()[place] - 1);
  }
  return blocks;
}

std::string UpdaterText(const AutoPlace& place) {
  if (place.host_updates == 0) return "the device updates";
  if (place.host_updates == 1) return "the host updates";
  return absl::StrFormat("the host updates %.3g%%, those needed last",
                         100 * place.host_updates);
}

bool MovesNothing(const AutoPlace& place) {
  return place.state == 0 && place.gradients == 0 && place.weights == 0 &&
         place.activations == 0 && place.ends == 0;
}

// What auto chose, and why.
std::string FoundText(const OffloadPlan& plan) {
  const FoundPlace& found = *plan.found;
  std::string text = "  auto: ";
  if (plan.rules.device || !MovesNothing(found.place)) {
    absl::StrAppend(&text, ToString(found.place), ": ",
                    FormatBytes(found.cost.device), " of a rank's device");
    if (plan.rules.device) {
      absl::StrAppend(&text, ", of a budget of ",
                      FormatBytes(*plan.rules.device));
    }
    if (!MovesNothing(found.place)) {
      absl::StrAppend(&text, "; with all of that on the device ",
                      FormatBytes(found.resident.device));
    }
  } else {
    absl::StrAppend(&text, UpdaterText(found.place));
  }
  text += "\n";
  const bool differs = found.by_device && found.by_host &&
                       found.by_device->seconds != found.by_host->seconds;
  if (differs) {
    absl::StrAppend(
        &text, "  a step takes about ", SecondsText(found.cost.seconds),
        "; if the device updates everything ",
        SecondsText(found.by_device->seconds), ", if the host does ",
        SecondsText(found.by_host->seconds), "\n");
  }
  return text;
}

Json FoundJson(const FoundPlace& found) {
  const auto cost = [](const PlaceCost& of) {
    return Json{{"device_bytes", of.device},
                {"host_bytes", of.host},
                {"step_seconds", of.seconds}};
  };
  Json json{{"state", found.place.state},
            {"gradients", found.place.gradients},
            {"weights", found.place.weights},
            {"activations", found.place.activations},
            {"recompute", found.place.recompute},
            {"ends", found.place.ends},
            {"host_updates", found.place.host_updates},
            {"ahead", found.place.ahead},
            {"cost", cost(found.cost)},
            {"resident", cost(found.resident)}};
  if (found.by_device) json["by_device"] = cost(*found.by_device);
  if (found.by_host) json["by_host"] = cost(*found.by_host);
  return json;
}

}  // namespace

absl::StatusOr<OffloadPlan> PlanOffload(ImaginedStage& first,
                                        const KnownRates& rates,
                                        std::optional<FoundPlace> found) {
  const StageRun& stage = first.stage();
  const Layout& layout = stage.store().layout();
  const OffloadRules& rules = stage.stage().offload;
  const BlockActivations activations =
      PlaceActivations(layout, rules, FoundOf(first.env(), stage.index()));
  OffloadPlan plan{.stored = BlocksOf(layout, activations.stored),
                   .again = BlocksOf(layout, activations.recomputed),
                   .rates = rates.source,
                   .rules = rules,
                   .found = std::move(found)};
  DELINK_RETURN_IF_ERROR(
      ForEachHeaviest(first, [&](const ImaginedStage& of, const HeaviestRank&) {
        plan.slabs.push_back(HomesOf(of.stage().store()));
        return absl::OkStatus();
      }));
  DELINK_ASSIGN_OR_RETURN(ForeseenStage foreseen,
                          ForeseeStage(first, rates, kTimelineColumns));
  plan.machine_host = foreseen.cost.host;
  plan.step = std::move(foreseen.step);
  return plan;
}

std::string OffloadText(const OffloadPlan& plan) {
  std::string text;
  if (plan.found) text += FoundText(plan);
  absl::StrAppend(&text, "  host memory of a machine ",
                  FormatBytes(plan.machine_host));
  if (plan.rules.host) {
    absl::StrAppend(&text, " of ", FormatBytes(*plan.rules.host));
  }
  const int64_t there = plan.host_memory.value_or(MachineMemory());
  if (std::max(plan.machine_host, plan.rules.host.value_or(0)) > there) {
    absl::StrAppend(&text,
                    plan.host_memory ? " (a node has " : " (this machine has ",
                    FormatBytes(there), ")");
  }
  const ForeseenStep& step = plan.step;
  absl::StrAppend(
      &text, "; a step takes about ", SecondsText(step.seconds), ", bound by ",
      step.BoundBy(), ": compute ", SecondsText(step.Busy(Lane::kCompute)),
      ", bus to the device ", SecondsText(step.Busy(Lane::kIn)),
      ", to the host ", SecondsText(step.Busy(Lane::kOut)),
      ", late updates of the device ", SecondsText(step.Busy(Lane::kUpdates)),
      ", of the host ", SecondsText(step.Busy(Lane::kHost)),
      "\n  rates: ", plan.rates, "\n");
  for (const RankLanes& rank : step.ranks) {
    text += LanesText(rank, step.seconds);
  }
  if (!plan.stored.empty()) {
    absl::StrAppend(&text, "  activations of blocks/", NumbersText(plan.stored),
                    " are copied to the host\n");
  }
  if (!plan.again.empty()) {
    absl::StrAppend(&text, "  blocks/", NumbersText(plan.again),
                    " are recomputed in backward\n");
  }
  for (size_t s = 0; s < plan.slabs.size(); ++s) {
    if (plan.slabs.size() > 1) {
      absl::StrAppend(&text, "  pipeline stage ", s, "\n");
    }
    text += SlabTable(plan.slabs[s]);
  }
  return text;
}

nlohmann::ordered_json ToJson(const OffloadPlan& plan) {
  Json slabs = Json::array();
  for (size_t s = 0; s < plan.slabs.size(); ++s) {
    for (const SlabHomes& of : plan.slabs[s]) {
      slabs.push_back({{"pipeline_stage", s},
                       {"slab", of.slab},
                       {"weights", HomeText(of.row.weight)},
                       {"gradients", HomeText(of.row.gradient)},
                       {"state", HomeText(of.row.state)},
                       {"update", UpdateText(of.row)},
                       {"device_bytes", of.device},
                       {"host_bytes", of.host}});
    }
  }
  Json json{{"machine_host_bytes", plan.machine_host},
            {"stored_blocks", plan.stored},
            {"recomputed_blocks", plan.again},
            {"step_seconds", plan.step.seconds},
            {"bound_by", plan.step.BoundBy()},
            {"lane_seconds",
             {{"compute", plan.step.Busy(Lane::kCompute)},
              {"in", plan.step.Busy(Lane::kIn)},
              {"out", plan.step.Busy(Lane::kOut)},
              {"updates", plan.step.Busy(Lane::kUpdates)},
              {"host", plan.step.Busy(Lane::kHost)}}},
            {"lanes", LanesJson(plan.step.ranks)},
            {"rates", plan.rates}};
  if (plan.rules.device) json["device_budget"] = *plan.rules.device;
  if (plan.rules.host) json["host_budget"] = *plan.rules.host;
  if (plan.found) json["auto"] = FoundJson(*plan.found);
  json["slabs"] = std::move(slabs);
  return json;
}

}  // namespace delink
