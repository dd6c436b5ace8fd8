// A user's own kind of model: described once, read, written and documented.
#include "recipes/schema/section.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "recipes/schema/recipe_doc.h"
#include "recipes/schema/recipe_io.h"

namespace delink::section_test {
namespace {

using ::testing::HasSubstr;

enum class Gate { kSoft, kHidden, kHard };

std::string_view Word(Gate gate) {
  switch (gate) {
    case Gate::kSoft:
      return "soft";
    case Gate::kHard:
      return "hard";
    case Gate::kHidden:
      break;
  }
  return "";
}

struct MixerConfig final : ModelConfig {
  int64_t dim = 0;
  double slope = 0;  // 1 / dim unless given
  bool loud = false;
  std::string label = "m";
  Gate gate = Gate::kSoft;
  std::vector<double> widths = {8, 16};
  std::optional<double> bound;

  std::string_view kind() const override { return "mixer"; }
  std::vector<std::string> parts() const override { return {"mix"}; }
  std::unique_ptr<ModelConfig> Clone() const override {
    return std::make_unique<MixerConfig>(*this);
  }
  void Describe(Section& s) override {
    s.Int("layers", &layers, {.doc = "blocks", .required = true, .min = 1});
    s.Int("dim", &dim, {.doc = "width", .required = true, .min = 1, .max = 9});
    s.Float("slope", &slope,
            {.doc = "of the ramp", .when_omitted = "1 / dim", .above = 0.0});
    s.Bool("loud", &loud, {.doc = "volume"});
    s.String("label", &label, {.doc = "a name"});
    s.Enum("gate", &gate, Word, {.doc = "how it closes"});
    s.SubTable("inner", {.doc = "the inside"}, [&](Section& t) {
      t.Floats("widths", &widths,
               {.doc = "of each", .min = 1.0, .max = 99.0, .size = 2});
      t.Float("bound", &bound, {.doc = "a limit", .max = 2.0});
    });
    if (!s.complete()) return;
    if (slope == 0) slope = 1.0 / static_cast<double>(dim);
    if (widths[0] > widths[1]) s.Error("inner.widths", "descends");
  }
};

ModelKind MixerKind() {
  return {"mixer", "Mixes.", [] { return std::make_unique<MixerConfig>(); }};
}

absl::StatusOr<Recipe> ParseMixer(const std::string& model) {
  return ParseRecipe("[model]\nkind = \"mixer\"\n" + model +
                         "\n[data]\ntrain = \"t\"\nbatch = 1\n[optimizer]\n"
                         "lr = 1\n[schedule]\nsteps = 9\n",
                     "m.toml", "/", {}, {MixerKind()});
}

TEST(Section, ReadsEveryType) {
  const auto recipe = ParseMixer(
      "layers = 2\ndim = 4\nloud = true\nlabel = \"q\"\n"
      "gate = \"hard\"\ninner = { widths = [1, 2.5], bound = 1 }");
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const auto* c = dynamic_cast<const MixerConfig*>(recipe->model.get());
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->slope, 0.25);
  EXPECT_TRUE(c->loud);
  EXPECT_EQ(c->label, "q");
  EXPECT_EQ(c->gate, Gate::kHard);
  EXPECT_EQ(c->widths, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(c->bound, 1.0);
}

TEST(Section, DefaultsStay) {
  const auto recipe = ParseMixer("layers = 2\ndim = 4");
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  const auto* c = dynamic_cast<const MixerConfig*>(recipe->model.get());
  EXPECT_EQ(c->widths, (std::vector<double>{8, 16}));
  EXPECT_EQ(c->bound, std::nullopt);
  EXPECT_EQ(c->gate, Gate::kSoft);
}

TEST(Section, WritesWhatItReads) {
  const auto recipe = ParseMixer(
      "layers = 2\ndim = 3\nslope = 0.1\ninner = { widths = [], bound = 1 }\n"
      "inner.widths = [7, 8]");
  EXPECT_FALSE(recipe.ok()) << "an inline table cannot be added to";
  const auto good = ParseMixer(
      "layers = 2\ndim = 3\nslope = 0.1\ninner = { widths = [7, 8], bound = 1 "
      "}");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(ToToml(*good),
              HasSubstr("[model]\nkind = \"mixer\"\nlayers = 2\ndim = 3\n"
                        "slope = 0.1\nloud = false\nlabel = \"m\"\n"
                        "gate = \"soft\"\ninner.widths = [7.0, 8.0]\n"
                        "inner.bound = 1.0\n"));
}

TEST(Section, RefusesWithPlaces) {
  EXPECT_EQ(
      ParseMixer("layers = 2\ndim = 10\nslope = 0\nloud = 1\nlabel = 2\n"
                 "gate = \"hidden\"\ninner = { widths = [100, \"x\"], "
                 "bound = 3, x = 1 }")
          .status()
          .ToString(),
      "INVALID_ARGUMENT: m.toml:4:7: model.dim: 10 is out of range: 1 to 9\n"
      "m.toml:5:9: model.slope: 0 is out of range: above 0.0\n"
      "m.toml:6:8: model.loud: expected true or false, got the integer 1\n"
      "m.toml:7:9: model.label: expected a string, got the integer 2\n"
      "m.toml:8:8: model.gate: expected one of \"soft\", \"hard\", got the "
      "string \"hidden\"\n"
      "m.toml:9:21: model.inner.widths: 100 is out of range: at least 1.0, at "
      "most 99.0\n"
      "m.toml:9:26: model.inner.widths: expected a number, got the string "
      "\"x\"\n"
      "m.toml:9:40: model.inner.bound: 3 is out of range: at most 2.0\n"
      "m.toml:9:43: model.inner.x: unknown key; known here: widths, bound");
  EXPECT_EQ(ParseMixer("layers = 2\ndim = 4\ninner = { widths = [2, 1] }")
                .status()
                .message(),
            "m.toml:5:11: model.inner.widths: descends");
  EXPECT_EQ(ParseMixer("layers = 2\ndim = 4\ninner = 3").status().message(),
            "m.toml:5:9: model.inner: expected a table, got the integer 3");
}

TEST(Section, DocumentsEveryKey) {
  const std::string doc = RecipeDoc({MixerKind()}, "");
  for (const char* line :
       {"### `kind = \"mixer\"`\n\nMixes.\n",
        "| `dim` | integer, 1 to 9 | required | width |",
        "| `slope` | number, above 0.0 | 1 / dim | of the ramp |",
        "| `loud` | true or false | `false` | volume |",
        "| `gate` | \"soft\" or \"hard\" | `\"soft\"` | how it closes |",
        "| `inner.widths` | 2 numbers, at least 1.0, at most 99.0 | `[8.0, "
        "16.0]` | of each "
        "(`inner`: the inside) |",
        "| `inner.bound` | number, at most 2.0 | none | a limit |"}) {
    EXPECT_THAT(doc, HasSubstr(line));
  }
}

}  // namespace
}  // namespace delink::section_test
