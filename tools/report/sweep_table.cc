#include "tools/report/sweep_table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"

namespace delink::report {
namespace {

using Json = nlohmann::ordered_json;
using Texts = std::vector<std::string>;

struct Row {
  std::string name, status, error;
  Texts settings;
  std::vector<double> measures;  // NaN: not known
};

struct Sweep {
  Texts settings, measures;
  std::vector<Row> rows;
};

std::string PathOf(const std::string& folder) {
  return JoinPath(folder, "sweep.json");
}

// If `from` is a list of texts, copies it to `to` and returns true.
bool TakeTexts(const Json& from, Texts* to) {
  if (!from.is_array()) return false;
  for (const Json& text : from) {
    if (!text.is_string()) return false;
    to->push_back(text.get<std::string>());
  }
  return true;
}

bool TakeRow(const Json& from, const Sweep& sweep, Row* to) {
  if (!from.is_object()) return false;
  for (const auto& [key, text] :
       {std::pair{"name", &to->name}, std::pair{"status", &to->status},
        std::pair{"error", &to->error}}) {
    if (!from.contains(key) || !from[key].is_string()) return false;
    *text = from[key].get<std::string>();
  }
  if (!from.contains("settings") ||
      !TakeTexts(from["settings"], &to->settings) ||
      !from.contains("measures") || !from["measures"].is_array()) {
    return false;
  }
  for (const Json& value : from["measures"]) {
    to->measures.push_back(value.is_number() ? value.get<double>() : NAN);
  }
  return to->settings.size() == sweep.settings.size() &&
         to->measures.size() == sweep.measures.size();
}

bool TakeSweep(const Json& from, Sweep* to) {
  if (!from.is_object() || !from.contains("settings") ||
      !TakeTexts(from["settings"], &to->settings) ||
      !from.contains("measures") ||
      !TakeTexts(from["measures"], &to->measures) || !from.contains("rows") ||
      !from["rows"].is_array()) {
    return false;
  }
  for (const Json& row : from["rows"]) {
    if (!TakeRow(row, *to, &to->rows.emplace_back())) return false;
  }
  return true;
}

absl::StatusOr<Sweep> ReadSweep(const std::string& folder) {
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(PathOf(folder)));
  Sweep sweep;
  if (!TakeSweep(ParseOrderedJson(text), &sweep)) {
    return absl::FailedPreconditionError(
        absl::StrCat(PathOf(folder),
                     ": was not written by delink sweep; run the sweep again "
                     "to replace it"));
  }
  return sweep;
}

Json Finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

bool Done(const Row& row) {
  return row.status == "finished" || row.status == "early";
}

struct Group {
  Texts settings;
  int runs = 0, done = 0;
  std::vector<std::vector<double>> values;  // by measure, of those done
};

void AddMeans(const std::vector<double>& values, Json* mean, Json* spread) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  for (const double value : values) {
    squares += (value - sum / n) * (value - sum / n);
  }
  mean->push_back(Finite(sum / n));
  spread->push_back(Finite(std::sqrt(squares / (n - 1))));
}

Json ToJson(const Group& group) {
  Json counts = Json::array(), mean = Json::array(), spread = Json::array();
  for (const std::vector<double>& values : group.values) {
    counts.push_back(values.size());
    AddMeans(values, &mean, &spread);
  }
  return {{"settings", group.settings}, {"runs", group.runs},
          {"done", group.done},         {"counts", std::move(counts)},
          {"mean", std::move(mean)},    {"spread", std::move(spread)}};
}

// The settings of a row without the seed, which is the last one if any.
Texts WithoutSeed(const Sweep& sweep, Texts settings) {
  if (!sweep.settings.empty() && sweep.settings.back() == "seed") {
    settings.pop_back();
  }
  return settings;
}

std::vector<Group> Groups(const Sweep& sweep) {
  std::vector<Group> groups;
  for (const Row& row : sweep.rows) {
    const Texts settings = WithoutSeed(sweep, row.settings);
    auto group =
        std::find_if(groups.begin(), groups.end(),
                     [&](const Group& g) { return g.settings == settings; });
    if (group == groups.end()) {
      groups.push_back({.settings = settings});
      groups.back().values.resize(sweep.measures.size());
      group = groups.end() - 1;
    }
    ++group->runs;
    if (!Done(row)) continue;
    ++group->done;
    for (size_t i = 0; i < row.measures.size(); ++i) {
      if (!std::isnan(row.measures[i])) {
        group->values[i].push_back(row.measures[i]);
      }
    }
  }
  return groups;
}

}  // namespace

bool HoldsSweep(const std::string& folder) {
  return PathExists(PathOf(folder));
}

absl::StatusOr<std::vector<std::string>> RunsOfSweep(
    const std::string& folder) {
  DELINK_ASSIGN_OR_RETURN(const Sweep sweep, ReadSweep(folder));
  Texts folders;
  for (const Row& row : sweep.rows) {
    // A name must be a single folder, even if the file has a path.
    const std::string name = std::filesystem::path(row.name).filename();
    std::string run = JoinPath(JoinPath(folder, "runs"), name);
    if (!name.empty() && PathExists(JoinPath(run, "metrics.jsonl"))) {
      folders.push_back(std::move(run));
    }
  }
  return folders;
}

absl::StatusOr<Json> SweepJson(const std::string& folder) {
  DELINK_ASSIGN_OR_RETURN(const Sweep sweep, ReadSweep(folder));
  std::error_code error;
  const auto whole = std::filesystem::weakly_canonical(folder, error);
  Json json{{"name", whole.filename().string()},
            {"settings", WithoutSeed(sweep, sweep.settings)},
            {"measures", sweep.measures}};
  json["groups"] = Json::array();
  for (const Group& group : Groups(sweep)) {
    json["groups"].push_back(ToJson(group));
  }
  json["failures"] = Json::array();
  for (const Row& row : sweep.rows) {
    if (row.status != "failed") continue;
    json["failures"].push_back({{"name", row.name}, {"error", row.error}});
  }
  return json;
}

}  // namespace delink::report
