// A plan in words and in JSON.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/json.h"
#include "recipes/plan/machine_report.h"
#include "recipes/plan/offload_plan.h"
#include "recipes/plan/pipeline_report.h"
#include "recipes/plan/plan.h"
#include "recipes/plan/pseudo_plan.h"
#include "recipes/plan/traced_report.h"
#include "recipes/record/progress.h"
#include "recipes/record/stage_text.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

// Instructions of all stages of the pipeline by op, in the order of their first
// appearance.
std::vector<std::pair<std::string, int64_t>> CountOps(
    const PipelinePlan& pipeline) {
  std::vector<std::pair<std::string, int64_t>> counts;
  std::map<Op, size_t> place;
  for (const PipelineStagePlan& stage : pipeline.stages) {
    for (const Instruction& at : stage.program.instructions) {
      const auto [it, fresh] = place.emplace(at.op, counts.size());
      if (fresh) counts.emplace_back(ToString(at.op), 0);
      ++counts[it->second].second;
    }
  }
  return counts;
}

int64_t CountInstructions(const PipelinePlan& pipeline) {
  int64_t count = 0;
  for (const PipelineStagePlan& stage : pipeline.stages) {
    count += static_cast<int64_t>(stage.program.instructions.size());
  }
  return count;
}

Json ByName(const std::vector<MemoryLedger::Entry>& taken) {
  Json json = Json::object();
  for (const MemoryLedger::Entry& entry : taken) {
    json[entry.kind] = entry.bytes;
  }
  return json;
}

// Formats a lower bound of a time.
std::string LeastText(double seconds) {
  if (seconds < 0.9995) return absl::StrFormat("%.3g ms", 1e3 * seconds);
  if (seconds < 59.95) return absl::StrFormat("%.3g s", seconds);
  return FormatSeconds(seconds);
}

std::string FlopsText(const RunPlan& plan, const StagePlan& s) {
  std::string text = absl::StrCat(
      "  ", FormatFlops(s.flops_per_token), " a token, ",
      FormatFlops(s.flops_per_step), " a step of ", s.micro_batches, " x ",
      s.micro_batch, " sequences on each of ", s.mesh.data,
      s.mesh.data < s.mesh.ranks() ? " data rank(s), " : " rank(s), ",
      FormatFlops(s.flops()), " in all\n");
  if (plan.peak_flops > 0) {
    absl::StrAppend(&text, "  at least ",
                    LeastText(plan.LeastSeconds(s.flops_per_step)),
                    " a step and ", LeastText(plan.LeastSeconds(s.flops())),
                    " in all, at 100% of peak\n");
  }
  return text;
}

// The total of all stages, and the basis of its seconds.
std::string PeakText(const RunPlan& plan) {
  const bool early =
      std::ranges::any_of(plan.stages, &StagePlan::may_end_early);
  std::string text =
      absl::StrCat("all stages", early ? ", to their latest ends" : "", ": ",
                   FormatFlops(plan.flops()));
  if (plan.peak_flops == 0) {
    if (!plan.no_peak.empty()) {
      absl::StrAppend(
          &text, "; no seconds, since no matmul peak is known: ", plan.no_peak);
    }
    return text + "\n";
  }
  absl::StrAppend(
      &text, ", at least ", LeastText(plan.LeastSeconds(plan.flops())),
      " at 100% of peak\npeak: ",
      FormatFlops(plan.peak_flops / static_cast<double>(plan.ranks)),
      "/s on each of ", plan.ranks, " rank(s), matmul in ",
      ToString(plan.precision));
  if (!IsCuda(plan.device)) {
    absl::StrAppend(&text, " on ", plan.threads, " thread(s)");
  }
  return text +
         (plan.machine ? ", as in " + plan.machine->path
                       : ", the best measured on this machine") +
         "\n";
}

// On the machine.
std::string UseText(const RunPlan& plan) {
  const MachineUse use = UseOf(*plan.machine, plan.seconds());
  std::string text = absl::StrFormat(
      "  the run takes %.3g days with its checkpoints and switches", use.days);
  if (use.energy_kwh > 0) {
    absl::StrAppendFormat(&text, ", %.4g kWh of the devices", use.energy_kwh);
  }
  if (use.cost > 0) {
    absl::StrAppendFormat(&text, ", and costs %.4g", use.cost);
  }
  return text + "\n";
}

std::string WholeText(const StagePlan& s) {
  if (s.whole.all == 0) return "";
  std::string text = absl::StrCat("  of ", FormatBytes(s.whole.all),
                                  " of whole gradients the copies hold ",
                                  FormatBytes(s.whole.bytes), " at a time");
  if (s.whole.bytes >= s.whole.all) {
    text += ", which is all: zero = 1 takes less memory";
  }
  if (s.pipeline.stages.front().program.shape.reduces_parts) {
    text +=
        "; each micro-batch is reduced, so sums are rounded in another "
        "order than with zero = 0 and 1";
  }
  return text + "\n";
}

