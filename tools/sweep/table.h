// The table of a sweep: one row a run, read from the runs' folders.
#pragma once

#include <string>
#include <vector>

#include "tools/sweep/spec.h"

namespace delink::sweep {

struct Row {
  std::string name;
  // "waiting", "running", "finished", "early" (ended before its last step),
  // "cut" (can be resumed) or "failed".
  std::string status = "waiting";
  std::string error;                  // its first line
  std::vector<std::string> settings;  // values of the table's settings
  std::vector<double> measures;       // of the table's measures; NaN: unknown
};

struct Table {
  std::vector<std::string> settings;  // axes, and "seed" last if there are any
  std::vector<std::string> measures;
  std::vector<Row> rows;
};

// A table in which all runs wait.
Table EmptyTable(const Spec& spec, const std::vector<GridRun>& runs);

// Fills a row's measures from the folder of its run, and its status if the
// folder shows it: "finished", "early", "cut" or "waiting".
void ReadRow(const Spec& spec, const std::string& folder, Row* row);

// The first error in a run's output; else the message of mpirun between rows of
// dashes; else the last line.
std::string FirstError(const std::string& output);

// ToCsv: RFC 4180, with a header. ToJson: the file that `delink report` reads.
std::string ToCsv(const Table& table);
std::string ToJson(const Table& table);

// The settings of a table that ToJson wrote, and its rows with only their
// names. If `json` is something else, there are no rows.
Table NamesFromJson(const std::string& json);

}  // namespace delink::sweep
