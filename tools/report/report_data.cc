#include "tools/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"

namespace delink::report {
namespace {

using Json = nlohmann::ordered_json;

// Rows of a plot; more than its pixels.
constexpr size_t kRows = 3200;
// Numbers of norms, one for each row and layer.
constexpr size_t kNorms = 40000;
// The last loss is the mean of this many steps.
constexpr size_t kLastSteps = 20;

// Seven digits are short and enough for plots.
Json Rounded(double value, int digits = 7) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(absl::StrFormat("%.*g", digits, value).c_str(), nullptr);
}

Json Picked(const std::vector<double>& values,
            const std::vector<size_t>& rows) {
  Json list = Json::array();
  for (const size_t row : rows) list.push_back(Rounded(values[row]));
  return list;
}

// Columns by name, at the kept rows.
Json Picked(const Columns& table, const std::vector<size_t>& rows) {
  Json object = Json::object();
  for (const Columns::Column& column : table.all()) {
    object[column.name] = Picked(column.values, rows);
  }
  return object;
}

Json StepsJson(const Columns& steps) {
  const std::vector<size_t> rows =
      ThinRows(steps, {"loss", "lr", "grad_norm", "tokens_per_s"}, kRows);
  Json object = Picked(steps, rows);
  if (rows.size() == steps.rows()) return object;
  for (const char* name :
       {"loss", "grad_norm", "tokens_per_s", "peak_percent"}) {
    Json& list = object[absl::StrFormat("%s_mean", name)] = Json::array();
    for (const double mean : MeansBetween(steps.Values(name), rows)) {
      list.push_back(Rounded(mean));
    }
  }
  return object;
}

// A list for each layer.
Json LayersJson(const std::vector<std::vector<double>>& norms, size_t layers,
                const std::vector<size_t>& rows) {
  Json list = Json::array();
  for (size_t layer = 0; layer < layers; ++layer) {
    Json values = Json::array();
    for (const size_t row : rows) values.push_back(Rounded(norms[row][layer]));
    list.push_back(std::move(values));
  }
  return list;
}

Json NormsJson(const NormsRecord& norms) {
  const size_t layers = norms.layers.size();
  const std::vector<size_t> rows =
      ThinRows(norms.places, {"sum"}, std::max<size_t>(100, kNorms / layers));
  Json object = Picked(norms.places, rows);
  object.erase("sum");
  object["layers"] = norms.layers;
  object["gradient"] = LayersJson(norms.gradient, layers, rows);
  object["weight"] = LayersJson(norms.weight, layers, rows);
  return object;
}

Json RoutingJson(const RoutingRecord& routing) {
  const size_t layers = routing.layers.size();
  const std::vector<size_t> rows = ThinRows(
      routing.places, {"worst"}, std::max<size_t>(100, kNorms / layers));
  Json object = Picked(routing.places, rows);
  object.erase("worst");
  object["layers"] = routing.layers;
  for (const auto& [name, values] : routing.measures) {
    object[name] = LayersJson(values, layers, rows);
  }
  Json& maps = object["maps"] = Json::array();
  for (const LoadMap& map : routing.maps) {
    Json load = Json::array();
    for (const std::vector<double>& of_layer : map.load) {
      Json& list = load.emplace_back(Json::array());
      for (const double x : of_layer) list.push_back(Rounded(x, 4));
    }
    maps.push_back({{"step", Rounded(map.step)}, {"load", std::move(load)}});
  }
  return object;
}

Json PlaceJson(const Place& at) {
  return {{"step", Rounded(at.step)},
          {"tokens", Rounded(at.tokens)},
          {"seconds", Rounded(at.seconds)},
          {"flops", Rounded(at.flops)}};
}

Json StageJson(const StageRecord& stage) {
  Json bytes = nullptr;
  if (!std::isnan(stage.bytes.total)) {
    bytes = {{"weights", Rounded(stage.bytes.weights)},
             {"gradients", Rounded(stage.bytes.gradients)},
             {"state", Rounded(stage.bytes.state)},
             {"activations", Rounded(stage.bytes.activations)},
             {"copies", Rounded(stage.bytes.copies)},
             {"records", Rounded(stage.bytes.records)},
             {"total", Rounded(stage.bytes.total)}};
  }
  return {{"name", stage.name},
          {"begin", PlaceJson(stage.begin)},
          {"why", stage.why},
          {"depth", Rounded(stage.depth)},
          {"unique_parameters", Rounded(stage.unique_parameters)},
          {"virtual_parameters", Rounded(stage.virtual_parameters)},
          {"loss_before", Rounded(stage.loss_before)},
          {"loss_after", Rounded(stage.loss_after)},
          {"planned_step", Rounded(stage.planned_step)},
          {"measured_step", Rounded(stage.measured_step)},
          {"bytes", std::move(bytes)}};
}

Json StartJson(const StartRecord& start) {
  return {{"at", PlaceJson(start.at)},
          {"time", start.time},
          {"version", start.version},
          {"commit", start.commit},
          {"command", start.command},
          {"processor", start.processor},
          {"cores", Rounded(start.cores)},
          {"ranks", Rounded(start.ranks)},
          {"threads", Rounded(start.threads)},
          {"peak_flops", Rounded(start.peak_flops)}};
}

Json SourceJson(const SourceRecord& source) {
  return {{"name", source.name},
          {"samples", Rounded(source.samples)},
          {"tokens", Rounded(source.tokens)},
          {"epochs", Rounded(source.epochs)}};
}

// From all rows, not only the plotted ones.
Json SummaryJson(const RunRecord& run) {
  const Columns& steps = run.steps;
  const std::vector<double>& validation = run.validations.Values("loss");
  return {
      {"steps", Rounded(Last(steps.Values("step")))},
      {"planned_steps", Rounded(run.planned_steps)},
      {"tokens", Rounded(Last(steps.Values("tokens")))},
      {"seconds", Rounded(std::fmax(Last(steps.Values("seconds")),
                                    Last(run.validations.Values("seconds"))))},
      {"flops", Rounded(Last(steps.Values("flops")))},
      {"loss",
       Rounded(MeanOfLast(steps.Values("loss"), steps.rows(), kLastSteps))},
      {"loss_steps", std::min(kLastSteps, steps.rows())},
      {"validation_loss", Rounded(Last(validation))},
      {"best_validation_loss", Rounded(Least(validation))},
      {"tokens_per_s", Rounded(Median(steps.Values("tokens_per_s")))},
      {"peak_percent", Rounded(Median(steps.Values("peak_percent")))},
      {"skipped_steps", run.skipped_steps},
      {"peak_memory", Rounded(run.peak_memory)}};
}

const char* ToString(RunState state) {
  switch (state) {
    case RunState::kEmpty:
      return "empty";
    case RunState::kRunning:
      return "running";
    case RunState::kDied:
      return "died";
    case RunState::kStopped:
      return "stopped";
    case RunState::kFinished:
      return "finished";
  }
  return "";
}

std::optional<std::string_view> Find(const RunRecord& run,
                                     std::string_view key) {
  for (const auto& [name, value] : run.recipe) {
    if (name == key) return value;
  }
  return std::nullopt;
}

template <typename T>
Json List(const std::vector<T>& items, Json (*to_json)(const T&)) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(to_json(item));
  return list;
}