std::string ZerosText(const StagePlan& s) {
  if (s.zeros.empty()) return "";
  const int64_t budget = *s.offload->rules.device;
  std::string text =
      "  zero  a rank, all \"auto\" on device    reduced   gathered\n";
  for (const ZeroPlan& of : s.zeros) {
    const int64_t over = of.device - budget;
    absl::StrAppendFormat(
        &text, "  %4d  %10s%-19s %10s %10s\n", of.zero, FormatBytes(of.device),
        over > 0 ? absl::StrCat(", ", FormatBytes(over), " over")
                 : std::string(", fits"),
        FormatBytes(of.reduced_bytes), FormatBytes(of.gathered_bytes));
  }
  return text;
}

std::string StageText(const RunPlan& plan, const StagePlan& s) {
  std::string text =
      absl::StrCat("stage ", s.name, ": ",
                   ParametersText(s.unique_parameters, s.virtual_parameters,
                                  s.active_parameters),
                   "\n");
  if (plan.ranks > 1) absl::StrAppend(&text, "  ranks: ", s.ranks, "\n");
  if (s.depth < s.blocks) {
    absl::StrAppend(&text, "  visits ", s.depth, " of ", s.blocks, " blocks\n");
  }
  for (const std::string& line : s.sharing) {
    absl::StrAppend(&text, "  ", line, "\n");
  }
  absl::StrAppend(&text, "  steps ", s.begin, " to ", s.end,
                  s.may_end_early ? " at the latest, " : ", ",
                  FormatCount(static_cast<double>(s.tokens)), " tokens\n");
  if (s.switch_bytes > 0) {
    absl::StrAppend(
        &text, "  the switch needs ", FormatBytes(s.switch_bytes),
        s.switch_bytes > s.switch_planes
            ? ": the previous stage, evaluated in this stage's layout\n"
            : ": weights, gradients and state of both stages\n");
  }
  absl::StrAppend(
      &text, "  by name: ",
      absl::StrJoin(s.taken, ", ",
                    [](std::string* out, const MemoryLedger::Entry& entry) {
                      absl::StrAppend(out, entry.kind, " ",
                                      FormatBytes(entry.bytes), " in ",
                                      entry.blocks);
                    }),
      "\n");
  text += WholeText(s);
  text += FlopsText(plan, s);
  if (s.traced.has_value()) text += TracedText(*s.traced);
  if (s.simulated.has_value()) text += StepText(*plan.machine, *s.simulated);
  if (s.offload.has_value()) text += OffloadText(*s.offload);
  text += ZerosText(s);
  if (s.pipeline.stages.size() > 1) {
    text += PipelineText(s.pipeline);
  } else if (plan.ranks > 1) {
    absl::StrAppend(&text, "  network: ", FormatBytes(s.reduced_bytes),
                    " reduced and ", FormatBytes(s.gathered_bytes),
                    " gathered a step\n");
  }
  text += ExchangesText(s.pipeline);
  absl::StrAppend(
      &text, "  a step is ", CountInstructions(s.pipeline), " instructions: ",
      absl::StrJoin(CountOps(s.pipeline), ", ",
                    [](std::string* out, const auto& count) {
                      absl::StrAppend(out, count.second, " ", count.first);
                    }),
      "\n");
  return text;
}

// One, or by stage of the pipeline.
Json Programs(const PipelinePlan& pipeline) {
  if (pipeline.stages.size() == 1) {
    return ToString(pipeline.stages.front().program);
  }
  Json programs = Json::array();
  for (const PipelineStagePlan& stage : pipeline.stages) {
    programs.push_back(ToString(stage.program));
  }
  return programs;
}

