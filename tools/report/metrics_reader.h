// Reads metrics.jsonl (docs/cli.md) line by line into a RunRecord.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "tools/report/run_record.h"

namespace delink::report {

// Fills `run`, which must outlive it. No line is an error: lines that cannot be
// understood are left out, and Finish notes them.
class MetricsReader {
 public:
  explicit MetricsReader(RunRecord* run) : run_(run) {}

  // `whole`: the line ends in a newline, so it was written completely.
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
  // NaN: it was not measured again.
  void RaisePeak(double flops);
  void AddNorms(const nlohmann::json& norms, const Place& at);
  void AddRouting(const nlohmann::json& routing, const Place& at);
  void SetSources(const nlohmann::json& sources);
  // The place of a row; advances the tokens and the stage to it.
  Place Move(const nlohmann::json& row);

  RunRecord* run_;
  int64_t lines_ = 0;
  std::vector<int64_t> strange_;  // lines that were not understood
  int64_t torn_ = 0;              // the incomplete line; 0: none
  int64_t back_ = 0;              // rows of steps that were already done
  double tokens_ = 0;
  double flops_ = 0;
  double flops_per_token_ = kUnknown;
  double peak_flops_ = kUnknown;
  size_t start_row_ = 0;  // of steps: the first row since the last start
};

}  // namespace delink::report
