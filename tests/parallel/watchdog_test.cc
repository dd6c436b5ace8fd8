// Heartbeats, the verdict over them, ranks that wait for one that is stuck, and
// folders that have one run at a time.
#include "parallel/watch/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/mutex.h"
#include "framework/comm/thread_communicator.h"
#include "parallel/watch/folder_lock.h"
#include "tests/testing/temp_dir.h"

namespace delink::watchdog_test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;

TEST(Heartbeat, IsReadWhileItsRankLives) {
  const TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir / "ranks").ok());
  auto heartbeat = *Heartbeat::Create(dir / "ranks", 3);
  Sighting seen = ReadHeartbeat(dir / "ranks", 3);
  EXPECT_FALSE(seen.dead || seen.left);
  EXPECT_EQ(seen.beats, 1);
  EXPECT_EQ(seen.compute.what, "");
  heartbeat->Beat();
  heartbeat->Begin(Lane::kCompute, 16,
                   "a longer text than the one that follows");
  heartbeat->Begin(Lane::kCompute, 17, "B(3,a) of blocks/2");
  std::thread([&] {
    heartbeat->Begin(Lane::kNetwork, 17, "Reduce(7) of blocks/3/mlp");
  }).join();
  EXPECT_EQ(heartbeat->begun(), 3);
  seen = ReadHeartbeat(dir / "ranks", 3);
  EXPECT_EQ(seen.beats, 2);
  EXPECT_EQ(seen.compute.count, 2);
  EXPECT_EQ(seen.compute.step, 17);
  EXPECT_EQ(seen.compute.what, "B(3,a) of blocks/2");
  EXPECT_EQ(seen.network.what, "Reduce(7) of blocks/3/mlp");
  // Lanes on one thread do one thing at a time.
  heartbeat->Begin(Lane::kNetwork, 17, "Reduce(8)");
  seen = ReadHeartbeat(dir / "ranks", 3);
  EXPECT_EQ(seen.compute.what, "Reduce(8)");
  EXPECT_EQ(seen.compute.count, 2);
  EXPECT_EQ(seen.network.what, "");
  EXPECT_EQ(seen.network.count, 2);
  heartbeat->Leave();
  EXPECT_TRUE(ReadHeartbeat(dir / "ranks", 3).left);
  EXPECT_FALSE(PathExists(dir / "ranks"));
}

TEST(Heartbeat, SaysWhetherComputeWaits) {
  const TempDir dir;
  auto heartbeat = *Heartbeat::Create(dir.path(), 0);
  const auto compute = [&] { return ReadHeartbeat(dir.path(), 0).compute; };
  heartbeat->Begin(Lane::kCompute, 17, "F(4,a) of blocks/3");
  EXPECT_FALSE(compute().waits);
  heartbeat->Wait(17, "Recv(4,b) of blocks/3");
  EXPECT_TRUE(compute().waits);
  EXPECT_EQ(compute().what, "Recv(4,b) of blocks/3");
  EXPECT_EQ(compute().step, 17);
  EXPECT_EQ(compute().count, 1);
  EXPECT_EQ(heartbeat->begun(), 1) << "to wait is no progress";
  // Meanwhile its thread may look after the other lanes.
  heartbeat->Begin(Lane::kFromPrevious, 17, "Recv(4,c) of blocks/3");
  EXPECT_TRUE(compute().waits);
  EXPECT_EQ(compute().what, "Recv(4,b) of blocks/3");
  EXPECT_EQ(ReadHeartbeat(dir.path(), 0).network.what, "Recv(4,c) of blocks/3");
  heartbeat->Wait(17, "");
  EXPECT_FALSE(compute().waits);
  EXPECT_EQ(compute().what, "F(4,a) of blocks/3");
  heartbeat->Wait(17, "Norm");
  heartbeat->Begin(Lane::kCompute, 17, "U(0)");
  EXPECT_FALSE(compute().waits);
  EXPECT_EQ(compute().what, "U(0)");
}

