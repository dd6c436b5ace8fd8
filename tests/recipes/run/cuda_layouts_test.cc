// Runs over tensor, context and pipeline ranks whose weights and activations
// are on a CUDA device: as close to the CPU's runs over the same ranks as those
// of one rank are. Built twice: for the device of this build, skipped where
// there is none, and for the emulated one.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/recipes/run/stream_orders.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/full_test.h"

namespace delink::testing::cuda_layouts_test {
namespace {

constexpr int64_t kSteps = 6, kSwitch = 3;
constexpr double kLr = 1e-3;  // recipes/tiny*.toml

struct Ranks {
  const char* name;
  const char* recipe;
  int ranks;
  std::vector<std::string> sets;
  std::vector<std::string> precisions = {"bf16"};
  friend std::ostream& operator<<(std::ostream& out, const Ranks& of) {
    return out << of.recipe << ": " << of.name;
  }
};

const std::vector<Ranks> kRanks = {
    {"data 4 with sharded weights, then tensor 2 x pipeline 2, more than "
     "heads of keys",
     "tiny_llama",
     4,
     {"stage.0.parallel={data=4, zero=3}",
      "stage.1.parallel={tensor=2, pipeline=2}", "model.kv_heads=1"},
     {"bf16", "fp32"}},
    {"data 4, then tensor 2 x pipeline 2, without sequence",
     "tiny",
     4,
     {"stage.0.parallel={data=4}",
      "stage.1.parallel={tensor=2, pipeline=2, sequence=false}"}},
    {"tensor 2 with sequence, micro-batches reduced into shards",
     "tiny",
     2,
     {"stage.0.parallel={tensor=2, zero=2, reduce=\"micro_batch\"}",
      "run.micro_batch=1", "run.recompute=block", "model.tied=false"}},
    {"context 2", "tiny_llama", 2, {"stage.0.parallel={context=2}"}},
    {"experts over two ranks, which lack room at first",
     "tiny_moe",
     2,
     {"stage.0.parallel={data=2, expert=2, dispatch=\"all-to-all\", "
      "expert_room=0.5, expert_overlap=true}",
      "model.kv_heads=1", "model.head_dim=8"}},
    {"experts over two ranks, by gather",
     "tiny_moe",
     2,
     {"stage.0.parallel={data=2, expert=2, dispatch=\"gather\"}",
      "model.kv_heads=1", "model.head_dim=8"}},
};

class CudaLayoutsTest : public ::testing::TestWithParam<Ranks> {
 protected:
  CudaLayoutsTest() {
    runs_.sets = {"model.layers=2",
                  "model.dim=16",
                  "model.heads=2",
                  "data.seq=12",
                  "data.batch=4",
                  "data.validation_batches=1",
                  absl::StrCat("schedule.steps=", kSteps),
                  absl::StrCat("stage.0.until.steps=", kSwitch),
                  "run.checkpoint_every=0",
                  "run.validate_every=0",
                  "run.norms_every=0",
                  "run.micro_batch=1",
                  "run.ranks_per_gpu=4"};
    const std::vector<std::string>& more = GetParam().sets;
    runs_.sets.insert(runs_.sets.end(), more.begin(), more.end());
  }
  void SetUp() override {
    const absl::Status status = HaveCuda();
    if (!status.ok()) GTEST_SKIP() << std::string(status.message());
  }
  // In the folder of that name.
  void On(const std::string& device, const std::string& precision,
          const std::string& out, bool threads = false) {
    ASSERT_NO_FATAL_FAILURE(
        runs_.Go({.ranks = GetParam().ranks,
                  .sets = {absl::StrCat("run.device=", device),
                           absl::StrCat("run.precision=", precision)},
                  .out = out,
                  .lane_threads = threads}));
    const std::vector<Switch> switches = runs_.Switches(out);
    ASSERT_EQ(switches.size(), 1u);
    EXPECT_EQ(switches[0].loss_before, switches[0].loss_after);
  }
  TinyRuns runs_{GetParam().recipe};
};
INSTANTIATE_TEST_SUITE_P(Rows, CudaLayoutsTest,
                         ::testing::ValuesIn(FullOrEvery(2, kRanks)));

// docs/equality.md: two devices differ as two layouts do.
TEST_P(CudaLayoutsTest, IsTheCpusRunWhateverTheOrderOfStreams) {
  for (const std::string& precision : GetParam().precisions) {
    SCOPED_TRACE(precision);
    const bool bf16 = precision == "bf16";
    const std::string cpu = "cpu" + precision, cuda = "cuda" + precision;
    ASSERT_NO_FATAL_FAILURE(On("cpu", precision, cpu));
    ASSERT_NO_FATAL_FAILURE(On("cuda", precision, cuda));
    const Tensors a = runs_.Load(cpu, kSteps), b = runs_.Load(cuda, kSteps);
    const double loss = LossDifference(runs_.Steps(cpu), runs_.Steps(cuda));
    const double median = WeightDifference(a, b, 0.5) / kLr;
    const double tail = WeightDifference(a, b, 0.99) / kLr;
    RecordProperty(precision, absl::StrCat(loss, " ", median, " ", tail));
    EXPECT_LT(loss, bf16 ? 5e-4 : 2e-5);
    EXPECT_LT(median, bf16 ? 0.05 : 0.01);
    EXPECT_LT(tail, bf16 ? 0.5 : 0.3);
    // Not the CPU's by mistake.
    EXPECT_NE(FirstDifference(a, b), "");
  }
  InOrder(3, [&] {
    ASSERT_NO_FATAL_FAILURE(On("cuda", "bf16", "other", /*threads=*/true));
  });
  runs_.ExpectSameBits("cudabf16", "other", kSteps);
}

}  // namespace
}  // namespace delink::testing::cuda_layouts_test
