#include "recipes/plan/pipeline_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/format_bytes.h"
#include "recipes/record/stage_text.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

struct BytesColumn {
  const char* heading;
  int64_t (*of)(const PipelineStagePlan&);
};

constexpr BytesColumn kColumns[] = {
    {"weights", [](const PipelineStagePlan& s) { return s.account.weights; }},
    {"gradients",
     [](const PipelineStagePlan& s) { return s.account.gradients; }},
    {"state", [](const PipelineStagePlan& s) { return s.account.state; }},
    {"activations",
     [](const PipelineStagePlan& s) { return s.account.activations(); }},
    {"copies", [](const PipelineStagePlan& s) { return s.account.copies; }},
    {"records", [](const PipelineStagePlan& s) { return s.account.records; }},
    {"device's", [](const PipelineStagePlan& s) { return s.account.overhead; }},
    {"in all", [](const PipelineStagePlan& s) { return s.account.total(); }},
    {"sent", [](const PipelineStagePlan& s) { return s.sent_bytes; }},
    {"reduced", [](const PipelineStagePlan& s) { return s.reduced_bytes; }},
    {"gathered", [](const PipelineStagePlan& s) { return s.gathered_bytes; }}};

// How many slabs a stage has, and the groups of ranks that have the same.
std::vector<TableColumn> SlabColumns(const PipelinePlan& plan) {
  TableColumn slabs{.heading = "slabs"}, groups{.heading = "groups"};
  for (const PipelineStagePlan& stage : plan.stages) {
    slabs.cells.push_back(absl::StrCat(stage.slabs.size()));
    groups.cells.push_back(absl::StrJoin(
        stage.groups, " ", [](std::string* out, const std::vector<int>& ranks) {
          absl::StrAppend(out, NumbersText(ranks));
        }));
  }
  return {slabs, groups};
}

// Cuts out the middle of text that is too wide.
std::string Shown(const std::string& row) {
  constexpr size_t kWidth = 96, kHalf = 45;
  if (row.size() <= kWidth) return row;
  return absl::StrCat(row.substr(0, kHalf), "  ~  ",
                      row.substr(row.size() - kHalf));
}

std::string Table(const PipelinePlan& plan) {
  std::vector<PipelineRow> rows;
  for (const PipelineStagePlan& stage : plan.stages) rows.push_back(stage.row);
  std::vector<TableColumn> columns = SlabColumns(plan);
  for (const BytesColumn& column : kColumns) {
    if (std::ranges::all_of(plan.stages, [&](const PipelineStagePlan& stage) {
          return column.of(stage) == 0;
        })) {
      continue;
    }
    TableColumn& cells = columns.emplace_back();
    cells.heading = column.heading;
    for (const PipelineStagePlan& stage : plan.stages) {
      cells.cells.push_back(FormatBytes(column.of(stage)));
    }
  }
  return PipelineTable(rows, columns);
}

}  // namespace

std::string NumbersText(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    // As many as possible that lie at equal distances.
    size_t last = i;
    const int step = i + 1 < numbers.size() ? numbers[i + 1] - numbers[i] : 0;
    while (last + 1 < numbers.size() &&
           numbers[last + 1] == numbers[last] + step) {
      ++last;
    }
    absl::StrAppend(&text, text.empty() ? "" : ",", numbers[i]);
    if (last < i + (step == 1 ? 2 : 3)) continue;
    absl::StrAppend(&text, "..", numbers[last]);
    if (step != 1) absl::StrAppend(&text, " by ", step);
    i = last;
  }
  return text;
}

std::string PipelineText(const PipelinePlan& plan) {
  std::string text;
  for (const auto line : absl::StrSplit(Table(plan), '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, "  ", line, "\n");
  }
  // Groups that are alike are one line.
  std::vector<std::pair<std::string, int>> lines;
  for (const SharedSlabs& shared : plan.shared) {
    const std::string line = absl::StrCat(
        "  pipeline stages ", NumbersText(shared.stages), " share ",
        absl::StrJoin(shared.slabs, ", "), ": their ", shared.ranks,
        " ranks reduce ", FormatBytes(shared.gradient_bytes), " together");
    const auto known =
        std::ranges::find(lines, line, &std::pair<std::string, int>::first);
    if (known == lines.end()) {
      lines.emplace_back(line, 1);
    } else {
      ++known->second;
    }
  }
  for (const auto& [line, groups] : lines) {
    absl::StrAppend(&text, line);
    if (groups > 1) absl::StrAppend(&text, ", in ", groups, " groups");
    text += "\n";
  }
  absl::StrAppendFormat(&text, "  idle for %.1f%% of a step as planned\n",
                        100 * plan.bubble);
  for (size_t s = 0; s < plan.picture.size(); ++s) {
    absl::StrAppendFormat(&text, "  %2d  %s\n", s, Shown(plan.picture[s]));
  }
  return text;
}

std::string ExchangesText(const PipelinePlan& plan) {
  std::vector<std::pair<std::string, std::vector<int>>> ranks;  // by lines
  for (const PipelineStagePlan& stage : plan.stages) {
    std::string lines;
    for (const ExchangePlan& of : stage.exchanges) {
      absl::StrAppendFormat(
          &lines, "  %12s  %-14s  along %s (%d ranks)  %d x, %s\n", of.what,
          of.kind, of.along, of.ranks, of.count, FormatBytes(of.bytes));
    }
    if (lines.empty()) continue;
    const auto known = std::ranges::find(
        ranks, lines, &std::pair<std::string, std::vector<int>>::first);
    const auto rank = static_cast<int>(stage.rank);
    if (known == ranks.end()) {
      ranks.push_back({lines, {rank}});
    } else {
      known->second.push_back(rank);
    }
  }
  std::string text;
  for (const auto& [lines, of] : ranks) {
    const bool several = of.size() > 1;
    absl::StrAppend(&text, several ? "  ranks " : "  rank ", NumbersText(of),
                    several ? " each exchange" : " exchanges", " in a step:\n",
                    lines);
  }
  return text;
}

nlohmann::ordered_json ExchangesJson(const PipelinePlan& plan) {
  Json all = Json::array();
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (const ExchangePlan& of : plan.stages[s].exchanges) {
      all.push_back({{"pipeline_stage", s},
                     {"rank", plan.stages[s].rank},
                     {"what", of.what},
                     {"kind", of.kind},
                     {"along", of.along},
                     {"ranks", of.ranks},
                     {"count", of.count},
                     {"bytes", of.bytes}});
    }
  }
  return all;
}

nlohmann::ordered_json ToJson(const PipelinePlan& plan) {
  Json stages = Json::array();
  for (const PipelineStagePlan& stage : plan.stages) {
    stages.push_back({{"ranks", stage.row.ranks},
                      {"layers", stage.row.layers},
                      {"parameters", stage.row.parameters},
                      {"slabs", stage.slabs},
                      {"groups", stage.groups},
                      {"heaviest_rank", stage.rank},
                      {"bytes", ToJson(stage.account)},
                      {"sent_bytes", stage.sent_bytes},
                      {"reduced_bytes", stage.reduced_bytes},
                      {"gathered_bytes", stage.gathered_bytes}});
  }
  Json shared = Json::array();
  for (const SharedSlabs& of : plan.shared) {
    shared.push_back({{"stages", of.stages},
                      {"ranks", of.ranks},
                      {"slabs", of.slabs},
                      {"gradient_bytes", of.gradient_bytes}});
  }
  return {{"stages", std::move(stages)},
          {"shared", std::move(shared)},
          {"bubble", plan.bubble},
          {"picture", plan.picture}};
}

}  // namespace delink
