// `delink report`: shows runs side by side in one self-contained HTML file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace delink {

struct ReportOptions {
  std::vector<std::string> runs;  // folders of runs, and of sweeps
  std::string out;                // the file; an existing report is replaced
};

// Writes the page. Returns one line for each thing that is missing or odd about
// the runs; the page shows these lines too. It changes nothing in the runs'
// folders, so the runs may still be running.
//
// InvalidArgument, NotFound, AlreadyExists: `out` is wrong, and nothing was
// read. FailedPrecondition: a folder is not a run, or this program was built
// without the plotting library.
absl::StatusOr<std::vector<std::string>> WriteReport(
    const ReportOptions& options);

}  // namespace delink
