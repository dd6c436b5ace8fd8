// The table of a sweep: one row a run, read from the runs' folders.
#pragma once

#include <string>
#include <vector>

#include "tools/sweep/spec.h"

namespace delink::sweep {

struct Row {
  std::string name;
  // "waiting", "running", "finished", "early" (before its last step), "cut"
  // (it can go on) or "failed".
  std::string status = "waiting";
  std::string error;                  // the first line of one
  std::vector<std::string> settings;  // as the table's
  std::vector<double> measures;       // as the table's; NaN: not known
};

struct Table {
  std::vector<std::string> settings;  // axes, and "seed" last if there are any
  std::vector<std::string> measures;
  std::vector<Row> rows;
};

// A table of runs that wait.
Table EmptyTable(const Spec& spec, const std::vector<GridRun>& runs);

// Fills a row's measures from what the folder of its run tells, and its status
// where that is clear from there: "finished", "early", "cut" or "waiting".
void ReadRow(const Spec& spec, const std::string& folder, Row* row);

// The first error of what a run printed; else what mpirun says between rows of
// dashes; else the last line.
std::string FirstError(const std::string& output);

// RFC 4180, with a head; and what `delink report` reads.
std::string ToCsv(const Table& table);
std::string ToJson(const Table& table);

// The settings of what ToJson wrote, and its rows with their names alone. No
// rows where it is something else.
Table NamesFromJson(const std::string& json);

}  // namespace delink::sweep