TEST(Heartbeat, OfTheDeadTellsWhatTheyDid) {
  const TempDir dir;
  const pid_t child = fork();
  if (child == 0) {
    auto heartbeat = Heartbeat::Create(dir.path(), 0);
    (*heartbeat)->Begin(Lane::kCompute, 5, std::string(500, 'x'));
    (*heartbeat)->Begin(Lane::kCompute, 5, "Norm");
    _exit(0);  // as a process ends that is killed
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const Sighting seen = ReadHeartbeat(dir.path(), 0);
  EXPECT_TRUE(seen.dead);
  EXPECT_EQ(seen.compute.step, 5);
  EXPECT_EQ(seen.compute.what, "Norm");
  // Its place can be taken.
  EXPECT_TRUE(CheckNobodyLives(dir.path()).ok());
  const auto next = Heartbeat::Create(dir.path(), 0);
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(ReadHeartbeat(dir.path(), 0).dead);
}

TEST(Heartbeat, AFolderInUseIsFoundOut) {
  const TempDir dir;
  EXPECT_TRUE(CheckNobodyLives(dir / "run/ranks").ok());
  ASSERT_TRUE(MakeDirectories(dir / "run/ranks").ok());
  EXPECT_TRUE(CheckNobodyLives(dir / "run/ranks").ok());
  const auto heartbeat = *Heartbeat::Create(dir / "run/ranks", 0);
  const absl::Status status = CheckNobodyLives(dir / "run/ranks");
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(dir / "run:"), HasSubstr("another run"),
                    HasSubstr("process " + std::to_string(getpid()))));
}

TEST(FolderLock, HasOneHolderWhoIsNamed) {
  const TempDir dir;
  {
    const auto lock = FolderLock::Take(dir / "a/run");
    ASSERT_TRUE(lock.ok()) << lock.status();
    const absl::Status status = FolderLock::Take(dir / "a/run").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(dir / "a/run: another run is at work"),
                      HasSubstr("process " + std::to_string(getpid()) + " on "),
                      HasSubstr("name another folder")));
  }
  // Nothing is left of a folder that was made for nothing; one that was there
  // stays.
  EXPECT_FALSE(PathExists(dir / "a/run"));
  ASSERT_TRUE(FolderLock::Take(dir / "a").ok());
  EXPECT_THAT(*ListDirectory(dir / "a"), IsEmpty());
}

TEST(FolderLock, IsKeptWhenTheFolderIsRenamed) {
  const TempDir dir;
  {
    const auto lock = FolderLock::Take(dir / "a");
    ASSERT_TRUE(lock.ok()) << lock.status();
    ASSERT_TRUE(WriteFile(dir / "a/values", "1 2").ok());
    ASSERT_TRUE(Rename(dir / "a", dir / "b").ok());
    (*lock)->Moved(dir / "b");
    EXPECT_FALSE(FolderLock::Take(dir / "b").ok());
    // Somebody else's, of the name that was.
    ASSERT_TRUE(MakeDirectories(dir / "a").ok());
    ASSERT_TRUE(WriteFile(dir / "a/lock", "theirs").ok());
  }
  EXPECT_THAT(*ListDirectory(dir / "b"), ElementsAre("values"));
  EXPECT_THAT(*ListDirectory(dir / "a"), ElementsAre("lock"));
}

TEST(FolderLock, OfTheDeadIsTakenOver) {
  const TempDir dir;
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FolderLock::Take(dir.path());
    _exit(lock.ok() ? 0 : 1);  // as a process ends that is killed
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_THAT(*ListDirectory(dir.path()), ElementsAre("lock"));
  const auto lock = FolderLock::Take(dir.path());
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_THAT(std::string(FolderLock::Take(dir.path()).status().message()),
              HasSubstr("process " + std::to_string(getpid())));
}

