#include "tools/report/report.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "recipes/record/environment.h"
#include "tools/report/page.h"
#include "tools/report/report_data.h"
#include "tools/report/run_record.h"
#include "tools/report/sweep_table.h"

namespace delink {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Whether a file may be replaced: it is a page or empty.
bool IsPage(const std::string& path) {
  constexpr std::string_view kBegin = "<!doctype html>";
  std::ifstream in(path, std::ios::binary);
  std::string begin(kBegin.size(), '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(in.gcount()));
  return begin.empty() || begin == kBegin;
}

absl::Status CheckOut(const std::string& out) {
  const std::string folder = ParentPath(out);
  if (!IsDirectory(folder)) {
    return absl::NotFoundError(
        absl::StrCat(out, ": there is no folder ", folder,
                     "; make it, or choose another --out"));
  }
  if (IsDirectory(out)) {
    return absl::InvalidArgumentError(
        absl::StrCat(out, ": is a folder; name a file, such as ",
                     JoinPath(out, "report.html")));
  }
  if (PathExists(out) && !IsPage(out)) {
    return absl::AlreadyExistsError(absl::StrCat(
        out, ": exists and is not an HTML page; choose another --out"));
  }
  return absl::OkStatus();
}

// The given runs and those of the given sweeps, whose tables go to `sweeps`.
absl::StatusOr<std::vector<std::string>> RunFolders(
    const std::vector<std::string>& named, Json* sweeps) {
  std::vector<std::string> runs;
  for (const std::string& folder : named) {
    if (!report::HoldsSweep(folder)) {
      runs.push_back(folder);
      continue;
    }
    DELINK_ASSIGN_OR_RETURN(Json sweep, report::SweepJson(folder));
    sweeps->push_back(std::move(sweep));
    DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> inside,
                            report::RunsOfSweep(folder));
    runs.insert(runs.end(), inside.begin(), inside.end());
  }
  return runs;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> WriteReport(
    const ReportOptions& options) {
  DELINK_RETURN_IF_ERROR(CheckOut(options.out));
  if (report::PlotLibrary().empty()) {
    return absl::FailedPreconditionError(
        "this delink was built without the library that draws plots; install "
        "libjs-chart.js (tools/install_deps.sh does) and build again");
  }
  std::vector<report::RunRecord> runs;
  std::vector<std::string> said;
  std::set<fs::path> seen;
  Json sweeps = Json::array();
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> folders,
                          RunFolders(options.runs, &sweeps));
  for (const std::string& folder : folders) {
    std::error_code error;
    if (!seen.insert(fs::weakly_canonical(folder, error)).second) {
      said.push_back(
          absl::StrCat(folder, ": was named twice; it is shown once"));
      continue;
    }
    DELINK_ASSIGN_OR_RETURN(report::RunRecord run, report::ReadRun(folder));
    runs.push_back(std::move(run));
  }
  report::NameRuns(&runs);
  Json data = {{"version", DelinkVersion()}, {"time", UtcNow()}};
  data["runs"] = Json::array();
  for (const report::RunRecord& run : runs) {
    data["runs"].push_back(report::ToJson(run));
    for (const std::string& note : run.notes) {
      said.push_back(absl::StrCat(run.folder, ": ", note));
    }
  }
  data["sweeps"] = std::move(sweeps);
  data["differences"] = report::RecipeDifferences(runs);
  const std::string text = JsonText(data);
  DELINK_RETURN_IF_ERROR(
      WriteFileAtomically(options.out, report::MakePage(text)));
  return said;
}

}  // namespace delink
