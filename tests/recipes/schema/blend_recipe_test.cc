// [[data.source]] and the blends of stages.
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "recipes/schema/consistency.h"
#include "tests/recipes/schema/sample.h"

namespace delink::blend_recipe_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kSources[] = R"(batch = 8
[[data.source]]
name = "web"
train = "web/train"
weight = 2

[[data.source]]
name = "code"
train = "../code/train/"
validation = "held"
repeat = false
)";

// The sample with two sources, and what else is replaced.
std::string Blended(const std::string& from = "", const std::string& to = "") {
  std::string text = kSample;
  const std::string train = "train = \"corpus/train\"\n";
  text.erase(text.find(train), train.size());
  text.replace(text.find("batch = 8\n"), 10, kSources);
  if (!from.empty()) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string ErrorOf(const std::string& text,
                    const std::vector<std::string>& sets = {}) {
  const auto recipe = Parse(text, sets);
  EXPECT_FALSE(recipe.ok()) << text;
  return std::string(recipe.status().message());
}

TEST(BlendRecipe, SourcesInTheirOrder) {
  const auto recipe = Parse(Blended());
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const std::vector<DataSource> sources = recipe->data.Sources();
  ASSERT_EQ(sources.size(), 2);
  EXPECT_EQ(sources[0].name, "web");
  EXPECT_EQ(sources[0].train, "/data/web/train");
  EXPECT_EQ(sources[0].validation, "");
  EXPECT_EQ(sources[0].repeat, true);
  EXPECT_EQ(sources[1].train, "/code/train");
  EXPECT_EQ(sources[1].validation, "/data/held");
  EXPECT_EQ(sources[1].repeat, false);
  EXPECT_EQ(recipe->data.validation, "");
  EXPECT_THAT(recipe->Weights(0), ElementsAre(2, 1));
}

TEST(BlendRecipe, RepeatIsTheDataSectionsWhereASourceHasNone) {
  const std::vector<DataSource> sources =
      Parse(Blended("batch = 8", "batch = 8\nrepeat = false"))->data.Sources();
  EXPECT_EQ(sources[0].repeat, false);
  EXPECT_EQ(Sample({"data.repeat=false"}).data.Sources()[0].repeat, false);
  EXPECT_EQ(Sample().data.Sources()[0].repeat, true);
}

TEST(BlendRecipe, OneCorpusIsOneSource) {
  const Recipe recipe = Sample();
  const std::vector<DataSource> sources = recipe.data.Sources();
  ASSERT_EQ(sources.size(), 1);
  EXPECT_EQ(sources[0].train, "/data/corpus/train");
  EXPECT_EQ(sources[0].validation, "/data/corpus/validation");
  EXPECT_THAT(recipe.Weights(1), ElementsAre(1));
}

TEST(BlendRecipe, AStageMayHaveItsOwnBlend) {
  const auto recipe =
      Parse(Blended(), {"stage.0.blend={code=0.5}", "stage.1.blend.web=1",
                        "stage.1.blend.code=3"});
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  EXPECT_THAT(recipe->Weights(0), ElementsAre(0, 0.5));
  EXPECT_THAT(recipe->Weights(1), ElementsAre(1, 3));
}

TEST(BlendRecipe, ReadsBackEqual) {
  const auto recipe = Parse(
      Blended("name = \"web\"", "name = \"a \\\"b\\\".é\""),
      {"stage.1.blend={code=0.1, \"a \\\"b\\\".é\"=3}", "data.repeat=false"});
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const std::string text = ToToml(*recipe);
  const auto back = Parse(text);
  ASSERT_TRUE(back.ok()) << back.status() << "\n" << text;
  EXPECT_THAT(DiffRecipes(*recipe, *back), IsEmpty()) << text;
  EXPECT_EQ(ToToml(*back), text);
  EXPECT_EQ(back->stages[1].blend, recipe->stages[1].blend);
  EXPECT_EQ(back->data.sources[0].name, "a \"b\".é");
  EXPECT_EQ(back->data.sources[1].repeat, false);
  EXPECT_EQ(back->data.sources[0].repeat, std::nullopt);
}

TEST(BlendRecipe, MayChangeWhenARunResumes) {
  const auto saved = Parse(Blended());
  const auto now =
      Parse(Blended("name = \"code\"", "name = \"books\""),
            {"data.source.0.weight=7", "stage.0.blend={books=1}",
             "data.source.1.train=elsewhere", "data.repeat=false"});
  ASSERT_TRUE(now.ok()) << now.status();
  EXPECT_TRUE(CheckResume(*saved, *now).ok());
  EXPECT_TRUE(CheckResume(Sample(), *now).ok());
}

TEST(BlendRecipe, ProblemsAreSaidAtTheirPlace) {
  EXPECT_EQ(ErrorOf(Blended("weight = 2", "weight = -2")),
            "gpt.toml:13:10: data.source[0].weight: -2 is out of range: at "
            "least 0.0, at most 1e+09");
  EXPECT_EQ(
      ErrorOf(Blended("weight = 2", "weight = 0"), {"data.source.1.weight=0"}),
      "gpt.toml:13:1: data.source[0].weight: the weights of all sources "
      "are 0 in stage[0]; one must be more\n"
      "gpt.toml:13:1: data.source[0].weight: the weights of all sources "
      "are 0 in stage[1]; one must be more");
  EXPECT_EQ(ErrorOf(Blended("name = \"code\"", "name = \"web\"")),
            "gpt.toml:16:1: data.source[1].name: data.source[0] has the name "
            "'web' already");
  EXPECT_EQ(ErrorOf(Blended("../code/train/", "web/train")),
            "gpt.toml:17:1: data.source[1].train: is the corpus of source "
            "'web' already; raise the weight of that source instead");
  EXPECT_EQ(ErrorOf(Blended("batch = 8", "batch = 8\ntrain = \"x\"")),
            "gpt.toml:10:1: data.train: the recipe has [[data.source]] tables; "
            "set this key in them and leave it out here");
  EXPECT_EQ(ErrorOf(Blended("batch = 8", "batch = 8\nvalidation = \"x\"")),
            "gpt.toml:10:1: data.validation: the recipe has [[data.source]] "
            "tables; set this key in them and leave it out here");
}

TEST(BlendRecipe, ProblemsOfAStagesBlend) {
  const auto error = [](const std::string& blend) {
    return ErrorOf(Blended(), {"stage.1.blend=" + blend});
  };
  const auto at = [](const std::string& blend, const std::string& place = "") {
    return "--set stage.1.blend=" + blend + place + ": stage[1].blend: ";
  };
  EXPECT_EQ(error("{web=-1}"),
            at("{web=-1}", ":1:10") +
                "-1 is out of range: at least 0.0, at most 1e+09");
  EXPECT_EQ(error("{web=0, code=0.0}"),
            at("{web=0, code=0.0}") +
                "the weights of all sources are 0 in stage[1]; one must be "
                "more");
  EXPECT_EQ(error("{web=1, cod=1}"),
            at("{web=1, cod=1}") +
                "there is no source 'cod'; did you mean 'code'?; there is "
                "web, code");
  EXPECT_EQ(error("{}"), at("{}") + "names no source");
  EXPECT_EQ(error("[1, 2]"),
            at("[1, 2]") + "expected a table of numbers, got a list");
  EXPECT_EQ(
      error("{web=\"1\"}"),
      at("{web=\"1\"}", ":1:10") + "expected a number, got the string \"1\"");
  EXPECT_EQ(ErrorOf(kSample, {"stage.0.blend={web=1}"}),
            "--set stage.0.blend={web=1}: stage[0].blend: there is one corpus, "
            "data.train; name several in [[data.source]] tables");
}

}  // namespace
}  // namespace delink::blend_recipe_test
