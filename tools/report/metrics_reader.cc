#include "tools/report/metrics_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "framework/base/json.h"

namespace delink::report {
namespace {

double Number(const nlohmann::json& row, const char* key) {
  const auto it = row.find(key);
  return it != row.end() && it->is_number() ? it->get<double>() : kUnknown;
}

std::string Text(const nlohmann::json& row, const char* key) {
  const auto it = row.find(key);
  return it != row.end() && it->is_string() ? it->get<std::string>() : "";
}

BytesRecord Bytes(const nlohmann::json& row, const char* key) {
  const auto it = row.find(key);
  if (it == row.end() || !it->is_object()) return {};
  return {.weights = Number(*it, "weights"),
          .gradients = Number(*it, "gradients"),
          .state = Number(*it, "state"),
          .activations = Number(*it, "activations"),
          .copies = Number(*it, "copies"),
          .records = Number(*it, "records"),
          .total = Number(*it, "total")};
}

// A list of numbers, null for those that were not finite; empty for anything
// else.
std::vector<double> Numbers(const nlohmann::json& row, const char* key) {
  const auto it = row.find(key);
  std::vector<double> numbers;
  if (it == row.end() || !it->is_array()) return numbers;
  for (const nlohmann::json& number : *it) {
    numbers.push_back(number.is_number() ? number.get<double>() : kUnknown);
  }
  return numbers;
}

// A list of numbers for each layer; lists that are missing are empty.
std::vector<std::vector<double>> NumberLists(const nlohmann::json& row,
                                             const char* key, size_t layers) {
  std::vector<std::vector<double>> lists(layers);
  const auto it = row.find(key);
  if (it == row.end() || !it->is_array()) return lists;
  for (size_t layer = 0; layer < std::min(layers, it->size()); ++layer) {
    lists[layer] = Numbers({{key, (*it)[layer]}}, key);
  }
  return lists;
}

std::vector<std::string> TextList(const nlohmann::json& row, const char* key) {
  const auto it = row.find(key);
  std::vector<std::string> texts;
  if (it == row.end() || !it->is_array()) return texts;
  for (const nlohmann::json& text : *it) {
    if (!text.is_string()) return {};
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

// Quoted for a shell.
std::string ShellWords(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "%+,-./:=@_";
  std::string text;
  for (const std::string& word : words) {
    const bool plain =
        !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
    absl::StrAppend(
        &text, text.empty() ? "" : " ",
        plain ? word
              : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}),
                             "'"));
  }
  return text;
}

void AddPlace(Columns* to, const Place& at) {
  to->AddRow({{"step", at.step},
              {"tokens", at.tokens},
              {"seconds", at.seconds},
              {"flops", at.flops}});
}

// Sets a column for each number of an object of the row, if it has that.
void SetParts(const nlohmann::json& row, const char* key, const char* prefix,
              Columns* to) {
  const auto parts = row.find(key);
  if (parts == row.end() || !parts->is_object()) return;
  for (const auto& [name, number] : parts->items()) {
    if (!number.is_number()) continue;
    to->Set(absl::StrCat(prefix, name), number.get<double>());
  }
}

}  // namespace

void MetricsReader::AddLine(std::string_view line, bool whole) {
  ++lines_;
  const nlohmann::json row = ParseJson(line);
  if (row.is_object() && !std::isnan(Number(row, "step"))) {
    AddRow(row);
  } else if (!whole) {
    torn_ = lines_;
  } else {
    strange_.push_back(lines_);
  }
}

void MetricsReader::Finish() {
  const auto note = [&](std::string text) {
    run_->notes.push_back(std::move(text));
  };
  if (torn_ > 0) {
    note(absl::StrCat("metrics.jsonl: line ", torn_,
                      ", the last, is incomplete and was skipped"));
  }
  if (!strange_.empty()) {
    note(absl::StrCat("metrics.jsonl: ", strange_.size(),
                      " line(s) are not rows of metrics and were skipped; the "
                      "first is line ",
                      strange_.front()));
  }
  const std::vector<double>& shares = run_->steps.Values("peak_percent");
  const auto over = std::ranges::count_if(shares, [](double s) {
    return s > 100;  // not of NaN
  });
  if (over > 0) {
    note(absl::StrFormat(
        "%d step(s) exceeded the matmul peak, reaching up to %.0f%% of it: the "
        "peak was measured too low, as happens on a busy machine, so percents "
        "of it are too high",
        over, Largest(shares)));
  }
  if (back_ > 0) {
    note(absl::StrCat("metrics.jsonl: ", back_,
                      " row(s) repeat steps of earlier rows and were skipped"));
  }
}

