#include "parallel/watch/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace delink::signals_test {
namespace {

TEST(Signals, AreRememberedWhileSomebodyCatches) {
  auto first = std::make_unique<SignalCatcher>();
  EXPECT_EQ(StopSignal(), 0);
  EXPECT_EQ(SaveRequests(), 0);
  raise(SIGUSR1);
  raise(SIGUSR1);
  EXPECT_EQ(SaveRequests(), 2);
  raise(SIGINT);
  {
    const SignalCatcher second;  // of another rank that is a thread
    EXPECT_EQ(StopSignal(), SIGINT);
  }
  EXPECT_EQ(StopSignal(), SIGINT);
  first.reset();
  const SignalCatcher afresh;
  EXPECT_EQ(StopSignal(), 0);
}

TEST(SignalsDeathTest, TheSecondEndsAtOnce) {
  EXPECT_EXIT(
      {
        const SignalCatcher catcher;
        raise(SIGINT);
        raise(SIGTERM);
        exit(0);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(SignalsDeathTest, AfterwardsTheyDoWhatTheyDid) {
  EXPECT_EXIT(
      {
        { const SignalCatcher catcher; }
        raise(SIGTERM);
        exit(0);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(SignalsDeathTest, WritesFailInPlaceOfTheProcess) {
  EXPECT_EXIT(
      {
        LetWritesFail();
        int ends[2];
        if (pipe(ends) != 0 || close(ends[0]) != 0) exit(1);
        const bool failed = write(ends[1], "x", 1) < 0 && errno == EPIPE;
        raise(SIGXFSZ);
        exit(failed ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        LetWritesFail();
        EndOfBrokenPipe();
      },
      ::testing::KilledBySignal(SIGPIPE), "");
}

TEST(Signals, HaveNames) { EXPECT_EQ(SignalName(SIGTERM), "SIGTERM"); }

}  // namespace
}  // namespace delink::signals_test
