// A plan in words and in JSON.
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/json.h"
#include "recipes/plan/plan.h"
#include "recipes/record/progress.h"
#include "recipes/record/stage_text.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

// Instructions by op, in the order of their first appearance.
std::vector<std::pair<std::string, int64_t>> CountOps(const Program& program) {
  std::vector<std::pair<std::string, int64_t>> counts;
  std::map<Op, size_t> place;
  for (const Instruction& at : program.instructions) {
    const auto [it, fresh] = place.emplace(at.op, counts.size());
    if (fresh) counts.emplace_back(ToString(at.op), 0);
    ++counts[it->second].second;
  }
  return counts;
}

Json ByName(const std::vector<MemoryLedger::Entry>& taken) {
  Json json = Json::object();
  for (const MemoryLedger::Entry& entry : taken) {
    json[entry.kind] = entry.bytes;
  }
  return json;
}

std::string CountText(double count) {
  const std::string text = FormatCount(count);
  return count < 1000 ? text + " " : text;
}

std::string StageText(const RunPlan& plan, const StagePlan& s) {
  std::string text = absl::StrCat(
      "stage ", s.name, ": ",
      ParametersText(s.unique_parameters, s.virtual_parameters), "\n");
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
    absl::StrAppend(&text, "  the switch holds ", FormatBytes(s.switch_bytes),
                    ": both stages' weights, gradients and state\n");
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
  absl::StrAppend(&text, "  ", CountText(s.flops_per_token), "FLOP a token, ",
                  CountText(s.flops_per_step), "FLOP a step of ",
                  s.micro_batches, " x ", s.micro_batch,
                  " sequences on each of ", plan.ranks, " rank(s)\n");
  if (plan.ranks > 1) {
    absl::StrAppend(&text, "  network: ", FormatBytes(s.reduced_bytes),
                    " reduced and ", FormatBytes(s.gathered_bytes),
                    " gathered a step\n");
  }
  absl::StrAppend(
      &text, "  a step is ", s.program.instructions.size(), " instructions: ",
      absl::StrJoin(CountOps(s.program), ", ",
                    [](std::string* out, const auto& count) {
                      absl::StrAppend(out, count.second, " ", count.first);
                    }),
      "\n");
  return text;
}

Json StageJson(const StagePlan& s, bool with_program) {
  Json ops = Json::object();
  for (const auto& [op, count] : CountOps(s.program)) ops[op] = count;
  Json json{{"name", s.name},
            {"begin", s.begin},
            {"end", s.end},
            {"may_end_early", s.may_end_early},
            {"tokens", s.tokens},
            {"depth", s.depth},
            {"sharing", s.sharing},
            {"unique_parameters", s.unique_parameters},
            {"virtual_parameters", s.virtual_parameters},
            {"bytes", ToJson(s.account)},
            {"bytes_by_name", ByName(s.taken)},
            {"switch_bytes", s.switch_bytes},
            {"micro_batch", s.micro_batch},
            {"micro_batches", s.micro_batches},
            {"flops_per_token", s.flops_per_token},
            {"flops_per_step", s.flops_per_step},
            {"reduced_bytes", s.reduced_bytes},
            {"gathered_bytes", s.gathered_bytes},
            {"instructions", s.program.instructions.size()},
            {"ops", std::move(ops)}};
  if (with_program) json["program"] = ToString(s.program);
  return json;
}

}  // namespace

std::string ToText(const RunPlan& plan, bool with_program) {
  std::string text =
      absl::StrFormat("%s on %d rank(s): %s, vocabulary %d\n", plan.recipe,
                      plan.ranks, plan.model, plan.vocab);
  for (const StagePlan& stage : plan.stages) {
    absl::StrAppend(&text, StageText(plan, stage));
    if (with_program) absl::StrAppend(&text, ToString(stage.program), "\n");
  }
  std::vector<std::pair<std::string, MemoryAccount>> accounts;
  for (const StagePlan& stage : plan.stages) {
    accounts.emplace_back(stage.name, stage.account);
  }
  text += AccountTable("memory of a rank", accounts);
  absl::StrAppend(&text, "at most ", FormatBytes(plan.peak_bytes()),
                  " of a rank's device at any time\n");
  return text;
}

std::string ToJson(const RunPlan& plan, bool with_program) {
  Json stages = Json::array();
  for (const StagePlan& stage : plan.stages) {
    stages.push_back(StageJson(stage, with_program));
  }
  const Json all{{"recipe", plan.recipe},
                 {"model", plan.model},
                 {"vocab", plan.vocab},
                 {"ranks", plan.ranks},
                 {"peak_bytes", plan.peak_bytes()},
                 {"stages", std::move(stages)}};
  return JsonText(all) + "\n";
}

}  // namespace delink
