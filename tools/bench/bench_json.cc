// Converts a report to JSON and back. Catches the JSON library's exceptions.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/json.h"
#include "offload/rates/param_forms.h"
#include "recipes/record/stage_text.h"
#include "tools/bench/bench.h"

namespace delink::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "delink-bench";
constexpr int kFormatVersion = 1;

const char* Bound(bool memory) { return memory ? "memory" : "arithmetic"; }

Json MachineJson(const Machine& m) {
  Json matmul = Json::array();
  for (const MatmulPeak& peak : m.matmul) {
    matmul.push_back({{"dtype", ToString(peak.dtype)},
                      {"flops_per_s", peak.flops_per_s},
                      {"size", peak.size}});
  }
  return {{"device", m.device},
          {"processor", m.processor},
          {"host", m.host},
          {"cores", m.cores},
          {"threads", m.threads},
          {"memory_bytes", m.memory_bytes},
          {"cache_bytes", m.cache_bytes},
          {"load", m.load},
          {"matmul", std::move(matmul)},
          {"bandwidth",
           {{"read_bytes_per_s", m.bandwidth.read},
            {"triad_bytes_per_s", m.bandwidth.triad},
            {"array_bytes", m.bandwidth.bytes}}},
          {"disk",
           {{"direct", m.disk.direct},
            {"bytes", m.disk.bytes},
            {"write_bytes_per_s", m.disk.write},
            {"read_bytes_per_s", m.disk.read},
            {"both_write_bytes_per_s", m.disk.both_write},
            {"both_read_bytes_per_s", m.disk.both_read}}}};
}

Json TimingJson(const Timing& t) {
  return {{"median", t.median},
          {"low", t.low},
          {"high", t.high},
          {"samples", t.samples}};
}

void AddWork(const Work& work, bool memory_bound, double peak, Json* json) {
  json->update({{"flops", work.flops},
                {"read_bytes", work.read},
                {"written_bytes", work.written},
                {"bound", Bound(memory_bound)},
                {"percent_of_peak", 100 * peak}});
}

Json OpJson(const OpMeasure& op) {
  Json json = {{"name", op.name},
               {"shape", op.shape},
               {"dtype", ToString(op.dtype)},
               {"kernel", op.work.kernel},
               {"seconds", TimingJson(op.seconds)}};
  AddWork(op.work, op.memory_bound, op.peak, &json);
  return json;
}

Json KernelsJson(const StepMeasure& s) {
  Json kernels = Json::array();
  for (const KernelShare& k : s.kernels) {
    Json json = {{"layer", k.layer},
                 {"kernel", k.kernel},
                 {"calls", k.calls},
                 {"seconds", k.seconds},
                 {"percent_of_step", 100 * k.share}};
    AddWork(k.work, k.memory_bound, k.peak, &json);
    kernels.push_back(std::move(json));
  }
  return kernels;
}

Json CaseJson(const StepCase& step) {
  return {{"shape", step.shape},
          {"seq", step.seq},
          {"batch", step.batch},
          {"share", step.share},
          {"depth", step.depth},
          {"precision", step.precision},
          {"recompute", step.recompute},
          {"distinct", step.distinct},
          {"set", step.sets}};
}

Json StepJson(const StepMeasure& s) {
  Json json = CaseJson(s.step);
  json.update({{"unique_parameters", s.unique_parameters},
               {"virtual_parameters", s.virtual_parameters},
               {"active_parameters", s.active_parameters},
               {"seconds", TimingJson(s.seconds)},
               {"tokens_per_s", s.tokens_per_s},
               {"flops", s.flops},
               {"percent_of_peak", 100 * s.peak},
               {"percent_of_light", 100 * s.light},
               {"parts",
                {{"forward", s.parts.forward},
                 {"head", s.parts.head},
                 {"backward", s.parts.backward},
                 {"reduce", s.parts.reduce},
                 {"norm", s.parts.norm},
                 {"update", s.parts.update},
                 {"zeroing", s.parts.zeroing},
                 {"other", s.parts.other}}},
               {"blocks",
                {{"update", s.blocks.update},
                 {"reduce", s.blocks.reduce},
                 {"norm", s.blocks.norm},
                 {"zeroing", s.blocks.zeroing},
                 {"total", s.blocks.total()}}},
               {"kernels", KernelsJson(s)},
               {"memory", ToJson(s.memory)},
               {"resident_before_bytes", s.resident_before},
               {"peak_resident_bytes", s.peak_resident},
               {"allocated_bytes", s.allocated_bytes},
               {"device_bytes", s.device_bytes},
               {"loss", s.loss}});
  return json;
}

Json GainsJson(const BenchReport& report) {
  Json gains = Json::array();
  for (const SharingGain& gain : SharingGains(report.steps)) {
    Json json = CaseJson(gain.step);
    json.erase("share");
    json.erase("depth");
    json.update({{"share", gain.share},
                 {"separate_seconds", gain.separate},
                 {"shared_seconds", gain.shared},
                 {"ratio", gain.separate / gain.shared}});
    gains.push_back(std::move(json));
  }
  return gains;
}

Json RatiosJson(const BenchReport& report) {
  Json ratios = Json::array();
  for (const DepthRatios& r : RatiosOfDepth(report.steps)) {
    Json json = CaseJson(r.step);
    json.update({{"planned_flops_ratio", r.flops},
                 {"seconds_ratio", r.seconds},
                 {"planned_bytes_ratio", r.bytes},
                 {"allocated_bytes_ratio", r.allocated}});
    ratios.push_back(std::move(json));
  }
  return ratios;
}

