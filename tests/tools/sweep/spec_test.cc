// The file of a sweep, and the grid it stands for.
#include "tools/sweep/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::sweep::spec_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;

class SpecTest : public ::testing::Test {
 protected:
  absl::StatusOr<Spec> Read(const std::string& text) {
    EXPECT_TRUE(WriteFile(dir_ / "sweep.toml", text).ok());
    return ReadSpec(dir_ / "sweep.toml");
  }
  std::vector<GridRun> Grid(const std::string& text) {
    const absl::StatusOr<Spec> spec = Read(text);
    EXPECT_TRUE(spec.ok()) << spec.status();
    if (!spec.ok()) return {};
    absl::StatusOr<std::vector<GridRun>> runs = ExpandGrid(*spec);
    EXPECT_TRUE(runs.ok()) << runs.status();
    return runs.ok() ? *std::move(runs) : std::vector<GridRun>();
  }
  std::string Problem(const std::string& text) {
    const absl::StatusOr<Spec> spec = Read(text);
    const absl::Status status =
        spec.ok() ? ExpandGrid(*spec).status() : spec.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }
  testing::TempDir dir_;
};

constexpr char kSpec[] = R"(
recipe = "r.toml"
set    = ["data.train=corpus"]
seeds  = [1, 2]

[[axis]]
key    = "optimizer.lr"
values = [1e-3, 0.002]

[[axis]]
name   = "share"
keys   = ["stage.0.share", "stage.0.lr_scale"]
values = [["all", 0.4], ["groups:2", 1.0]]
labels = ["all", "groups"]

[[skip]]
where = { share = "groups", lr = [0.002] }
)";

TEST_F(SpecTest, EveryCombinationButThoseSkipped) {
  const std::vector<GridRun> runs = Grid(kSpec);
  ASSERT_EQ(runs.size(), 6u);
  // The first seed's before the second's.
  EXPECT_EQ(runs[0].name, "lr=0.001_share=all_seed=1");
  EXPECT_EQ(runs[1].name, "lr=0.001_share=groups_seed=1");
  EXPECT_EQ(runs[2].name, "lr=0.002_share=all_seed=1");
  EXPECT_EQ(runs[3].name, "lr=0.001_share=all_seed=2");
  EXPECT_EQ(runs[0].recipe, dir_ / "r.toml");
  EXPECT_THAT(runs[4].sets,
              ElementsAre("data.train=corpus", "optimizer.lr=0.001",
                          "stage.0.share=\"groups:2\"", "stage.0.lr_scale=1.0",
                          "run.seed=2"));
  EXPECT_THAT(runs[4].settings,
              ElementsAre(Pair("lr", "0.001"), Pair("share", "groups"),
                          Pair("seed", "2")));
}

TEST_F(SpecTest, WhereLossesAreTabulated) {
  const std::string recipe = "recipe = \"r.toml\"\n";
  const absl::StatusOr<Spec> spec =
      Read(recipe +
           "at_tokens = [100]\nat_seconds = [5, 10]\n"
           "at_flops = [1_000, 2.5e21]\n");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->at_tokens, ElementsAre(100));
  EXPECT_THAT(spec->at_seconds, ElementsAre(5, 10));
  EXPECT_THAT(spec->at_flops, ElementsAre(1000, 2.5e21));
  for (const char* wrong : {"0", "-1.5", "inf", "nan", "\"1e15\""}) {
    EXPECT_THAT(Problem(absl::StrCat(recipe, "at_flops = [1e15, ", wrong, "]")),
                HasSubstr("sweep.toml:2:19: at_flops: expected an element of a "
                          "list of numbers above 0"));
  }
  EXPECT_THAT(Problem(recipe + "at_flops = 1e15\n"),
              HasSubstr("at_flops: expected a list of numbers above 0"));
}

TEST_F(SpecTest, AnAxisMayChooseTheRecipe) {
  const std::vector<GridRun> runs = Grid(
      "[[axis]]\nname = \"method\"\nkeys = [\"recipe\", \"run.keep\"]\n"
      "values = [[\"a.toml\", 1], [\"/b.toml\", 2]]\n");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].recipe, dir_ / "a.toml");
  EXPECT_EQ(runs[1].recipe, "/b.toml");
  EXPECT_THAT(runs[1].sets, ElementsAre("run.keep=2"));
}

