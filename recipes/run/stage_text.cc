#include "recipes/run/stage_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "recipes/run/progress.h"

namespace delink {

std::string ParametersText(int64_t unique, int64_t virtual_count) {
  return absl::StrCat(
      FormatCount(static_cast<double>(unique)), " unique parameters, ",
      FormatCount(static_cast<double>(virtual_count)), " virtual");
}

nlohmann::ordered_json ToJson(const MemoryAccount& a) {
  nlohmann::ordered_json json{
      {"weights", a.weights},     {"gradients", a.gradients},
      {"state", a.state},         {"activations", a.activations()},
      {"slots", a.slots},         {"boundaries", a.boundaries},
      {"workspace", a.workspace}, {"copies", a.copies},
      {"records", a.records}};
  if (a.overhead > 0) json["overhead"] = a.overhead;
  json["total"] = a.total();
  return json;
}

}  // namespace delink
