#include "recipes/huggingface/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace delink::huggingface::config_reader_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Problems(ConfigReader& reader) {
  const absl::Status status = reader.Finish();
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST(ConfigReader, ReadsWhatIsThereAndElseTheDefault) {
  const nlohmann::json config = {{"a", 3},         {"b", 2.5},     {"c", true},
                                 {"d", "text"},    {"e", nullptr}, {"f", 4},
                                 {"t", {{"g", 5}}}};
  ConfigReader reader("config.json", config);
  EXPECT_EQ(reader.Int("a"), 3);
  EXPECT_EQ(reader.Float("b"), 2.5);
  EXPECT_TRUE(reader.Bool("c"));
  EXPECT_EQ(reader.Text("d"), "text");
  EXPECT_EQ(reader.Int("e", 7), 7);
  EXPECT_FALSE(reader.Has("e"));
  EXPECT_TRUE(reader.Given("e"));
  EXPECT_FALSE(reader.Given("z"));
  EXPECT_EQ(reader.Float("f"), 4.0);
  EXPECT_EQ(reader.Table("t").Int("g"), 5);
  EXPECT_EQ(reader.Table("none").Int("g", 6), 6);
  EXPECT_EQ(Problems(reader), "");
}

TEST(ConfigReader, TellsAllProblemsAtOnce) {
  const nlohmann::json config = {{"size", -1},
                                 {"large", 1e30},
                                 {"huge", 18446744073709551615ULL},
                                 {"half", 0.5},
                                 {"list", {1}},
                                 {"flag", 1},
                                 {"word", 3},
                                 {"wide", true},
                                 {"table", 3},
                                 {"inner", {{"n", "x"}}}};
  ConfigReader reader("config.json", config);
  reader.Int("size");
  reader.Int("large");
  reader.Int("huge");
  reader.Int("half");
  reader.Int("gone");
  reader.Float("list");
  reader.Bool("flag");
  reader.Text("word");
  reader.MustBe("wide", false, "ours is narrow");
  reader.Table("table");
  reader.Table("inner").Int("n");
  const std::string said = Problems(reader);
  for (const char* const part :
       {"config.json: size: is -1, but must be an integer, at least 1",
        "config.json: large: is 1e+30",
        "config.json: huge: is 18446744073709551615",
        "config.json: half: is 0.5", "config.json: gone: is missing",
        "config.json: list: is [1], but must be a number",
        "config.json: flag: is 1, but must be true or false",
        "config.json: word: is 3, but must be a text",
        "config.json: wide: is true: ours is narrow",
        "config.json: table: is 3, but must be an object",
        "config.json: inner.n: is \"x\", but must be an integer"}) {
    EXPECT_THAT(said, HasSubstr(part));
  }
}

TEST(ConfigReader, AKeyThatNobodyReadsIsAnErrorUnlessItChangesNothing) {
  const nlohmann::json config = {{"_name_or_path", "x"},
                                 {"torch_dtype", "bfloat16"},
                                 {"use_mrope", false},
                                 {"aux", nullptr},
                                 {"heads", nlohmann::json::array()},
                                 {"logit_scale", 0.25},
                                 {"rope", {{"beta", 3}}}};
  ConfigReader reader("config.json", config);
  reader.Table("rope");
  EXPECT_THAT(Problems(reader),
              AllOf(HasSubstr("config.json: logit_scale: is 0.25"),
                    HasSubstr("config.json: rope.beta: is 3"),
                    Not(HasSubstr("torch_dtype")), Not(HasSubstr("use_mrope")),
                    Not(HasSubstr("aux")), Not(HasSubstr("heads")),
                    Not(HasSubstr("_name"))));
}

TEST(ConfigReader, ListsOfOneWord) {
  const nlohmann::json config = {{"same", {"x", "x"}},
                                 {"mixed", {"x", "y"}},
                                 {"numbers", {1, 2}},
                                 {"text", "x"}};
  ConfigReader reader("config.json", config);
  EXPECT_TRUE(reader.AllAre("same", "x"));
  EXPECT_FALSE(reader.AllAre("same", "y"));
  EXPECT_FALSE(reader.AllAre("mixed", "x"));
  EXPECT_FALSE(reader.AllAre("numbers", "x"));
  EXPECT_FALSE(reader.AllAre("text", "x"));
  EXPECT_TRUE(reader.AllAre("none", "x"));
}

}  // namespace
}  // namespace delink::huggingface::config_reader_test
