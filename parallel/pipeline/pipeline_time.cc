#include "parallel/pipeline/pipeline_time.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/status/statusor.h"
#include "framework/base/check.h"
#include "framework/step/proof/joint_execution.h"
#include "framework/step/proof/meetings.h"

namespace delink {
namespace {

// Letters go round where there are more micro-batches.
char SignOf(const Instruction& visit, bool backward) {
  if (visit.op == Op::kBackwardWeight) return '\'';
  return static_cast<char>((backward ? 'A' : 'a') + visit.micro_batch % 26);
}

void Append(const PipelineWork& work, std::vector<PipelineWork>& all) {
  if (work.end <= work.begin) return;
  if (!all.empty() && all.back().sign == work.sign &&
      all.back().end == work.begin) {
    all.back().end = work.end;
  } else {
    all.push_back(work);
  }
}

char SignAt(const std::vector<PipelineWork>& stage, double time) {
  const auto after = std::upper_bound(
      stage.begin(), stage.end(), time,
      [](double t, const PipelineWork& work) { return t < work.end; });
  return after != stage.end() && after->begin <= time ? after->sign : '.';
}

}  // namespace

double PipelineTime::end() const {
  double end = 0;
  for (const std::vector<PipelineWork>& stage : stages) {
    if (!stage.empty()) end = std::max(end, stage.back().end);
  }
  return end;
}

double PipelineTime::bubble() const {
  double work = 0;
  for (const std::vector<PipelineWork>& stage : stages) {
    for (const PipelineWork& of : stage) work += of.end - of.begin;
  }
  const double all = end() * static_cast<double>(stages.size());
  return all > 0 ? 1 - work / all : 0;
}

PipelineTime TimePipeline(const std::vector<Program>& stages,
                          const VisitCosts& costs) {
  Column column;
  for (const Program& program : stages) {
    column.push_back({.rank = program.stage, .program = &program});
  }
  const auto times = ExecuteTogether(
      {column}, [&costs](const RankProgram& rank, int32_t index) -> Cost {
        const Instruction& at = rank.program->instructions[index];
        if (!IsVisit(at)) return {};
        const VisitCost cost = costs(at);
        return {.time = cost.forward + cost.backward};
      });
  DELINK_CHECK(times.ok()) << std::string(times.status().message());
  PipelineTime time;
  for (const Program& program : stages) {
    std::vector<PipelineWork>& works = time.stages.emplace_back();
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& at = program.instructions[i];
      if (!IsVisit(at)) continue;
      const Interval& when = times->first[program.stage][i];
      const double turn = when.begin + costs(at).forward;
      Append({SignOf(at, false), when.begin, turn}, works);
      Append({SignOf(at, true), turn, when.end}, works);
    }
  }
  return time;
}

std::vector<std::string> DrawPipeline(const PipelineTime& time, int columns) {
  const double end = time.end();
  double width = end;
  for (const std::vector<PipelineWork>& stage : time.stages) {
    for (const PipelineWork& work : stage) {
      width = std::min(width, work.end - work.begin);
    }
  }
  // Sums of lengths that are rounded.
  const double count = end > 0 ? std::ceil(end / width - 1e-6) : 0;
  const bool cut = count > columns;
  const int drawn = cut ? columns : static_cast<int>(count);
  const int first = cut ? columns / 2 : drawn;
  std::vector<std::string> rows;
  for (const std::vector<PipelineWork>& stage : time.stages) {
    std::string& row = rows.emplace_back();
    for (int k = 0; k < drawn; ++k) {
      const double column = k < first ? k : count - drawn + k;
      row += cut && k == first ? '~' : SignAt(stage, (column + 0.5) * width);
    }
  }
  return rows;
}

}  // namespace delink
