#include "recipes/record/stage_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "recipes/record/progress.h"

namespace delink {

std::string ParametersText(int64_t unique, int64_t virtual_count,
                           int64_t active) {
  const auto text = [](int64_t count) {
    return FormatCount(static_cast<double>(count));
  };
  return absl::StrCat(
      text(unique), " unique parameters, ", text(virtual_count), " virtual",
      active < virtual_count ? absl::StrCat(", ", text(active), " active")
                             : "");
}

std::string AccountTable(
    const std::string& title,
    const std::vector<std::pair<std::string, MemoryAccount>>& accounts) {
  struct Row {
    const char* name;
    int64_t (*of)(const MemoryAccount&);
  };
  constexpr Row kRows[] = {
      {"  weights", [](const MemoryAccount& a) { return a.weights; }},
      {"  gradients", [](const MemoryAccount& a) { return a.gradients; }},
      {"  optimizer state", [](const MemoryAccount& a) { return a.state; }},
      {"  activations", [](const MemoryAccount& a) { return a.activations(); }},
      {"    slots", [](const MemoryAccount& a) { return a.slots; }},
      {"    boundaries", [](const MemoryAccount& a) { return a.boundaries; }},
      {"    workspace", [](const MemoryAccount& a) { return a.workspace; }},
      {"  copies", [](const MemoryAccount& a) { return a.copies; }},
      {"  fetched planes", [](const MemoryAccount& a) { return a.fetched; }},
      {"  records", [](const MemoryAccount& a) { return a.records; }},
      {"  the device's own", [](const MemoryAccount& a) { return a.overhead; }},
      {"  in all", [](const MemoryAccount& a) { return a.total(); }},
      {"of the host", [](const MemoryAccount& a) { return a.host; }}};
  static constexpr int kName = 19, kColumn = 12;
  const auto width = [](const std::string& heading) {
    return std::max(kColumn, static_cast<int>(heading.size()) + 2);
  };
  std::string text = absl::StrFormat("%-*s", kName, title);
  for (const auto& [heading, account] : accounts) {
    absl::StrAppendFormat(&text, "%*s", width(heading), heading);
  }
  text += "\n";
  for (const Row& row : kRows) {
    const bool needless = std::ranges::all_of(
        accounts, [&](const auto& a) { return row.of(a.second) == 0; });
    if (needless) continue;
    absl::StrAppendFormat(&text, "%-*s", kName, row.name);
    for (const auto& [heading, account] : accounts) {
      absl::StrAppendFormat(&text, "%*s", width(heading),
                            FormatBytes(row.of(account)));
    }
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json ToJson(const MemoryAccount& a) {
  nlohmann::ordered_json json{
      {"weights", a.weights},     {"gradients", a.gradients},
      {"state", a.state},         {"activations", a.activations()},
      {"slots", a.slots},         {"boundaries", a.boundaries},
      {"workspace", a.workspace}, {"copies", a.copies},
      {"records", a.records}};
  if (a.fetched > 0) json["fetched"] = a.fetched;
  if (a.overhead > 0) json["overhead"] = a.overhead;
  json["total"] = a.total();
  if (a.host > 0) json["host"] = a.host;
  return json;
}

}  // namespace delink