void MetricsReader::AddRow(const nlohmann::json& row) {
  const std::string event = Text(row, "event");
  if (event == "start") {
    AddStart(row);
  } else if (event == "delink") {
    AddSwitch(row);
  } else if (event == "timed") {
    (void)Move(row);
    run_->stages.back().planned_step = Number(row, "planned_step_seconds");
    run_->stages.back().measured_step = Number(row, "step_seconds");
  } else if (event == "agreement") {
    AddAgreement(row);
  } else if (event == "early_end") {
    run_->ended_early = Text(row, "why");
  } else if (row.contains("validation_loss")) {
    AddValidation(row);
  } else if (row.contains("loss")) {
    AddStep(row);
  }  // else of a later version, which tells more
}

Place MetricsReader::Move(const nlohmann::json& row) {
  const double tokens = Number(row, "tokens");
  if (!std::isnan(tokens)) {
    flops_ += (tokens - tokens_) * flops_per_token_;
    tokens_ = tokens;
  }
  // The run counts them; for runs of early builds we do.
  const double flops = Number(row, "flops");
  if (!std::isnan(flops)) flops_ = flops;
  const Place at{.step = Number(row, "step"),
                 .tokens = tokens_,
                 .seconds = Number(row, "seconds"),
                 .flops = flops_};
  const std::string stage = Text(row, "stage");
  std::vector<StageRecord>& stages = run_->stages;
  if (!stage.empty() && (stages.empty() || stages.back().name != stage)) {
    // The first stage begins before its first row.
    Place begin = at;
    if (stages.empty() && Text(row, "event") != "start") {
      begin = {.step = 0, .tokens = 0, .seconds = 0, .flops = 0};
    }
    stages.push_back({.name = stage, .begin = begin});
  }
  return at;
}

void MetricsReader::AddStart(const nlohmann::json& row) {
  flops_per_token_ = Number(row, "flops_per_token");
  peak_flops_ = Number(row, "peak_flops");
  start_row_ = run_->steps.rows();
  if (run_->starts.empty() && run_->steps.rows() == 0) {
    // A run that continues another run's checkpoint has that run's FLOPs too.
    // Only the run's own count knows those of stages with other depths.
    const double tokens = Number(row, "tokens");
    tokens_ = std::isnan(tokens) ? 0 : tokens;
    flops_ = tokens_ * flops_per_token_;
  }
  const Place at = Move(row);
  run_->starts.push_back({.at = at,
                          .time = Text(row, "time"),
                          .version = Text(row, "version"),
                          .commit = Text(row, "commit"),
                          .processor = Text(row, "processor"),
                          .command = ShellWords(TextList(row, "command")),
                          .cores = Number(row, "cores"),
                          .ranks = Number(row, "ranks"),
                          .threads = Number(row, "threads"),
                          .peak_flops = peak_flops_});
  if (run_->stages.empty()) return;
  StageRecord& stage = run_->stages.back();
  stage.depth = Number(row, "depth");
  stage.unique_parameters = Number(row, "unique_parameters");
  stage.virtual_parameters = Number(row, "virtual_parameters");
  stage.bytes = Bytes(row, "bytes");
}

void MetricsReader::AddSwitch(const nlohmann::json& row) {
  const Place at{.step = Number(row, "step"),
                 .tokens = tokens_,
                 .seconds = Number(row, "seconds"),
                 .flops = flops_};
  std::vector<StageRecord>& stages = run_->stages;
  if (stages.empty()) {
    stages.push_back({.name = Text(row, "from"),
                      .begin = {.tokens = 0, .seconds = 0, .flops = 0}});
  }
  StageRecord& before = stages.back();
  // The row of a start has the right bytes for its stage; older programs wrote
  // the bytes "before" of another layout.
  if (std::isnan(before.bytes.total)) {
    before.depth = Number(row, "depth_before");
    before.unique_parameters = Number(row, "unique_parameters_before");
    before.virtual_parameters =
        Number(row, row.contains("virtual_parameters_before")
                        ? "virtual_parameters_before"
                        : "virtual_parameters");
    before.bytes = Bytes(row, "bytes_before");
  }
  stages.push_back({.name = Text(row, "to"),
                    .begin = at,
                    .why = Text(row, "why"),
                    .depth = Number(row, "depth"),
                    .unique_parameters = Number(row, "unique_parameters"),
                    .virtual_parameters = Number(row, "virtual_parameters"),
                    .loss_before = Number(row, "loss_before"),
                    .loss_after = Number(row, "loss_after"),
                    .bytes = Bytes(row, "bytes_after")});
  flops_per_token_ = Number(row, "flops_per_token");
}

void MetricsReader::AddAgreement(const nlohmann::json& row) {
  AddPlace(&run_->agreement, Move(row));
  run_->agreement.Set("rho", Number(row, "rho"));
  run_->agreement.Set("unrelated", Number(row, "agreement"));
  SetParts(row, "rho_of", "rho ", &run_->agreement);
}

void MetricsReader::AddValidation(const nlohmann::json& row) {
  AddPlace(&run_->validations, Move(row));
  run_->validations.Set("loss", Number(row, "validation_loss"));
  SetParts(row, "validation_loss_of", "loss ", &run_->validations);
}

