#include "recipes/saved/routers.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint_values.h"
#include "recipes/record/run_folder.h"

namespace delink {
namespace {

// "blocks/1" of "blocks/1/moe/router/weight"; empty for other tensors.
std::string LayerOf(absl::string_view name, absl::string_view tensor) {
  if (!absl::ConsumeSuffix(&name, tensor)) return "";
  const size_t block = name.find('/', name.find('/') + 1);
  return std::string(name.substr(0, block));
}

absl::StatusOr<std::pair<double, double>> LimitsOf(
    CheckpointValues& values, const LogicalTensor& tensor) {
  DELINK_RETURN_IF_ERROR(values.Check({}, tensor));
  std::vector<float> all(static_cast<size_t>(tensor.shape.elements()));
  for (const Extent& extent : values.Owners({}, tensor)) {
    DELINK_RETURN_IF_ERROR(values.Read({}, tensor, extent, all.data()));
  }
  const auto [least, largest] = std::ranges::minmax_element(all);
  return std::pair<double, double>(*least, *largest);
}

// The metrics of the run that a step folder lies in, if it does.
std::string MetricsBeside(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path run =
      fs::absolute(path, error).lexically_normal().parent_path().parent_path();
  return error ? "" : RunFolder::Metrics(run.string());
}

double Number(const nlohmann::json& value) {
  return value.is_number() ? value.get<double>() : NAN;
}

// The last row with routing up to `step`; null without.
nlohmann::json LastRouting(const std::string& path, int64_t step) {
  std::ifstream in(path, std::ios::binary);
  std::string line;
  nlohmann::json last;
  while (std::getline(in, line)) {
    if (line.find("\"routing\"") == line.npos) continue;
    nlohmann::json row = ParseJson(line);
    if (!row.is_object() || !row.contains("routing")) continue;
    if (Number(row["step"]) <= static_cast<double>(step)) last = std::move(row);
  }
  return last;
}

void AddLoads(const nlohmann::json& row, Routers& routers) {
  if (!row.is_object() || !row["routing"].is_object()) return;
  const nlohmann::json& routing = row["routing"];
  const nlohmann::json layers = routing.value("layers", nlohmann::json());
  const nlohmann::json loads = routing.value("load", nlohmann::json());
  if (!layers.is_array() || !loads.is_array()) return;
  for (size_t i = 0; i < std::min(layers.size(), loads.size()); ++i) {
    for (RouterOfLayer& router : routers.layers) {
      if (layers[i] != router.layer || loads[i].size() != 5) continue;
      for (const nlohmann::json& load : loads[i]) {
        router.load.push_back(Number(load));
      }
      routers.step = static_cast<int64_t>(Number(row["step"]));
    }
  }
}

}  // namespace

absl::StatusOr<Routers> ReadRouters(const std::string& path, int64_t step,
                                    const Layout& layout) {
  Routers routers;
  std::map<std::string, const LogicalTensor*> biases;  // by layer
  for (const LogicalTensor& tensor : layout.tensors()) {
    const std::string layer = LayerOf(tensor.name, "/router/weight");
    if (!layer.empty()) routers.layers.push_back({.layer = layer});
    biases[LayerOf(tensor.name, "/router/bias")] = &tensor;
  }
  if (routers.layers.empty()) return routers;
  DELINK_ASSIGN_OR_RETURN(
      CheckpointValues values,
      CheckpointValues::Open(path, layout, {}, DType::kF32));
  for (RouterOfLayer& router : routers.layers) {
    const auto bias = biases.find(router.layer);
    if (bias == biases.end()) continue;
    DELINK_ASSIGN_OR_RETURN(router.bias, LimitsOf(values, *bias->second));
  }
  AddLoads(LastRouting(MetricsBeside(path), step), routers);
  return routers;
}

std::string ToText(const Routers& routers) {
  if (routers.layers.empty()) return "";
  std::string text = routers.step == 0
                         ? "experts\n  loads are not known: the checkpoint "
                           "lies in no run whose metrics have them\n"
                         : absl::StrFormat(
                               "experts     loads of step %d, as ratios to "
                               "their mean\n",
                               routers.step);
  size_t width = 5;
  for (const RouterOfLayer& router : routers.layers) {
    width = std::max(width, router.layer.size());
  }
  const auto line = [&](const auto&... cells) {
    absl::StrAppendFormat(&text, "  %-*s  %8s  %8s  %8s  %9s  %s\n",
                          static_cast<int>(width), cells...);
  };
  const auto number = [](double x) { return absl::StrFormat("%.3g", x); };
  line("layer", "least", "median", "largest", "violation", "bias");
  for (const RouterOfLayer& router : routers.layers) {
    const bool known = !router.load.empty();
    line(router.layer, known ? number(router.load.front()) : "-",
         known ? number(router.load[2]) : "-",
         known ? number(router.load.back()) : "-",
         known ? number(router.max_violation()) : "-",
         router.bias.has_value()
             ? absl::StrFormat("%.3g to %.3g", router.bias->first,
                               router.bias->second)
             : std::string("none"));
  }
  return text;
}

}  // namespace delink
