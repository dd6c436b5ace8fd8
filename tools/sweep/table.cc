#include "tools/sweep/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "recipes/record/run_folder.h"
#include "tools/report/run_record.h"

namespace delink::sweep {
namespace {

using report::Columns;
using report::kUnknown;
using report::Largest;
using report::Last;
using report::MeanOfLast;
using report::Median;
using report::RunRecord;
using report::RunState;

// A training loss is the mean of this many steps.
constexpr size_t kLossSteps = 20;

// The number of rows of `table` with at most `limit` in an ascending column.
size_t RowsUpTo(const Columns& table, const char* column, double limit) {
  const std::vector<double>& values = table.Values(column);
  return static_cast<size_t>(
      std::count_if(values.begin(), values.end(),
                    [limit](double value) { return value <= limit; }));
}

// Losses at the point where a run reaches `limit`: of the steps up to there,
// and of the last validation before.
void AddLossesAt(const RunRecord& run, const char* column, double limit,
                 std::vector<double>* measures) {
  double train = kUnknown, validation = kUnknown;
  if (Last(run.steps.Values(column)) >= limit) {
    train = MeanOfLast(run.steps.Values("loss"),
                       RowsUpTo(run.steps, column, limit), kLossSteps);
    const size_t rows = RowsUpTo(run.validations, column, limit);
    if (rows > 0) validation = run.validations.Values("loss")[rows - 1];
  }
  measures->push_back(train);
  measures->push_back(validation);
}

std::vector<double> Measures(const Spec& spec, const RunRecord& run) {
  const std::vector<double>& validation = run.validations.Values("loss");
  double best = kUnknown, best_step = kUnknown;
  for (size_t i = 0; i < validation.size(); ++i) {
    if (validation[i] >= best) continue;
    if (std::isnan(validation[i])) continue;
    best = validation[i];
    best_step = run.validations.Values("step")[i];
  }
  std::vector<double> planned;
  for (const report::StageRecord& stage : run.stages) {
    planned.push_back(stage.bytes.total);
  }
  std::vector<double> measures = {
      Last(run.steps.Values("step")),
      Last(run.steps.Values("tokens")),
      std::fmax(Last(run.steps.Values("seconds")),
                Last(run.validations.Values("seconds"))),
      Last(run.steps.Values("flops")),
      MeanOfLast(run.steps.Values("loss"), run.steps.rows(), kLossSteps),
      Last(validation),
      best,
      best_step};
  for (const int64_t tokens : spec.at_tokens) {
    AddLossesAt(run, "tokens", static_cast<double>(tokens), &measures);
  }
  for (const int64_t seconds : spec.at_seconds) {
    AddLossesAt(run, "seconds", static_cast<double>(seconds), &measures);
  }
  for (const double flops : spec.at_flops) {
    AddLossesAt(run, "flops", flops, &measures);
  }
  measures.insert(measures.end(), {Median(run.steps.Values("tokens_per_s")),
                                   run.peak_memory, Largest(planned)});
  return measures;
}

// The shortest text that is exact: "2.5e15".
std::string Short(double value) {
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value);
  return absl::StrReplaceAll(std::string(digits, end.ptr),
                             {{"e+0", "e"}, {"e+", "e"}});
}

std::vector<std::string> MeasureNames(const Spec& spec) {
  std::vector<std::string> names = {"steps",
                                    "tokens",
                                    "seconds",
                                    "flops",
                                    "train_loss",
                                    "validation_loss",
                                    "best_validation_loss",
                                    "best_step"};
  const auto add = [&](const std::string& at, const char* unit) {
    names.push_back(absl::StrCat("train_loss_at_", at, "_", unit));
    names.push_back(absl::StrCat("validation_loss_at_", at, "_", unit));
  };
  for (const int64_t tokens : spec.at_tokens) {
    add(absl::StrCat(tokens), "tokens");
  }
  for (const int64_t seconds : spec.at_seconds) add(absl::StrCat(seconds), "s");
  for (const double flops : spec.at_flops) add(Short(flops), "flops");
  names.insert(names.end(), {"tokens_per_s", "peak_memory", "planned_memory"});
  return names;
}

std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

void AddLine(const std::vector<std::string>& cells, std::string* csv) {
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppend(csv, i == 0 ? "" : ",", Quoted(cells[i]));
  }
  *csv += "\n";
}

}  // namespace

