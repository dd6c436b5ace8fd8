// The stages of a pipeline as a table, in the log and in plans.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace delink {

struct PipelineRow {
  std::vector<int> ranks;  // ascending
  std::string layers;      // "embed,blocks/0..2"
  int64_t parameters = 0;  // of its slabs, including shared ones
};

// A cell for each row.
struct TableColumn {
  std::string heading;
  std::vector<std::string> cells;
};

// A row per pipeline stage: its number, ranks, layers and parameters, then the
// columns `besides`. Each line ends with a newline.
std::string PipelineTable(const std::vector<PipelineRow>& rows,
                          const std::vector<TableColumn>& besides = {});

}  // namespace delink