void MetricsReader::AddStep(const nlohmann::json& row) {
  run_->ended_early.clear();  // it went on
  const std::vector<double>& steps = run_->steps.Values("step");
  if (!steps.empty() && Number(row, "step") <= steps.back()) {
    ++back_;
    return;
  }
  const Place at = Move(row);
  const double tokens_per_s = Number(row, "tokens_per_s");
  AddPlace(&run_->steps, at);
  run_->steps.Set("loss", Number(row, "loss"));
  run_->steps.Set("lr", Number(row, "lr"));
  run_->steps.Set("grad_norm", Number(row, "grad_norm"));
  run_->steps.Set("tokens_per_s", tokens_per_s);
  RaisePeak(Number(row, "peak_flops"));
  run_->steps.Set("peak_percent",
                  100 * tokens_per_s * flops_per_token_ / peak_flops_);
  if (row.value("skipped", nlohmann::json()) == true) ++run_->skipped_steps;
  // std::fmax prefers the number to the NaN.
  run_->peak_memory = std::fmax(run_->peak_memory, Number(row, "peak_memory"));
  const auto norms = row.find("norms");
  if (norms != row.end() && norms->is_object()) AddNorms(*norms, at);
  const auto routing = row.find("routing");
  if (routing != row.end() && routing->is_object()) AddRouting(*routing, at);
  const auto sources = row.find("sources");
  if (sources != row.end() && sources->is_object()) SetSources(*sources);
}

void MetricsReader::RaisePeak(double flops) {
  // All steps since the start ran on a machine with this peak.
  if (std::isnan(flops) || run_->starts.empty()) return;
  run_->steps.Scale("peak_percent", start_row_, peak_flops_ / flops);
  run_->starts.back().peak_flops = peak_flops_ = flops;
}

void MetricsReader::SetSources(const nlohmann::json& sources) {
  run_->sources.clear();
  for (const auto& [name, source] : sources.items()) {
    if (!source.is_object()) continue;
    run_->sources.push_back({.name = name,
                             .samples = Number(source, "samples"),
                             .tokens = Number(source, "tokens"),
                             .epochs = Number(source, "epochs")});
  }
}

void MetricsReader::AddNorms(const nlohmann::json& norms, const Place& at) {
  const std::vector<std::string> layers = TextList(norms, "layers");
  std::vector<double> gradient = Numbers(norms, "gradient");
  std::vector<double> weight = Numbers(norms, "weight");
  if (layers.empty()) return;
  gradient.resize(layers.size(), kUnknown);
  weight.resize(layers.size(), kUnknown);
  if (run_->norms.empty() || run_->norms.back().layers != layers) {
    run_->norms.push_back({.layers = layers});
  }
  NormsRecord& record = run_->norms.back();
  AddPlace(&record.places, at);
  record.places.Set("sum",
                    std::accumulate(gradient.begin(), gradient.end(), 0.0));
  record.gradient.push_back(std::move(gradient));
  record.weight.push_back(std::move(weight));
}

void MetricsReader::AddRouting(const nlohmann::json& routing, const Place& at) {
  constexpr std::array kQuantiles = {"least", "lower_quartile", "median",
                                     "upper_quartile", "largest"};
  constexpr size_t kMapNumbers = 200000;
  const std::vector<std::string> layers = TextList(routing, "layers");
  if (layers.empty()) return;
  if (run_->routing.empty() || run_->routing.back().layers != layers) {
    run_->routing.push_back({.layers = layers});
  }
  RoutingRecord& record = run_->routing.back();
  const auto add = [&](const char* name, std::vector<double> of_layers) {
    of_layers.resize(layers.size(), kUnknown);
    record.measures[name].push_back(std::move(of_layers));
  };
  const auto loads = NumberLists(routing, "load", layers.size());
  for (size_t i = 0; i < kQuantiles.size(); ++i) {
    std::vector<double> of_layers;
    for (const std::vector<double>& load : loads) {
      of_layers.push_back(i < load.size() ? load[i] : kUnknown);
    }
    add(kQuantiles[i], of_layers);
  }
  // Early builds left it out.
  std::vector<double> violations = Numbers(routing, "max_violation");
  if (violations.empty()) {
    for (const double load : record.measures["largest"].back()) {
      violations.push_back(load - 1);
    }
  }
  AddPlace(&record.places, at);
  record.places.Set("worst", Largest(violations));
  add("max_violation", std::move(violations));
  for (const char* name : {"dropped", "entropy", "aux_loss", "z"}) {
    add(name, Numbers(routing, name));
  }
  if (!routing.contains("choices")) return;
  LoadMap map{.step = at.step,
              .load = NumberLists(routing, "choices", layers.size())};
  for (std::vector<double>& load : map.load) {
    const double all = std::accumulate(load.begin(), load.end(), 0.0);
    for (double& x : load) x *= static_cast<double>(load.size()) / all;
  }
  record.AddMap(std::move(map), kMapNumbers);
}

}  // namespace delink::report
