// How runs start and end, seen from outside: a small program is started alone,
// under mpirun, and under a launcher that is not ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>

namespace delink::launch_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Result {
  std::string output;  // standard output and error
  int code = 0;
  double seconds = 0;
};

Result RunCommand(const std::string& command) {
  const auto start = std::chrono::steady_clock::now();
  Result result;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {"popen failed", -1};
  std::array<char, 4096> buffer;
  while (size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return result;
}

std::string Mpirun(int ranks, const std::string& command,
                   const std::string& prefix = "",
                   const std::string& options = "") {
  return prefix + " " DELINK_MPIEXEC " " + options + " -np " +
         std::to_string(ranks) + " " DELINK_LAUNCH_PROBE " " + command;
}

int OnlineCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

TEST(LaunchTest, AloneWithoutALauncher) {
  const Result result = RunCommand(DELINK_LAUNCH_PROBE " world");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("rank 0 of 1, local 0 of 1"));
  EXPECT_THAT(result.output,
              HasSubstr("threads " + std::to_string(OnlineCpus())));
}

TEST(LaunchTest, AWrongLauncherIsRefused) {
  const Result result =
      RunCommand("env PMI_SIZE=2 PMI_RANK=0 " DELINK_LAUNCH_PROBE " world");
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("the launcher announces 2 ranks "
                                       "(PMI_SIZE), but MPI finds 1"));
}

TEST(LaunchTest, OneRankUnderMpirunHasAllCores) {
  const Result result = RunCommand(Mpirun(1, "world"));
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output,
              HasSubstr("threads " + std::to_string(OnlineCpus())));
}

TEST(LaunchTest, RanksDivideTheCores) {
  for (const int ranks : {2, 3}) {
    const Result result = RunCommand(Mpirun(ranks, "world"));
    EXPECT_EQ(result.code, 0) << result.output;
    const int cpus = OnlineCpus();
    int threads = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string line = "rank " + std::to_string(rank) + " of " +
                               std::to_string(ranks) + ", local " +
                               std::to_string(rank);
      const size_t at = result.output.find(line);
      ASSERT_NE(at, std::string::npos) << result.output;
      const size_t count = result.output.find("threads ", at);
      threads += std::stoi(result.output.substr(count + 8));
    }
    EXPECT_EQ(threads, std::max(cpus, ranks)) << result.output;
  }
}

TEST(LaunchTest, ThreadsCanBeGiven) {
  const Result result = RunCommand(Mpirun(2, "world 5"));
  EXPECT_THAT(result.output, HasSubstr("threads 5"));
}

TEST(LaunchTest, TheUsersBindingHolds) {
  if (OnlineCpus() < 2) GTEST_SKIP() << "needs two cpus";
  const Result taskset = RunCommand(Mpirun(2, "world", "taskset -c 1"));
  EXPECT_EQ(taskset.code, 0) << taskset.output;
  EXPECT_THAT(taskset.output, Not(HasSubstr("cpus 0")));

  // Each keeps the core that --bind-to gave it, not half of that.
  const Result bound = RunCommand(Mpirun(2, "world", "", "--bind-to core"));
  EXPECT_THAT(bound.output, HasSubstr("cpus 0, threads 1"));
  EXPECT_THAT(bound.output, HasSubstr("cpus 1, threads 1"));

  const Result alone = RunCommand("taskset -c 1 " DELINK_LAUNCH_PROBE " world");
  EXPECT_THAT(alone.output, HasSubstr("cpus 1, threads 1"));
}

TEST(LaunchTest, ARankThatAbortsEndsAllWithItsMessage) {
  for (const int rank : {0, 2}) {
    const Result result =
        RunCommand(Mpirun(3, "abort " + std::to_string(rank)));
    EXPECT_EQ(result.code, 3) << result.output;
    EXPECT_THAT(result.output,
                HasSubstr("rank " + std::to_string(rank) + ": "));
    EXPECT_THAT(result.output, HasSubstr("the disk of shard 7 is full"));
    EXPECT_LT(result.seconds, 15);
  }
}

TEST(LaunchTest, ARankThatIsKilledEndsAll) {
  const Result result = RunCommand(Mpirun(3, "kill 1"));
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.output, HasSubstr("process rank 1"));
  EXPECT_LT(result.seconds, 15);
}

}  // namespace
}  // namespace delink::launch_test