Json StageJson(const RunPlan& plan, const StagePlan& s, bool with_program) {
  Json ops = Json::object();
  for (const auto& [op, count] : CountOps(s.pipeline)) ops[op] = count;
  Json json{{"name", s.name},
            {"begin", s.begin},
            {"end", s.end},
            {"may_end_early", s.may_end_early},
            {"tokens", s.tokens},
            {"depth", s.depth},
            {"blocks", s.blocks},
            {"sharing", s.sharing},
            {"layout", s.ranks},
            {"mesh",
             {{"tensor", s.mesh.tensor},
              {"context", s.mesh.context},
              {"data", s.mesh.data},
              {"pipeline", s.mesh.pipeline}}},
            {"unique_parameters", s.unique_parameters},
            {"virtual_parameters", s.virtual_parameters},
            {"active_parameters", s.active_parameters},
            {"bytes", ToJson(s.account)},
            {"bytes_by_name", ByName(s.taken)},
            {"switch_bytes", s.switch_bytes},
            {"switch_bytes_by_rank", s.switch_by_rank},
            {"micro_batch", s.micro_batch},
            {"micro_batches", s.micro_batches},
            {"flops_per_token", s.flops_per_token},
            {"flops_per_step", s.flops_per_step},
            {"flops", s.flops()},
            {"sent_bytes", s.sent_bytes},
            {"reduced_bytes", s.reduced_bytes},
            {"gathered_bytes", s.gathered_bytes},
            {"exchanges", ExchangesJson(s.pipeline)},
            {"instructions", CountInstructions(s.pipeline)},
            {"ops", std::move(ops)}};
  if (plan.peak_flops > 0) {
    json["least_seconds_per_step"] = plan.LeastSeconds(s.flops_per_step);
    json["least_seconds"] = plan.LeastSeconds(s.flops());
  }
  if (s.whole.all > 0) {
    json["whole_gradients"] = {{"bytes", s.whole.bytes}, {"all", s.whole.all}};
  }
  if (s.traced.has_value()) json["traced"] = ToJson(*s.traced);
  if (s.simulated.has_value()) AddStep(*plan.machine, *s.simulated, json);
  if (s.offload.has_value()) json["offload"] = ToJson(*s.offload);
  for (const ZeroPlan& of : s.zeros) {
    json["zeros"].push_back({{"zero", of.zero},
                             {"device", of.device},
                             {"reduced_bytes", of.reduced_bytes},
                             {"gathered_bytes", of.gathered_bytes}});
  }
  if (s.pipeline.stages.size() > 1) json["pipeline"] = ToJson(s.pipeline);
  if (with_program) json["program"] = Programs(s.pipeline);
  return json;
}

bool HasHostHomes(const RunPlan& plan) {
  return std::ranges::any_of(plan.stages, [](const StagePlan& stage) {
    return stage.account.host > 0;
  });
}

}  // namespace

std::string ToText(const RunPlan& plan, bool with_program) {
  std::string text =
      absl::StrFormat("%s on %d rank(s): %s, vocabulary %d\n", plan.recipe,
                      plan.ranks, plan.model, plan.vocab);
  for (const StagePlan& stage : plan.stages) {
    absl::StrAppend(&text, StageText(plan, stage));
    if (!with_program) continue;
    for (const PipelineStagePlan& of : stage.pipeline.stages) {
      absl::StrAppend(&text, ToString(of.program), "\n");
    }
  }
  std::vector<std::pair<std::string, MemoryAccount>> accounts;
  for (const StagePlan& stage : plan.stages) {
    accounts.emplace_back(stage.name, stage.account);
  }
  text += AccountTable("memory of a rank", accounts);
  absl::StrAppend(&text, "at most ", FormatBytes(plan.peak_bytes()),
                  " of a rank's device at any time\n");
  if (plan.machine) {
    text += MachineText(*plan.machine, plan.peak_bytes());
    text += UseText(plan);
    text += PseudoText(plan);
  }
  if (HasHostHomes(plan)) {
    absl::StrAppend(
        &text, "also in host memory: at most ", FormatBytes(kProgramBytes),
        " for the program",
        IsCuda(plan.device) ? ", and what the GPU's driver takes" : "", "\n");
  }
  return text + PeakText(plan);
}

std::string ToJson(const RunPlan& plan, bool with_program) {
  Json stages = Json::array();
  for (const StagePlan& stage : plan.stages) {
    stages.push_back(StageJson(plan, stage, with_program));
  }
  Json all{{"recipe", plan.recipe},   {"model", plan.model},
           {"vocab", plan.vocab},     {"ranks", plan.ranks},
           {"threads", plan.threads}, {"peak_bytes", plan.peak_bytes()},
           {"flops", plan.flops()}};
  if (plan.machine) {
    all["machine"] = ToJson(*plan.machine, plan.peak_bytes());
    const MachineUse use = UseOf(*plan.machine, plan.seconds());
    all["days"] = use.days;
    if (use.energy_kwh > 0) all["energy_kwh"] = use.energy_kwh;
    if (use.cost > 0) all["cost"] = use.cost;
    if (!plan.pseudo.empty()) all["cost_of_sharing"] = PseudoJson(plan);
  }
  if (plan.peak_flops > 0) {
    all["peak_flops"] = plan.peak_flops;
    all["least_seconds"] = plan.LeastSeconds(plan.flops());
  }
  if (HasHostHomes(plan)) all["program_bytes"] = kProgramBytes;
  all["stages"] = std::move(stages);
  return JsonText(all) + "\n";
}

}  // namespace delink
