// The stages of a pipeline as a table, in the log and in plans.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace delink {

struct PipelineRow {
  std::vector<int> ranks;  // ascending
  std::string layers;      // "embed,blocks/0..2"
  int64_t parameters = 0;  // of its slabs, also those that other stages have
};

// A cell for each row.
struct TableColumn {
  std::string heading;
  std::vector<std::string> cells;
};

// By stage of the pipeline: its number, ranks, layers and parameters, and what
// there is besides. Lines, each with its newline.
std::string PipelineTable(const std::vector<PipelineRow>& rows,
                          const std::vector<TableColumn>& besides = {});

}  // namespace delink
