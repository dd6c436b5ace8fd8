#include "framework/base/json.h"

#include <nlohmann/json.hpp>

namespace delink {
namespace {

template <typename Json>
std::string TextOf(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::json ParseJson(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}

nlohmann::ordered_json ParseOrderedJson(std::string_view text, bool throws) {
  return nlohmann::ordered_json::parse(text, nullptr, throws);
}

std::string JsonText(const nlohmann::json& json, int indent) {
  return TextOf(json, indent);
}

std::string JsonText(const nlohmann::ordered_json& json, int indent) {
  return TextOf(json, indent);
}

}  // namespace delink
