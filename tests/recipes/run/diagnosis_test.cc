// What a step leaves that is not finite, or far from those before it.
#include "recipes/run/observers/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/base/file.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::diagnosis_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json Read(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << std::string(text.status().message());
  return text.ok() ? json::parse(*text) : json();
}

TEST(Diagnosis, KeepsAStepThatIsNotFinite) {
  const TinyRuns runs;
  const absl::Status status =
      runs.Run({.ranks = 2,
                .sets = {"optimizer.lr=1000", "optimizer.clip=0"},
                .out = "wild"});
  const std::string folder = runs.Folder("wild") + "/diagnosis/step-00000002";
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step 2: the loss or its gradient is not finite"),
                    HasSubstr(folder)));
  const json step = Read(folder + "/step.json");
  EXPECT_EQ(step["step"], 2);
  EXPECT_EQ(step["stage"], "pseudo");
  EXPECT_TRUE(step["grad_norm"].is_null());
  EXPECT_TRUE(step["grad_norms"].contains("blocks/0/attention")) << step;
  EXPECT_TRUE(PathExists(folder + "/recipe.toml"));
  // Batches of 8: rank 1 has the latter half of the second one.
  const json mine = Read(folder + "/rank-00001.json");
  ASSERT_EQ(mine.size(), 4u);
  EXPECT_EQ(mine[0]["sample"], 12);
  EXPECT_EQ(mine[3]["tokens"].size(), 32u);
  // What is predicted is what comes next.
  EXPECT_EQ(mine[3]["targets"][0], mine[3]["tokens"][1]);
}

TEST(Diagnosis, KeepsAnOutlyingStepAndGoesOn) {
  const TinyRuns runs;
  // Norms that vary with the batch alone.
  const std::vector<std::string> flat = {"optimizer.lr=0", "schedule.steps=40",
                                         "stage.0.until.steps=1"};
  std::vector<std::string> watched = flat;
  watched.push_back("run.outlier=0.5");
  const absl::Status status = runs.Run({.sets = watched, .out = "run"});
  ASSERT_TRUE(status.ok()) << std::string(status.message());
  const auto kept = ListDirectory(runs.Folder("run") + "/diagnosis");
  ASSERT_TRUE(kept.ok() && !kept->empty());
  const json step =
      Read(runs.Folder("run") + "/diagnosis/" + kept->front() + "/step.json");
  EXPECT_GT(step["step"], 20);
  EXPECT_THAT(step["why"].get<std::string>(),
              HasSubstr("standard deviations above the mean"));
  double squares = 0;
  for (const json& norm : step["grad_norms"]) {
    squares += norm.get<double>() * norm.get<double>();
  }
  EXPECT_NEAR(std::sqrt(squares), step["grad_norm"].get<double>(), 1e-12);
  // Looking on changed nothing.
  ASSERT_TRUE(runs.Run({.sets = flat, .out = "other"}).ok());
  EXPECT_EQ(FirstDifference(runs.Load("run", 40), runs.Load("other", 40)), "");
}

TEST(OutlierWatch, NeedsAFewStepsAndALimit) {
  OutlierWatch none(0), some(4);
  for (size_t i = 0; i < OutlierWatch::kFewest; ++i) {
    const double norm = i % 2 == 0 ? 1.0 : 2.0;
    EXPECT_FALSE(none.Add(norm) || some.Add(norm));
  }
  EXPECT_FALSE(some.Add(3.4));  // mean 1.5, deviation 0.5
  const auto far = some.Add(30);
  ASSERT_TRUE(far.has_value());
  EXPECT_NEAR(far->mean, 1.59, 0.01);
  EXPECT_GT(far->deviations, 40);
  EXPECT_FALSE(none.Add(1e9));
}

TEST(OutlierWatch, ForgetsWhatIsLongAgo) {
  OutlierWatch watch(5);
  for (int i = 0; i < 50; ++i) watch.Add(100 + i % 2);
  for (size_t i = 0; i < OutlierWatch::kWindow; ++i) watch.Add(1 + i % 2 * 0.1);
  EXPECT_TRUE(watch.Add(100).has_value());
}

}  // namespace
}  // namespace delink::testing::diagnosis_test
