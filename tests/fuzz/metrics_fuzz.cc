// The metrics.jsonl of a run, as `delink report` reads it: whatever it holds,
// there is a report.
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz_target.h"
#include "tools/report/metrics_reader.h"
#include "tools/report/report_data.h"

namespace delink::fuzz {

std::vector<std::string> Seeds() {
  return {R"({"event":"start","step":0,"tokens":0,"stage":"pseudo","cores":2,)"
          R"("peak_flops":1e9,"flops_per_token":1e3,"unique_parameters":10,)"
          R"("bytes":{"weights":1,"total":4},"seconds":0.1})"
          "\n"
          R"({"step":1,"tokens":64,"stage":"pseudo","loss":2.5,"lr":0.1,)"
          R"("grad_norm":1.5,"seconds":0.5,"tokens_per_s":128,"peak_memory":9,)"
          R"("norms":{"layers":["a","b"],"gradient":[1,null],"weight":[2,3]}})"
          "\n"
          R"({"event":"agreement","step":1,"tokens":64,"stage":"pseudo",)"
          R"("agreement":2,"rho":0.5,"rho_of":{"mlp":0.25},"seconds":0.6})"
          "\n",
          R"({"event":"delink","step":1,"from":"pseudo","to":"real",)"
          R"("loss_before":2.5,"loss_after":2.5,"bytes_before":{"total":1},)"
          R"("bytes_after":{"total":2},"flops_per_token":1e3,"seconds":0.7})"
          "\n"
          R"({"step":2,"tokens":128,"stage":"real","loss":2.25,"seconds":1})"
          "\n"
          R"({"step":2,"tokens":128,"stage":"real","validation_loss":2.5})"
          "\n",
          ""};
}

std::vector<std::string> Words() {
  return {"{",          "}",          "[]",        "[",          "]",
          "null",       "true",       "-1",        "1e308",      "1e999",
          "\"\"",       ":",          ",",         "\n",         "\"step\":3",
          "\"loss\"",   "\"event\"",  "\"start\"", "\"delink\"", "\"norms\"",
          "\"layers\"", "\"rho_of\"", "\"stage\"", "\"tokens\"", "\xff"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  report::RunRecord run;
  report::MetricsReader reader(&run);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    reader.AddLine(text.substr(0, end), end != std::string_view::npos);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  reader.Finish();
  const size_t rows = run.steps.rows();
  for (const report::Columns::Column& column : run.steps.all()) {
    DELINK_CHECK(column.values.size() == rows);
  }
  const std::string json = report::ToJson(run).dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  DELINK_CHECK(nlohmann::json::accept(json));
  return 0;
}

}  // namespace delink::fuzz