Table EmptyTable(const Spec& spec, const std::vector<GridRun>& runs) {
  Table table{.measures = MeasureNames(spec)};
  for (const auto& [name, unused] : runs.front().settings) {
    table.settings.push_back(name);
  }
  for (const GridRun& run : runs) {
    Row row{.name = run.name};
    for (const auto& [unused, label] : run.settings) {
      row.settings.push_back(label);
    }
    row.measures.assign(table.measures.size(), kUnknown);
    table.rows.push_back(std::move(row));
  }
  return table;
}

void ReadRow(const Spec& spec, const std::string& folder, Row* row) {
  row->status = "waiting";
  if (!RunFolder::HoldsRun(folder)) return;
  const absl::StatusOr<RunRecord> run = report::ReadRun(folder);
  if (!run.ok()) return;
  row->measures = Measures(spec, *run);
  if (run->state == RunState::kFinished) {
    row->status = run->ended_early.empty() ? "finished" : "early";
  } else {
    row->status = "cut";
  }
}

std::string FirstError(const std::string& output) {
  std::string last, banner;
  bool ruled = false;  // the line before is a row of dashes
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    const std::string line(
        absl::StripAsciiWhitespace(output.substr(begin, end - begin)));
    begin = end + 1;
    const size_t at = line.find("error: ");
    // Also matches "rank 3: error: ...".
    if (at != std::string::npos && at < 16) return line;
    if (line.empty()) continue;
    const bool rule = line.find_first_not_of('-') == std::string::npos;
    if (ruled && !rule && banner.empty()) banner = line;
    if (!rule) last = line;
    ruled = rule;
  }
  return banner.empty() ? last : banner;
}

std::string ToCsv(const Table& table) {
  std::string csv;
  std::vector<std::string> head = {"name"};
  head.insert(head.end(), table.settings.begin(), table.settings.end());
  head.emplace_back("status");
  head.insert(head.end(), table.measures.begin(), table.measures.end());
  head.emplace_back("error");
  AddLine(head, &csv);
  for (const Row& row : table.rows) {
    std::vector<std::string> cells = {row.name};
    cells.insert(cells.end(), row.settings.begin(), row.settings.end());
    cells.push_back(row.status);
    for (const double value : row.measures) {
      cells.push_back(std::isfinite(value) ? absl::StrFormat("%.10g", value)
                                           : "");
    }
    cells.push_back(row.error);
    AddLine(cells, &csv);
  }
  return csv;
}

std::string ToJson(const Table& table) {
  using Json = nlohmann::ordered_json;
  Json all{{"settings", table.settings}, {"measures", table.measures}};
  all["rows"] = Json::array();
  for (const Row& row : table.rows) {
    Json measures = Json::array();
    for (const double value : row.measures) {
      measures.push_back(std::isfinite(value) ? Json(value) : Json(nullptr));
    }
    all["rows"].push_back({{"name", row.name},
                           {"status", row.status},
                           {"error", row.error},
                           {"settings", row.settings},
                           {"measures", std::move(measures)}});
  }
  return JsonText(all, 1) + "\n";
}

Table NamesFromJson(const std::string& json) {
  using Json = nlohmann::json;
  const Json all = ParseJson(json);
  Table table;
  if (!all.is_object() || !all.contains("settings") || !all.contains("rows")) {
    return table;
  }
  for (const Json& name : all["settings"]) {
    if (!name.is_string()) return {};
    table.settings.push_back(name.get<std::string>());
  }
  for (const Json& row : all["rows"]) {
    if (!row.is_object() || !row.contains("name") || !row["name"].is_string()) {
      return {};
    }
    table.rows.push_back({.name = row["name"].get<std::string>()});
  }
  return table;
}

}  // namespace delink::sweep