TEST_F(SpecTest, NamesAreFoldersAndDiffer) {
  std::string values;
  for (const char* value : {"a b", "a/b", "a-b", "..", "\xc3\xa9"}) {
    values += std::string(values.empty() ? "" : ", ") + "\"" + value + "\"";
  }
  const std::vector<GridRun> runs =
      Grid("recipe = \"r.toml\"\n[[axis]]\nkey = \"x.y\"\nvalues = [" + values +
           ", \"" + std::string(300, 'z') + "\"]\n");
  std::set<std::string> names;
  for (const GridRun& run : runs) {
    names.insert(run.name);
    EXPECT_EQ(run.name.find_first_of("/ \xc3"), std::string::npos) << run.name;
    EXPECT_LT(run.name.size(), 128u);
  }
  EXPECT_THAT(names, SizeIs(6));
  EXPECT_EQ(Grid("recipe = \"r.toml\"\n")[0].name, "run");
}

TEST_F(SpecTest, TwoRunsAreNeverOne) {
  const std::string recipe = "recipe = \"r.toml\"\n";
  EXPECT_THAT(Problem(recipe + "seeds = [1, 2, 1]\n"),
              AllOf(HasSubstr("seeds"), HasSubstr("1 occurs twice")));
  EXPECT_THAT(
      Problem(recipe + "[[axis]]\nkey = \"x\"\nvalues = [\"1\", \"1_y=2\"]\n"
                       "[[axis]]\nkey = \"y\"\n"
                       "values = [\"2_y=3\", \"3\"]\n"),
      HasSubstr("two runs would be called x=1_y=2_y=3; give an axis another"));
}

TEST_F(SpecTest, WhatAnAxisVariesIsNotSetBesides) {
  const auto problem = [&](const std::string& set) {
    absl::StatusOr<Spec> spec = Read(kSpec);
    EXPECT_TRUE(spec.ok()) << spec.status();
    spec->sets.push_back(set);
    const absl::Status status = ExpandGrid(*spec).status();
    return std::string(status.message());
  };
  EXPECT_THAT(problem("optimizer.lr=1"),
              HasSubstr("sweep.toml: --set optimizer.lr=1: sets a key that "
                        "the axis 'lr' varies as well; remove one"));
  EXPECT_THAT(problem("stage.0.lr_scale = 1"), HasSubstr("the axis 'share'"));
  EXPECT_THAT(problem("stage.0.share.all=1"), HasSubstr("the axis 'share'"));
  EXPECT_THAT(problem("run.seed=3"),
              HasSubstr("sets a key that `seeds` sets as well"));
  EXPECT_EQ(problem("optimizer.lr_scale=1"), "");
}

TEST_F(SpecTest, EverythingWrongIsToldWithItsPlace) {
  EXPECT_THAT(Problem("recipe = \"r.toml\"\nseed = [1]\nseeds = [-1]\n"
                      "[[axis]]\nkey = \"a\"\nkeys = [\"b\"]\nvalues = [1]\n"
                      "[[axis]]\nkey = \"c\"\nvalues = []\n"),
              AllOf(HasSubstr("sweep.toml:2:1: seed: unknown key; did you mean "
                              "'seeds'?"),
                    HasSubstr("sweep.toml:3:10: seeds"),
                    HasSubstr("axis[0].key: give "
                              "either"),
                    HasSubstr("sweep.toml:10:10: axis[1].values")));
  EXPECT_THAT(Problem("[[axis]]\nkey = \"a\"\nvalues = [1]\n"),
              HasSubstr("recipe: required"));
  const std::string recipe = "recipe = \"r.toml\"\n";
  EXPECT_THAT(Problem(recipe + "[[axis]]\nkey = \"a\"\nvalues = [1, 1]\n"),
              HasSubstr("'1' occurs twice"));
  EXPECT_THAT(Problem(recipe + "[[axis]]\nkeys = [\"a\", \"b\"]\n"
                               "values = [[1, 2], [3]]\n"),
              HasSubstr("values[1] has to be a list of 2"));
  EXPECT_THAT(Problem(recipe + "[[axis]]\nkey = \"a.x\"\nvalues = [1]\n"
                               "[[axis]]\nkey = \"b.x\"\nvalues = [1]\n"),
              HasSubstr("two axes are called 'x'"));
  EXPECT_THAT(Problem(recipe + "[[axis]]\nkey = \"run.seed\"\nvalues = [1]\n"),
              HasSubstr("list the `seeds`"));
  EXPECT_THAT(Problem(recipe + "[[axis]]\nkey = \"warmup\"\nvalues = [1]\n"
                               "[[skip]]\nwhere = { warmpu = 1 }\n"
                               "[[skip]]\nwhere = { warmup = 2 }\n"),
              AllOf(HasSubstr("no axis 'warmpu'; did you mean 'warmup'?"),
                    HasSubstr("axis 'warmup' has no value '2'")));
  EXPECT_THAT(Problem(recipe + "[[axis]]\nkey = \"lr\"\nvalues = [1]\n"
                               "[[skip]]\nwhere = { lr = 1 }\n"),
              HasSubstr("leaves no run"));
}

}  // namespace
}  // namespace delink::sweep::spec_test
