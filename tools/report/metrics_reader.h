// metrics.jsonl (docs/cli.md) line by line into a RunRecord.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "tools/report/run_record.h"

namespace delink::report {

// Fills `run`, which outlives it. Whatever the lines are, none is an error:
// what cannot be understood is left out, and told by Finish.
class MetricsReader {
 public:
  explicit MetricsReader(RunRecord* run) : run_(run) {}

  // `whole`: it ended in a newline, as all do that were written to their end.
  void AddLine(std::string_view line, bool whole);
  // After the last line.
  void Finish();

 private:
  void AddRow(const nlohmann::json& row);
  void AddStart(const nlohmann::json& row);
  void AddSwitch(const nlohmann::json& row);
  void AddAgreement(const nlohmann::json& row);
  void AddValidation(const nlohmann::json& row);
  void AddStep(const nlohmann::json& row);
  // NaN where it was not measured again.
  void RaisePeak(double flops);
  void AddNorms(const nlohmann::json& norms, const Place& at);
  void SetSources(const nlohmann::json& sources);
  // Where a row is; moves on to its tokens, and to its stage.
  Place Move(const nlohmann::json& row);

  RunRecord* run_;
  int64_t lines_ = 0;
  std::vector<int64_t> strange_;  // lines
  int64_t torn_ = 0;              // the line; 0: none
  int64_t back_ = 0;              // rows whose step was done before
  double tokens_ = 0;
  double flops_ = 0;
  double flops_per_token_ = kUnknown;
  double peak_flops_ = kUnknown;
  size_t start_row_ = 0;  // of steps, the first since the last start
};

}  // namespace delink::report
