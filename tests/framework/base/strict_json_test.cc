#include "framework/base/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace delink::strict_json_test {
namespace {

using ::testing::HasSubstr;

std::string Refusal(std::string_view text) {
  const auto parsed = ParseStrictJson(text);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(parsed.status().message());
}

TEST(StrictJson, OrdinaryJsonIsRead) {
  const auto parsed =
      ParseStrictJson(R"({"a": [1, {"a": 2}, {"a": "{[\"}"}], "b": null} )");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)["a"][2]["a"], "{[\"}");
  EXPECT_TRUE((*parsed)["b"].is_null());
}

TEST(StrictJson, KeysAreThereOnce) {
  EXPECT_THAT(Refusal(R"({"a": 1, "b": {"a": 1}, "a": 1})"),
              HasSubstr(R"(the key "a" is there twice)"));
  EXPECT_THAT(Refusal(R"([{"x": {"in\u006e": 1, "inn": 2}}])"),
              HasSubstr(R"("inn" is there twice)"));
  // In objects that follow each other they may be.
  EXPECT_TRUE(ParseStrictJson(R"([{"a": {"b": 1}}, {"a": {"b": 1}}])").ok());
}

TEST(StrictJson, WhatIsNoJsonSaysWhere) {
  EXPECT_THAT(Refusal("{\n\"a\" 1}"), HasSubstr("line 2, column 5"));
  EXPECT_THAT(Refusal(""), HasSubstr("line 1, column 1"));
  EXPECT_THAT(Refusal("{} {}"), HasSubstr("column 4"));
  EXPECT_THAT(Refusal("\"\xFF\""), HasSubstr("UTF-8"));
  EXPECT_LE(Refusal("\"" + std::string(10'000, 'x')).size(), 200u);
}

TEST(StrictJson, NestingHasAnEnd) {
  const std::string open(64, '['), close(64, ']');
  EXPECT_TRUE(ParseStrictJson(open + close).ok());
  EXPECT_THAT(Refusal("[" + open + close + "]"),
              HasSubstr("more than 64 deep at byte 64"));
}

}  // namespace
}  // namespace delink::strict_json_test
