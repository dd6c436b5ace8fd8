// Programs beside this one.
#include "tools/sweep/job.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::sweep::job_test {
namespace {

class JobTest : public ::testing::Test {
 protected:
  Job Begin(const std::string& script, std::vector<int> cpus = {},
            bool launcher = false) {
    absl::StatusOr<Job> job = Job::Start({.words = {"sh", "-c", script},
                                          .output = Output(),
                                          .cpus = std::move(cpus),
                                          .launcher = launcher});
    EXPECT_TRUE(job.ok()) << job.status();
    return *job;
  }
  static int Wait(Job& job) {
    for (int i = 0; i < 2000; ++i) {
      if (const std::optional<int> code = job.Ended()) return *code;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    job.Stop(SIGKILL);
    return -1;
  }
  std::string Output() const { return dir_ / "output"; }
  // Waits for a word in the output.
  void Await(const std::string& word) const {
    for (int i = 0; i < 2000; ++i) {
      if (ReadFile(Output())->find(word) != std::string::npos) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL() << "no " << word;
  }
  testing::TempDir dir_;
};

TEST_F(JobTest, TellsItsCodeAndWhatItPrinted) {
  Job job = Begin("echo out; echo err >&2; exit 7");
  EXPECT_EQ(Wait(job), 7);
  EXPECT_EQ(*ReadFile(Output()), "out\nerr\n");
  Job gone = Begin("kill -9 $$");
  EXPECT_EQ(Wait(gone), 128 + 9);
}

TEST_F(JobTest, AProgramThatIsNotThere) {
  absl::StatusOr<Job> job =
      Job::Start({.words = {dir_ / "nothing"}, .output = Output()});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(Wait(*job), 127);
  EXPECT_NE(ReadFile(Output())->find("error: "), std::string::npos);
}

TEST_F(JobTest, IsBoundToItsCores) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &mine)) ++cpu;
  Job job = Begin("grep Cpus_allowed_list /proc/self/status", {cpu});
  EXPECT_EQ(Wait(job), 0);
  EXPECT_EQ(*ReadFile(Output()),
            "Cpus_allowed_list:\t" + std::to_string(cpu) + "\n");
}

TEST_F(JobTest, StopAsksTheProgramItselfOrTheRanksOfALauncher) {
  const std::string script =
      "trap 'echo parent; exit 3' TERM\n"
      "sh -c 'trap \"echo child; exit 5\" TERM; echo ready; "
      "while :; do sleep 0.02; done' &\n"
      "wait $!";
  Job launcher = Begin(script, {}, true);
  Await("ready");
  launcher.Stop(SIGTERM);
  EXPECT_EQ(Wait(launcher), 5);
  EXPECT_EQ(*ReadFile(Output()), "ready\nchild\n");
  Job alone = Begin(
      "trap 'echo asked; exit 3' TERM; echo ready; "
      "while :; do sleep 0.02; done");
  Await("ready");
  alone.Stop(SIGTERM);
  EXPECT_EQ(Wait(alone), 3);
}

}  // namespace
}  // namespace delink::sweep::job_test
