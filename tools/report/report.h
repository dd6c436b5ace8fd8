// `delink report`: runs side by side in one HTML file that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace delink {

struct ReportOptions {
  std::vector<std::string> runs;  // folders of runs, and of sweeps
  std::string out;  // the file; a report that is there is replaced
};

// Writes the page. Returns what is missing or odd about the runs, a line for
// each, which the page says as well. Reads the runs' folders and changes
// nothing in them, so runs may be at work.
//
// InvalidArgument, NotFound, AlreadyExists: `out` cannot be meant, and nothing
// was read. FailedPrecondition: a folder is no run, or this program was built
// without the plotting library.
absl::StatusOr<std::vector<std::string>> WriteReport(
    const ReportOptions& options);

}  // namespace delink