// Keeps all rows, since validations and probes are few.
Json Few(const Columns& table) {
  std::vector<std::string> keys;
  for (const Columns::Column& column : table.all()) {
    if (column.name.starts_with("loss") || column.name.starts_with("rho")) {
      keys.push_back(column.name);
    }
  }
  return Picked(table, ThinRows(table, keys, kRows));
}

}  // namespace

Json ToJson(const RunRecord& run) {
  return {{"name", run.name},
          {"folder", run.folder},
          {"state", ToString(run.state)},
          {"notes", run.notes},
          {"precision", Find(run, "run.precision").value_or("")},
          {"model", Find(run, "model.kind").value_or("")},
          {"summary", SummaryJson(run)},
          {"starts", List(run.starts, StartJson)},
          {"stages", List(run.stages, StageJson)},
          {"sources", List(run.sources, SourceJson)},
          {"steps", StepsJson(run.steps)},
          {"validations", Few(run.validations)},
          {"agreement", Few(run.agreement)},
          {"norms", List(run.norms, NormsJson)},
          {"routing", List(run.routing, RoutingJson)}};
}

Json RecipeDifferences(const std::vector<RunRecord>& runs) {
  // Runs without a recipe are left out, since all their keys would differ.
  std::vector<const RunRecord*> with;
  for (const RunRecord& run : runs) {
    if (!run.recipe.empty()) with.push_back(&run);
  }
  std::vector<std::string> keys;
  std::map<std::string, size_t> seen;
  for (const RunRecord* run : with) {
    for (const auto& [key, value] : run->recipe) {
      if (seen.emplace(key, seen.size()).second) keys.push_back(key);
    }
  }
  Json differences = Json::array();
  for (const std::string& key : keys) {
    const bool alike =
        std::all_of(with.begin(), with.end(), [&](const RunRecord* run) {
          return Find(*run, key) == Find(*with.front(), key);
        });
    if (alike) continue;
    Json values = Json::array();
    for (const RunRecord& run : runs) {
      const auto value = Find(run, key);
      values.push_back(value ? Json(*value) : Json(nullptr));
    }
    differences.push_back({{"key", key}, {"values", std::move(values)}});
  }
  return differences;
}

}  // namespace delink::report