// Holders remove the file, and the folder, while others are about to lock it.
TEST(FolderLock, NeverHasTwoHolders) {
  const TempDir dir;
  std::atomic<int> holders = 0, most = 0, taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        const auto lock = FolderLock::Take(dir / "run");
        if (!lock.ok()) continue;
        ++taken;
        most = std::max(most.load(), ++holders);
        std::this_thread::yield();
        --holders;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(taken, 0);
  EXPECT_EQ(most, 1);
  EXPECT_FALSE(PathExists(dir / "run/lock"));
}

Suspect Rank(int64_t compute, int64_t network = 0) {
  Suspect suspect;
  suspect.seen.beats = 10;
  suspect.seen.compute = {compute, 17, "B(" + std::to_string(compute) + ",a)"};
  if (network > 0) suspect.seen.network = {network, 17, "Reduce(0)"};
  return suspect;
}

constexpr milliseconds kPatience(60'000);

TEST(Judge, IsPatientWithTheLiving) {
  const std::vector<Suspect> ranks = {Rank(9), Rank(9), Rank(5)};
  EXPECT_THAT(Judge(ranks, milliseconds(59'999), kPatience).message, IsEmpty());
  EXPECT_THAT(Judge(ranks, milliseconds(1'000'000), milliseconds(0)).message,
              IsEmpty());
}

TEST(Judge, NamesTheDeadAtOnce) {
  std::vector<Suspect> ranks = {Rank(9), Rank(9), Rank(5)};
  ranks[0].seen.dead = true;
  for (const milliseconds patience : {kPatience, milliseconds(0)}) {
    const Verdict verdict = Judge(ranks, milliseconds(800), patience);
    EXPECT_THAT(verdict.culprits, ElementsAre(0));
    EXPECT_EQ(verdict.speaker, 1);
    EXPECT_THAT(verdict.message,
                AllOf(HasSubstr("rank 0 is gone: it was in step 17, B(9,a); "
                                "rank 1 was in step 17, B(9,a); "),
                      HasSubstr("--resume")));
  }
}

TEST(Judge, SaysWhatALivingRankWaitedInForTheDead) {
  std::vector<Suspect> ranks = {Rank(9), Rank(8), Rank(5), Rank(7)};
  ranks[0].seen.dead = ranks[2].seen.left = true;
  for (const size_t rank : {0, 2, 3}) ranks[rank].seen.compute.waits = true;
  EXPECT_THAT(Judge(ranks, milliseconds(800), kPatience).message,
              HasSubstr("rank 0 is gone: it was in step 17, waiting for B(9,a)"
                        "; rank 3 was in step 17, waiting for B(7,a); go on"));
}

TEST(Judge, NamesTheSilentBeforeTheSlow) {
  std::vector<Suspect> ranks = {Rank(9), Rank(5), Rank(9)};
  ranks[2].silent = true;
  const Verdict verdict = Judge(ranks, kPatience, kPatience);
  EXPECT_THAT(verdict.culprits, ElementsAre(2));
  EXPECT_THAT(verdict.message, AllOf(HasSubstr("rank 2 gives no sign of life"),
                                     HasSubstr("it was in step 17, B(9,a)"),
                                     HasSubstr("the others waited 60 s")));
}

// Of a rank of the tensor axis that is stopped the others wait in a visit.
TEST(Judge, SaysWhatAnotherWaitedInForWhoeverIsStoppedOrStuck) {
  std::vector<Suspect> ranks = {Rank(9), Rank(9), Rank(5)};
  ranks[1].seen.compute.what = "F(1,a) of blocks/0: gather over tensor";
  ranks[1].seen.compute.waits = true;
  const std::string kept =
      "; the others waited 60 s (run.watchdog); rank 1 was in step 17, waiting "
      "for F(1,a) of blocks/0: gather over tensor; go on";
  EXPECT_THAT(Judge(ranks, kPatience, kPatience).message,
              HasSubstr("rank 2 is stuck: it is in step 17, B(5,a)" + kept));
  ranks[2].silent = true;
  EXPECT_THAT(
      Judge(ranks, kPatience, kPatience).message,
      HasSubstr("rank 2 gives no sign of life, stopped or cut off: it was in "
                "step 17, B(5,a)" +
                kept));
}

TEST(Judge, NamesThoseBehind) {
  const Verdict one = Judge({Rank(9), Rank(5), Rank(8)}, kPatience, kPatience);
  EXPECT_THAT(one.message,
              HasSubstr("rank 1 is stuck: it is in step 17, B(5,a)"));
  const Verdict two = Judge({Rank(5), Rank(5), Rank(9)}, kPatience, kPatience);
  EXPECT_THAT(two.culprits, ElementsAre(0, 1));
  EXPECT_EQ(two.speaker, 2);
  const Verdict lane =
      Judge({Rank(5, 3), Rank(5, 2), Rank(5, 3)}, kPatience, kPatience);
  EXPECT_THAT(lane.message,
              HasSubstr("rank 1 is stuck: it is in step 17, B(5,a) (network "
                        "lane: Reduce(0))"));
}

TEST(Judge, NamesWhoLeftAndWhoNeverBegan) {
  std::vector<Suspect> ranks = {Rank(9), Rank(9)};
  ranks[1] = {.seen = {.left = true}, .silent = true};
  EXPECT_THAT(Judge(ranks, kPatience, kPatience).message,
              HasSubstr("rank 1 has ended; the others waited"));
  ranks[1] = {.seen = {.beats = 5}};
  EXPECT_THAT(Judge(ranks, kPatience, kPatience).message,
              HasSubstr("rank 1 is stuck: it is starting"));
}

// As when a run is being ended: the others have not waited for that rank.
TEST(Judge, DoesNotNameWhoLeftJustNow) {
  std::vector<Suspect> ranks = {Rank(9), Rank(5), Rank(9)};
  ranks[0].seen = {.left = true};
  const Verdict verdict = Judge(ranks, kPatience, kPatience);
  EXPECT_THAT(verdict.culprits, ElementsAre(1));
  EXPECT_EQ(verdict.speaker, 0);
}

TEST(Judge, NobodyIsGuiltyWhenAllWaitInTheSamePlace) {
  const Verdict verdict = Judge({Rank(9), Rank(9)}, kPatience, kPatience);
  EXPECT_THAT(verdict.culprits, IsEmpty());
  EXPECT_THAT(verdict.message, AllOf(HasSubstr("all are in step 17, B(9,a)"),
                                     HasSubstr("network")));
}

Suspect Waiting(int64_t compute, const std::string& what) {
  Suspect suspect = Rank(compute);
  suspect.seen.compute.what = what;
  suspect.seen.compute.waits = true;
  return suspect;
}

// Stages run programs that differ: who has begun least may be far ahead.
TEST(Judge, NamesTheStageThatDoesNotWait) {
  const std::vector<Suspect> ranks = {Waiting(9, "Recv(3,b)g of blocks/3"),
                                      Rank(30),
                                      Waiting(4, "Recv(5,a) of blocks/4")};
  for (const bool alike : {false, true}) {
    const Verdict verdict = Judge(ranks, kPatience, kPatience, alike);
    EXPECT_THAT(verdict.culprits, ElementsAre(1));
    EXPECT_EQ(verdict.speaker, 0);
    EXPECT_THAT(verdict.message,
                HasSubstr("rank 1 is stuck: it is in step 17, B(30,a); the "
                          "others waited 60 s"));
  }
  // The first stage: the lowest of the others speaks.
  const Verdict first =
      Judge({Rank(30), Waiting(9, "Norm"), Rank(2)}, kPatience, kPatience,
            /*alike=*/false);
  EXPECT_THAT(first.culprits, ElementsAre(0, 2));
  EXPECT_EQ(first.speaker, 1);
}

TEST(Judge, NamesNoStageWhereAllWait) {
  const Verdict verdict =
      Judge({Waiting(9, "Recv(3,b)g of blocks/3"),
             Waiting(4, "Recv(3,b) of blocks/2"), Waiting(7, "Norm"),
             Waiting(7, "Norm"), Waiting(7, "Norm")},
            kPatience, kPatience, /*alike=*/false);
  EXPECT_THAT(verdict.culprits, IsEmpty());
  EXPECT_THAT(
      verdict.message,
      HasSubstr("no rank has made progress for 60 s: rank 0 is in step 17, "
                "waiting for Recv(3,b)g of blocks/3; rank 1 is in step 17, "
                "waiting for Recv(3,b) of blocks/2; rank 2 is in step 17, "
                "waiting for Norm; rank 3 is in step 17, waiting for Norm; and "
                "1 more; look at the network"));
  // Nor where none does, as outside of steps.
  EXPECT_THAT(Judge({Rank(9), Rank(4)}, kPatience, kPatience, false).culprits,
              IsEmpty());
}

// Of ranks that run the same program, in which all wait or some do not.
TEST(Judge, CountsWhatWasBegunWhereProgramsAreAlike) {
  EXPECT_THAT(
      Judge({Waiting(9, "Norm"), Waiting(5, "Reduce(2)")}, kPatience, kPatience)
          .message,
      HasSubstr("rank 1 is stuck: it is in step 17, waiting for "
                "Reduce(2)"));
  EXPECT_THAT(
      Judge({Waiting(9, "Norm"), Rank(7), Rank(8)}, kPatience, kPatience)
          .culprits,
      ElementsAre(1));
  EXPECT_THAT(
      Judge({Waiting(9, "Norm"), Waiting(9, "Norm")}, kPatience, kPatience)
          .message,
      HasSubstr("all are in step 17, waiting for Norm; look at the network"));
}

// Rank 1 goes round in circles while the others wait for it in a collective.
TEST(Watchdog, EndsARunOfWhichARankIsStuck) {
  const TempDir dir;
  Mutex mutex;
  std::vector<std::string> messages;
  const absl::Status status = RunRanks(3, [&](Communicator& comm) {
    auto dog = Watchdog::Start(
        comm, {.folder = dir / "ranks",
               .patience = milliseconds(1500),
               .end = [&](std::string_view message) {
                 // Nobody is to name this rank too.
                 EXPECT_TRUE(ReadHeartbeat(dir / "ranks", comm.rank()).left);
                 {
                   const MutexLock lock(mutex);
                   messages.emplace_back(message);
                 }
                 comm.Abort(1, message);
               }});
    if (!dog.ok()) return dog.status();
    Heartbeat& heartbeat = (*dog)->heartbeat();
    heartbeat.Begin(Lane::kCompute, 4, "F(1,a) of blocks/0");
    if (comm.rank() == 1) {
      const auto told = [&] {
        const MutexLock lock(mutex);
        return !messages.empty();
      };
      while (!told()) std::this_thread::sleep_for(milliseconds(20));
      return absl::OkStatus();
    }
    heartbeat.Begin(Lane::kCompute, 4, "Norm");
    return Barrier(comm);
  });
  EXPECT_FALSE(status.ok());
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0], HasSubstr("rank 1 is stuck: it is in step 4, F(1,a) "
                                     "of blocks/0; the others waited "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 is stuck"));
}

TEST(Watchdog, LeavesARunInPeaceThatMakesProgress) {
  const TempDir dir;
  const absl::Status status = RunRanks(2, [&](Communicator& comm) {
    auto dog = Watchdog::Start(comm, {.folder = dir / "ranks",
                                      .patience = milliseconds(1000),
                                      .end = [&](std::string_view message) {
                                        comm.Abort(1, message);
                                      }});
    if (!dog.ok()) return dog.status();
    for (int i = 0; i < 20; ++i) {
      (*dog)->heartbeat().Begin(Lane::kCompute, i, "Norm");
      if (comm.rank() == 0) std::this_thread::sleep_for(milliseconds(80));
      if (absl::Status s = Barrier(comm); !s.ok()) return s;
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << std::string(status.message());
  EXPECT_FALSE(PathExists(dir / "ranks"));
}

}  // namespace
}  // namespace delink::watchdog_test
