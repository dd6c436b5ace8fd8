// The page as a file; what it looks like is browser.py's to see.
#include "tools/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"
#include "tools/report/report.h"

namespace delink::page_test {
namespace {

using ::delink::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kRow[] =
    R"({"step":1,"tokens":64,"stage":"</script><b>","loss":2.5})"
    "\n";

class Report : public ::testing::Test {
 protected:
  void SetUp() override {
    if (report::PlotLibrary().empty()) {
      GTEST_SKIP() << "SKIPPED: built without Chart.js";
    }
    for (const char* run : {"a/run", "b/run"}) {
      ASSERT_TRUE(MakeDirectories(dir_ / run).ok());
      ASSERT_TRUE(WriteFile(dir_ / run + "/metrics.jsonl", kRow).ok());
      ASSERT_TRUE(WriteFile(dir_ / run + "/recipe.toml",
                            "[schedule]\nsteps = 1\n[run]\nseed = " +
                                std::to_string(run[0]) + "\n")
                      .ok());
    }
  }
  absl::Status Make(const std::string& out) {
    return WriteReport(
               {.runs = {dir_ / "a/run", dir_ / "b/run"}, .out = dir_ / out})
        .status();
  }

  TempDir dir_;
};

// The data element of a page, parsed.
nlohmann::json DataOf(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at),
                               nullptr, false);
}

TEST_F(Report, IsOneFileWithEverythingInIt) {
  ASSERT_TRUE(Make("report.html").ok());
  const std::string page = *ReadFile(dir_ / "report.html");
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
  for (const char* asks : {"src=\"", "@import", "url(", "fetch("}) {
    EXPECT_THAT(page, Not(HasSubstr(asks)));
  }
  // The license of what it embeds asks for that.
  EXPECT_THAT(page, AllOf(HasSubstr("Chart.js Contributors"),
                          HasSubstr("The above copyright notice and this "
                                    "permission notice shall be included")));
  const nlohmann::json data = DataOf(page);
  ASSERT_TRUE(data.is_object());
  ASSERT_EQ(data["runs"].size(), 2u);
  EXPECT_EQ(data["runs"][0]["name"], "a/run");
  EXPECT_EQ(data["runs"][1]["name"], "b/run");
  EXPECT_EQ(data["runs"][0]["stages"][0]["name"], "</script><b>");
  EXPECT_EQ(data["differences"][0]["key"], "run.seed");
}

TEST_F(Report, OurOwnPartsAskNothingOfAnyHost) {
  for (const std::string_view part :
       {report::PageHtml(), report::PageStyle(), report::PageScript()}) {
    EXPECT_THAT(std::string(part),
                AllOf(Not(HasSubstr("http:")), Not(HasSubstr("https:"))));
  }
  EXPECT_THAT(std::string(report::PageScript()), Not(HasSubstr("</script")));
  EXPECT_THAT(std::string(report::PlotLibrary()),
              AllOf(HasSubstr("Chart.js v3"), Not(HasSubstr("</script"))));
}

TEST_F(Report, ReplacesAPageAndNothingElse) {
  ASSERT_TRUE(Make("report.html").ok());
  EXPECT_TRUE(Make("report.html").ok());
  ASSERT_TRUE(WriteFile(dir_ / "thesis.txt", "It begins").ok());
  EXPECT_EQ(Make("thesis.txt").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*ReadFile(dir_ / "thesis.txt"), "It begins");
  EXPECT_EQ(Make("a/run/metrics.jsonl").code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(Report, AnOutThatCannotBeIsToldBeforeAnythingIsRead) {
  EXPECT_EQ(Make("a").code(), absl::StatusCode::kInvalidArgument);
  const absl::Status status = Make("nowhere/report.html");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("there is no folder " + (dir_ / "nowhere")));
}

TEST_F(Report, ARunNamedTwiceIsShownOnce) {
  const auto said = WriteReport(
      {.runs = {dir_ / "a/run", dir_ / "b/../a/run/"}, .out = dir_ / "r.html"});
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_THAT(*said, ElementsAre(HasSubstr("named twice")));
  EXPECT_EQ(DataOf(*ReadFile(dir_ / "r.html"))["runs"].size(), 1u);
}

TEST_F(Report, NamesNeedNotBeUtf8) {
  const std::string odd = dir_ / "b/\xff<i>";
  ASSERT_TRUE(Rename(dir_ / "b/run", odd).ok());
  const auto said = WriteReport({.runs = {odd}, .out = dir_ / "r.html"});
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(DataOf(*ReadFile(dir_ / "r.html"))["runs"][0]["name"],
            "\xef\xbf\xbd<i>");
}

TEST(MakePage, DataCannotEndItsElement) {
  const std::string page = report::MakePage(R"({"a":"</script><!--"})");
  EXPECT_THAT(page, HasSubstr(R"({"a":"\u003c/script>\u003c!--"})"));
}

}  // namespace
}  // namespace delink::page_test
