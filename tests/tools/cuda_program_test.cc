// `delink` with an emulated GPU, from outside: the same run as on the CPU, and
// what each --device says.
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/testing/source_path.h"
#include "tests/tools/program_fixture.h"

namespace delink::testing::cuda_program_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CudaProgram : public Program {
 protected:
  void SetUp() override {
    if (!HaveDelinkOnSimt()) GTEST_SKIP() << "no emulated CUDA device";
  }
  static Words Small(const std::string& out, const Words& more) {
    return With(
        TrainWords(out,
                   {"--set", "model.layers=2", "--set", "model.dim=16", "--set",
                    "model.heads=2", "--set", "data.seq=12", "--set",
                    "data.batch=4", "--set", "schedule.steps=6", "--set",
                    "stage.0.until.steps=3", "--set", "run.precision=bf16"}),
        more);
  }
  static std::string DeviceOf(const std::string& run) {
    return Rows(Path(run) + "/metrics.jsonl").at(0)["device"];
  }
};

TEST_F(CudaProgram, TrainsEvaluatesAndContinues) {
  for (const std::string device : {"cpu", "cuda"}) {
    const Outcome trained =
        RunDelinkOnSimt(Small(device, {"--device", device}));
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_THAT(trained.err, HasSubstr("computing on " + DeviceOf(device)));
  }
  EXPECT_EQ(DeviceOf("cpu"), "cpu");
  EXPECT_THAT(DeviceOf("cuda"), HasSubstr("sm_90"));
  const std::vector<double> cpu = Losses("cpu"), cuda = Losses("cuda");
  ASSERT_EQ(cpu.size(), 6);
  ASSERT_EQ(cuda.size(), 6);
  for (size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_NEAR(cuda[i], cpu[i], 5e-4 * cpu[i]) << i;
  }
  // A checkpoint knows nothing of devices.
  double loss[2];
  for (const std::string device : {"cpu", "cuda"}) {
    const Outcome eval = RunDelinkOnSimt(
        {"eval", Path("cuda"), "--data", Path("corpus/validation"), "--batches",
         "1", "--json", "--device", device});
    ASSERT_EQ(eval.code, 0) << eval.err;
    loss[device == "cuda"] = json::parse(eval.out)["loss"];
  }
  EXPECT_NEAR(loss[1], loss[0], 2e-5 * loss[0]);
  for (const std::string device : {"cpu", "cuda"}) {
    const Outcome text =
        RunDelinkOnSimt({"generate", Path("cuda"), "--prompt", "the slab",
                         "--tokens", "6", "--device", device});
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_THAT(text.out, HasSubstr("the slab"));
  }
}

TEST_F(CudaProgram, PlansForAGpuAnywhere) {
  const std::string recipe = SourcePath("recipes/tiny.toml");
  const Words words = {"plan",   recipe,    "--set", "model.vocab=257",
                       "--json", "--device"};
  json bytes[2];
  for (const std::string device : {"cpu", "cuda"}) {
    bytes[device == "cuda"] = Json(With(words, {device}))["stages"][0]["bytes"];
  }
  EXPECT_FALSE(bytes[0].contains("overhead"));
  EXPECT_GT(bytes[1]["overhead"], 0);
  EXPECT_EQ(bytes[0]["weights"], bytes[1]["weights"]);
}

// cuDNN's backward pass, which then keeps no gradient of every score.
TEST_F(CudaProgram, PlansLessWhereSumsMayBeMadeInAnyOrder) {
  Words words = {"plan",
                 SourcePath("recipes/gpt2_124m.toml"),
                 "--json",
                 "--device",
                 "cuda",
                 "--set",
                 "run.precision=bf16",
                 "--set",
                 "model.vocab=1024"};
  const int64_t in_order = Json(words)["stages"][0]["bytes"]["workspace"];
  words.insert(words.end(), {"--set", "run.deterministic=false"});
  const int64_t any = Json(words)["stages"][0]["bytes"]["workspace"];
  // Of 8 samples' 12 heads two bytes for each of 1024 x 1024 scores, 201 MB,
  // against 53 MB of sums: then another call takes most.
  EXPECT_LT(any, in_order * 3 / 4);
}

TEST_F(CudaProgram, RanksDoNotShareAGpuUnasked) {
  if (!HaveMpirun()) GTEST_SKIP() << "no mpirun";
  const Outcome refused =
      MpirunDelinkOnSimt(2, Small("two", {"--device", "cuda"}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("run.ranks_per_gpu = 2"),
                                 HasSubstr("run.device = \"cpu\"")));
}

}  // namespace
}  // namespace delink::testing::cuda_program_test
