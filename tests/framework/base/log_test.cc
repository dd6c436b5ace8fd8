#include "framework/base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/printable.h"

namespace delink::log_test {
namespace {

int g_clears = 0;
void CountClears() { ++g_clears; }

// Puts the sink, which is the process's, back as it was.
class LogTest : public testing::Test {
 protected:
  ~LogTest() override {
    SetLogRank(0);
    SetLogLevel(LogLevel::kInfo);
    SetLogFile("");
    SetLogTerminalHook(nullptr);
  }

  std::string path() const {
    return testing::TempDir() + "/delink_log_test_" +
           testing::UnitTest::GetInstance()->current_test_info()->name();
  }
};

TEST_F(LogTest, ShowsLessThanItKeeps) {
  ASSERT_TRUE(RemoveAll(path()).ok());
  ASSERT_TRUE(SetLogFile(path()));
  testing::internal::CaptureStderr();
  LogLine(LogLevel::kWarning, "all of it", "some");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: some\n");
  EXPECT_EQ(*ReadFile(path()), "warning: all of it\n");
}

TEST_F(LogTest, WritesOneLineWithLevelAndRank) {
  testing::internal::CaptureStderr();
  DELINK_LOG(kInfo) << "step " << 7;
  DELINK_LOG(kWarning) << "slow";
  SetLogRank(2);
  DELINK_LOG(kError) << "gone";
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "step 7\nwarning: slow\nrank 2: error: gone\n");
}

TEST_F(LogTest, TellsATerminalNothingButText) {
  testing::internal::CaptureStderr();
  DELINK_LOG(kInfo) << "a\x1b[31mb\rc\x7f\u009b2Jd\te\nf \u00e9 \u4e00";
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "a\\u001b[31mb\\u000dc\\u007f\\u009b2Jd\te\nf \u00e9 \u4e00\n");
  EXPECT_EQ(Printable("\xc2"), "\xc2");  // cut short
}

TEST_F(LogTest, DropsWhatIsBelowTheLevel) {
  testing::internal::CaptureStderr();
  DELINK_LOG(kDebug) << "detail";
  SetLogLevel(LogLevel::kDebug);
  DELINK_LOG(kDebug) << "asked for";
  SetLogLevel(LogLevel::kError);
  DELINK_LOG(kWarning) << "quiet";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "debug: asked for\n");
}

TEST_F(LogTest, AppendsToAFileUntilItIsClosed) {
  ASSERT_TRUE(RemoveAll(path()).ok());
  testing::internal::CaptureStderr();
  ASSERT_TRUE(SetLogFile(path()));
  DELINK_LOG(kInfo) << "first";
  ASSERT_TRUE(SetLogFile(""));
  DELINK_LOG(kInfo) << "to the terminal alone";
  ASSERT_TRUE(SetLogFile(path()));
  DELINK_LOG(kInfo) << "second";
  ASSERT_TRUE(SetLogFile(""));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "first\nto the terminal alone\nsecond\n");
  EXPECT_EQ(ReadFile(path()).value(), "first\nsecond\n");
  ASSERT_TRUE(RemoveAll(path()).ok());
}

TEST_F(LogTest, SaysWhenTheFileCannotBeOpened) {
  EXPECT_FALSE(SetLogFile(path() + "/no/such/folder"));
}

TEST_F(LogTest, ClearsTheLiveLineFirst) {
  testing::internal::CaptureStderr();
  g_clears = 0;
  SetLogTerminalHook(&CountClears);
  DELINK_LOG(kDebug) << "dropped";
  EXPECT_EQ(g_clears, 0);
  DELINK_LOG(kInfo) << "written";
  EXPECT_EQ(g_clears, 1);
  testing::internal::GetCapturedStderr();
}

TEST_F(LogTest, LinesOfThreadsStayWhole) {
  constexpr int kThreads = 4, kLines = 200;
  const std::string text(100, 'x');
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kLines; ++i) DELINK_LOG(kInfo) << text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string expected;
  for (int i = 0; i < kThreads * kLines; ++i) expected += text + "\n";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), expected);
}

}  // namespace
}  // namespace delink::log_test
