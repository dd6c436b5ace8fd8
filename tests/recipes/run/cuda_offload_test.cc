// Runs on a CUDA device whose planes are at home on the host, pseudo to real:
// the bits of the run with all on the device, whatever the order of streams.
// Built twice: for the device of this build, skipped where there is none, and
// for the emulated one.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/recipes/run/stream_orders.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/full_test.h"

namespace delink::testing::cuda_offload_test {
namespace {

constexpr int64_t kSteps = 6, kSwitch = 3;

// What all on the device is held against: homes of both stages.
struct Offloaded {
  const char* name;
  const char* recipe;
  int ranks;
  std::vector<std::string> sets;
  std::vector<std::string> homes;
  friend std::ostream& operator<<(std::ostream& out, const Offloaded& of) {
    return out << of.recipe << ": " << of.name;
  }
};

const char kAll[] =
    "weights=\"host\",gradients=\"host\",state=\"host\","
    "activations=\"host\"";
const char kUpdated[] = "weights=\"host\",gradients=\"host\",update=\"host\"";
const char kMixed[] =
    "rows=[{match=\"*/mlp/*\",update=\"host\"},"
    "{match=\"*/attn/*\",gradients=\"host\"}],state=\"host\"";

const std::vector<Offloaded> kRuns = {
    {"layer by layer, bf16",
     "tiny_llama",
     1,
     {"run.order=layer", "run.precision=bf16"},
     {kAll, kUpdated, kMixed}},
    {"split masters and 8-bit moments",
     "tiny",
     1,
     {"run.precision=bf16", "run.master=split", "optimizer.moments=8bit",
      "run.gradients=bf16", "run.recompute=block"},
     {kUpdated, "resident=0.5"}},
    {"ranks that share state, then all",
     "tiny",
     2,
     {"stage.0.parallel.zero=1", "stage.1.parallel.zero=3",
      "run.precision=bf16"},
     {kMixed, "weights=\"device\",update=\"host\""}},
};

class CudaOffloadTest : public ::testing::TestWithParam<Offloaded> {
 protected:
  CudaOffloadTest() {
    runs_.sets = {"model.layers=2",
                  "model.dim=16",
                  "model.heads=2",
                  "data.seq=12",
                  "data.batch=4",
                  "data.validation_batches=1",
                  absl::StrCat("schedule.steps=", kSteps),
                  absl::StrCat("stage.0.until.steps=", kSwitch),
                  "optimizer.clip=0.5",
                  "run.checkpoint_every=0",
                  "run.validate_every=0",
                  "run.norms_every=0",
                  "run.micro_batch=1",
                  "run.device=cuda",
                  "run.ranks_per_gpu=2"};
    const std::vector<std::string>& more = GetParam().sets;
    runs_.sets.insert(runs_.sets.end(), more.begin(), more.end());
  }
  void SetUp() override {
    const absl::Status status = HaveCuda();
    if (!status.ok()) GTEST_SKIP() << std::string(status.message());
  }
  void Go(const std::string& homes, const std::string& out,
          bool threads = false) {
    runs_.Go({.ranks = GetParam().ranks,
              .sets = {absl::StrCat("stage.0.offload={", homes, "}"),
                       absl::StrCat("stage.1.offload={", homes, "}")},
              .out = out,
              .lane_threads = threads});
  }
  TinyRuns runs_{GetParam().recipe};
};
INSTANTIATE_TEST_SUITE_P(Runs, CudaOffloadTest,
                         ::testing::ValuesIn(FullOrEvery(2, kRuns)));

TEST_P(CudaOffloadTest, IsTheResidentRun) {
  ASSERT_NO_FATAL_FAILURE(Go("", "resident"));
  int number = 0;
  for (const std::string& homes : GetParam().homes) {
    SCOPED_TRACE(homes);
    const std::string out = absl::StrCat("run", number++);
    ASSERT_NO_FATAL_FAILURE(Go(homes, out));
    runs_.ExpectSameBits("resident", out, kSteps);
    InOrder(3, [&] {
      ASSERT_NO_FATAL_FAILURE(Go(homes, out + "other", /*threads=*/true));
    });
    runs_.ExpectSameBits("resident", out + "other", kSteps);
  }
}

}  // namespace
}  // namespace delink::testing::cuda_offload_test
