// What the environment of each launcher is read as; needs no launcher.
#include "parallel/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "framework/comm/thread_communicator.h"
#include "parallel/launch/cores.h"

namespace delink::launcher_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Environment Of(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    if (it == variables.end()) return std::nullopt;
    return it->second;
  };
}

Launcher Read(std::map<std::string, std::string> variables) {
  return ReadLauncher(Of(std::move(variables)));
}

TEST(LauncherTest, ReadsEachLauncher) {
  EXPECT_EQ(Read({}).size, 1);
  EXPECT_FALSE(Read({}).several());
  EXPECT_EQ(Read({{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "1"}}).size, 4);
  EXPECT_EQ(Read({{"PMI_RANK", "0"}, {"PMI_SIZE", "8"}}).size, 8);
  EXPECT_EQ(Read({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).size, 1);
  // PMIx does not say how many: MPI has to be asked.
  EXPECT_EQ(Read({{"PMIX_RANK", "3"}}).size, 0);
  EXPECT_TRUE(Read({{"PMIX_RANK", "3"}}).several());
  EXPECT_EQ(Read({{"OMPI_COMM_WORLD_SIZE", "many"}}).size, 1);
}

TEST(LauncherTest, ReadsSlurmInAndOutOfAStep) {
  EXPECT_EQ(Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).size, 4);
  EXPECT_EQ(Read({{"SLURM_PROCID", "0"},
                  {"SLURM_JOB_ID", "7"},
                  {"SLURM_STEP_ID", "0"},
                  {"SLURM_NTASKS", "8"},
                  {"SLURM_STEP_NUM_TASKS", "4"},
                  {"PMIX_RANK", "0"}})
                .size,
            4);
  const Launcher batch_script = Read(
      {{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}});
  EXPECT_FALSE(batch_script.several());
}

// The communicator that is given, or another over it.
TEST(LauncherTest, DelaysWhereItIsAsked) {
  const auto run = [](const Environment& environment, int on_machine,
                      bool delays) {
    return RunRanks(2, [&](Communicator& comm) -> absl::Status {
      const auto local = comm.Split(comm.rank() / on_machine, 0).value();
      auto mine = comm.Split(0, comm.rank()).value();
      const Communicator* const given = mine.get();
      const auto all = DelayAsAsked(std::move(mine), *local, environment);
      if (all.ok()) {
        EXPECT_EQ(all->get() != given, delays);
      }
      return all.status();
    });
  };
  EXPECT_EQ(run(Of({}), 1, false), absl::OkStatus());
  const Environment slow = Of({{"DELINK_DELAY", "1e-6,1e9"}});
  EXPECT_EQ(run(slow, 2, true), absl::OkStatus());
  EXPECT_THAT(std::string(run(slow, 1, true).message()),
              HasSubstr("only 1 of 2 ranks are on this one"));
  EXPECT_THAT(
      std::string(run(Of({{"DELINK_DELAY", "fast"}}), 2, true).message()),
      HasSubstr("DELINK_DELAY: 'fast' is not a link"));
}

TEST(LauncherTest, RefusesADifferentNumberOfRanks) {
  const Launcher launcher{"PMI_SIZE", 4};
  EXPECT_TRUE(CheckLaunch(launcher, 4, "Some MPI").ok());
  EXPECT_TRUE(CheckLaunch({"PMIX_RANK", 0}, 3, "Some MPI").ok());
  const std::string message(CheckLaunch(launcher, 1, "Some MPI").message());
  EXPECT_THAT(message, HasSubstr("announces 4 ranks (PMI_SIZE)"));
  EXPECT_THAT(message, HasSubstr("MPI finds 1"));
  EXPECT_THAT(message, HasSubstr("built with Some MPI"));
}

TEST(CoresTest, DividesThePool) {
  const std::vector<int> pool = {0, 4, 1, 5, 2};
  EXPECT_THAT(ShareOfCores(pool, 0, 1, 0, 0).cpus, ElementsAre(0, 4, 1, 5, 2));
  EXPECT_THAT(ShareOfCores(pool, 0, 2, 0, 0).cpus, ElementsAre(0, 4));
  EXPECT_THAT(ShareOfCores(pool, 1, 2, 0, 0).cpus, ElementsAre(1, 5, 2));
  EXPECT_EQ(ShareOfCores(pool, 1, 2, 0, 0).threads, 3);
}

TEST(CoresTest, SharesACoreWhenOversubscribed) {
  const std::vector<int> pool = {3, 7};
  for (int rank = 0; rank < 5; ++rank) {
    const CoreShare share = ShareOfCores(pool, rank, 5, 0, 0);
    EXPECT_THAT(share.cpus, ElementsAre(rank < 3 ? 3 : 7));
    EXPECT_EQ(share.threads, 1);
  }
}

TEST(CoresTest, ObeysQuotaAndThreads) {
  const std::vector<int> pool = {0, 1, 2, 3, 4, 5, 6, 7};
  const CoreShare limited = ShareOfCores(pool, 1, 2, 5, 0);
  EXPECT_EQ(limited.threads, 2);
  EXPECT_EQ(limited.cpus, pool);
  EXPECT_EQ(ShareOfCores(pool, 1, 2, 1, 0).threads, 1);
  EXPECT_EQ(ShareOfCores(pool, 1, 2, 100, 0).threads, 4);

  const CoreShare fewer = ShareOfCores(pool, 1, 2, 0, 3);
  EXPECT_EQ(fewer.threads, 3);
  EXPECT_THAT(fewer.cpus, ElementsAre(4, 5, 6, 7));
  const CoreShare more = ShareOfCores(pool, 1, 2, 0, 6);
  EXPECT_EQ(more.threads, 6);
  EXPECT_EQ(more.cpus, pool);
}

TEST(CoresTest, KnowsOpenMpisOwnBinding) {
  EXPECT_FALSE(BoundByDefault(Of({})));
  EXPECT_TRUE(BoundByDefault(Of({{"OMPI_MCA_orte_bound_at_launch", "1"}})));
  EXPECT_FALSE(
      BoundByDefault(Of({{"OMPI_MCA_orte_bound_at_launch", "1"},
                         {"OMPI_MCA_hwloc_base_binding_policy", "core"}})));
}

TEST(CoresTest, WritesLists) {
  EXPECT_EQ(CpuList({}), "");
  EXPECT_EQ(CpuList({0, 4, 1, 5, 2, 8}), "0-2,4-5,8");
}

}  // namespace
}  // namespace delink::launcher_test