Json TimesJson(const UpdateTimes& t) {
  return {{"fused_seconds", TimingJson(t.fused)},
          {"three_passes_seconds", TimingJson(t.three_passes)},
          {"memory_seconds", TimingJson(t.memory)},
          {"three_passes_ratio", TimingJson(t.ratio)},
          {"of_memory_ratio", TimingJson(t.of_memory)}};
}

Json UpdatesJson(const std::vector<UpdateMeasure>& measures) {
  Json updates = Json::array();
  for (const UpdateMeasure& u : measures) {
    updates.push_back({{"master", offload::WordOf(u.form.master)},
                       {"moments", offload::WordOf(u.form.moments)},
                       {"threads", u.threads},
                       {"parameters", u.parameters},
                       {"bytes_per_parameter", u.bytes},
                       {"memory_past_caches", u.past_caches},
                       {"wall", TimesJson(u.wall)},
                       {"processor", TimesJson(u.processor)}});
  }
  return updates;
}

DType DTypeOf(const std::string& name) {
  for (const DType dtype : {DType::kBF16, DType::kF64}) {
    if (name == ToString(dtype)) return dtype;
  }
  return DType::kF32;
}

Timing ReadTiming(const Json& json) {
  return {.median = json.at("median"),
          .low = json.at("low"),
          .high = json.at("high"),
          .samples = json.at("samples")};
}

Machine ReadMachine(const Json& json) {
  // Older files have no device; they are from the CPU.
  Machine m{.device = json.value("device", "cpu"),
            .processor = json.at("processor"),
            .host = json.value("host", ""),
            .cores = json.at("cores"),
            .threads = json.at("threads"),
            .memory_bytes = json.at("memory_bytes"),
            .cache_bytes = json.at("cache_bytes"),
            .load = json.at("load")};
  for (const Json& peak : json.at("matmul")) {
    m.matmul.push_back({.dtype = DTypeOf(peak.at("dtype")),
                        .flops_per_s = peak.at("flops_per_s"),
                        .size = peak.at("size")});
  }
  m.bandwidth = {.read = json.at("bandwidth").at("read_bytes_per_s"),
                 .triad = json.at("bandwidth").at("triad_bytes_per_s"),
                 .bytes = json.at("bandwidth").at("array_bytes")};
  return m;
}

OpMeasure ReadOp(const Json& json) {
  return {.name = json.at("name"),
          .shape = json.at("shape"),
          .dtype = DTypeOf(json.at("dtype")),
          .seconds = ReadTiming(json.at("seconds")),
          .peak = json.at("percent_of_peak").get<double>() / 100};
}

StepMeasure ReadStep(const Json& json) {
  StepMeasure s{.step = {.shape = json.at("shape"),
                         .seq = json.at("seq"),
                         .batch = json.at("batch"),
                         .share = json.at("share"),
                         .depth = json.value("depth", int64_t{0}),
                         .precision = json.at("precision"),
                         .recompute = json.at("recompute"),
                         .distinct = json.value("distinct", int64_t{0}),
                         .sets = json.value("set", Json::array())},
                .seconds = ReadTiming(json.at("seconds")),
                .tokens_per_s = json.at("tokens_per_s")};
  s.peak = json.at("percent_of_peak").get<double>() / 100;
  return s;
}

BenchReport ReadWhole(const Json& json) {
  BenchReport report{.version = json.at("version"),
                     .time = json.at("time"),
                     .quick = json.at("quick"),
                     .machine = ReadMachine(json.at("machine"))};
  for (const Json& op : json.at("ops")) report.ops.push_back(ReadOp(op));
  for (const Json& step : json.at("steps")) {
    report.steps.push_back(ReadStep(step));
  }
  return report;
}

absl::Status NotAReport(const std::string& origin, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(
      origin, ": ", why, "; give a file that delink bench --json has written"));
}

}  // namespace

std::string ToJson(const BenchReport& report) {
  Json ops = Json::array(), steps = Json::array();
  for (const OpMeasure& op : report.ops) ops.push_back(OpJson(op));
  for (const StepMeasure& step : report.steps) steps.push_back(StepJson(step));
  const Json json = {{"format", kFormat},
                     {"format_version", kFormatVersion},
                     {"version", report.version},
                     {"time", report.time},
                     {"quick", report.quick},
                     {"machine", MachineJson(report.machine)},
                     {"ops", std::move(ops)},
                     {"steps", std::move(steps)},
                     {"sharing", GainsJson(report)},
                     {"depths", RatiosJson(report)},
                     {"updates", UpdatesJson(report.updates)}};
  return JsonText(json, 1) + "\n";
}

absl::StatusOr<BenchReport> ReadReport(const std::string& text,
                                       const std::string& origin) {
  try {
    const Json json = ParseOrderedJson(text, /*throws=*/true);
    if (!json.is_object() || json.value("format", "") != kFormat) {
      return NotAReport(origin,
                        "is JSON, but not a measurement of delink bench");
    }
    const int version = json.at("format_version");
    if (version != kFormatVersion) {
      return NotAReport(origin, absl::StrCat("has format ", version,
                                             ", but this program reads format ",
                                             kFormatVersion));
    }
    return ReadWhole(json);
  } catch (const Json::parse_error& error) {
    // If the end is missing, the error is one byte past the text.
    return NotAReport(origin, absl::StrCat("is not whole JSON (byte ",
                                           std::min(error.byte, text.size()),
                                           " of ", text.size(), ")"));
  } catch (const Json::exception& error) {
    return NotAReport(
        origin, absl::StrCat("has a missing or wrong value: ", error.what()));
  }
}

}  // namespace delink::bench
