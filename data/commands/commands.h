// What `delink data build`, `import`, `info`, `check` and `verify` do; the
// command line itself is in tools/.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "data/corpus/build.h"
#include "data/import/import.h"

namespace delink {

// Builds a corpus. `out` gets the table of statistics that DataInfo prints.
// `live` gets the progress: one line that is overwritten if it is a terminal,
// else one line a phase.
absl::Status DataBuild(const CorpusOptions& options, std::ostream& out,
                       std::ostream& live, bool live_is_terminal);

// Builds a corpus from token files; prints as DataBuild does.
absl::Status DataImport(const TokenImportOptions& options, std::ostream& out,
                        std::ostream& live, bool live_is_terminal);

// Prints the statistics of a corpus as a table with a column for each side.
// `dir` is the folder given to `build --out`, or one side. With `json` prints
// one object:
// {"train": {"tokens": ..., "entropy": ...}, "validation": {...}}.
absl::Status DataInfo(const std::string& dir, bool json, std::ostream& out);

// Compares every file with its digest, reads all tokens and prints what
// DataInfo does not know (data/corpus/check.h), in the same forms. DataLoss if
// something does not fit.
absl::Status DataCheck(const std::string& dir, bool json, std::ostream& out,
                       std::ostream& live, bool live_is_terminal);

// Compares every file with its digest.
absl::Status DataVerify(const std::string& dir, std::ostream& out);

}  // namespace delink
