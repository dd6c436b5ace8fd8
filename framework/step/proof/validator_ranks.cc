#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/step/proof/joint_execution.h"
#include "framework/step/proof/validator.h"
#include "framework/step/proof/visit_meetings.h"
#include "framework/step/proof/well_formed.h"

namespace delink {
namespace {

absl::Status Of(const std::string& whose, const absl::Status& status) {
  if (status.ok() || whose.empty()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(whose, ": ", status.message()));
}

// Of the same run as `first`, and right by itself.
absl::Status CheckOne(const Program& program, int32_t stage,
                      const Program& first) {
  DELINK_RETURN_IF_ERROR(CompareExchanges(program.shape, first.shape));
  if (program.shape != first.shape) {
    return BadShape("differs from that of rank 0");
  }
  if (program.kind != first.kind) {
    return absl::InvalidArgumentError(
        absl::StrCat("runs ", ToString(program.kind), ", but rank 0 ",
                     ToString(first.kind)));
  }
  if (program.stage != stage) {
    return absl::InvalidArgumentError(
        absl::StrCat("runs the program of stage ", program.stage,
                     ", but is of stage ", stage));
  }
  return ValidateProgram(program);
}

absl::Status CheckTogether(const std::vector<Column>& columns) {
  DELINK_RETURN_IF_ERROR(CheckMeetings(columns));
  if (columns.size() > 1) DELINK_RETURN_IF_ERROR(CheckVisitMeetings(columns));
  return ExecuteTogether(columns).status();
}

// Of columns whose equal programs are one.
bool IsEqual(const Column& a, const Column& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const RankProgram& x, const RankProgram& y) {
                      return x.program == y.program;
                    });
}

}  // namespace

absl::Status ValidateStages(const std::vector<Program>& stages) {
  const ProgramShape& shape = stages.front().shape;
  Column column;
  for (size_t s = 0; s < stages.size(); ++s) {
    const auto stage = static_cast<int32_t>(s);
    const std::string whose =
        stages.size() > 1 ? absl::StrCat("stage ", stage) : "";
    DELINK_RETURN_IF_ERROR(
        Of(whose, CheckOne(stages[s], stage, stages.front())));
    column.push_back({.rank = stage * shape.ranks, .program = &stages[s]});
  }
  if (column.size() == 1) return absl::OkStatus();
  return CheckTogether({column});
}

absl::Status ValidatePrograms(const std::vector<Program>& programs) {
  if (programs.empty()) {
    return absl::InvalidArgumentError("no programs to validate");
  }
  const int ranks = static_cast<int>(programs.size());
  std::vector<const Program*> seen, by_rank;  // equal programs are one
  for (int rank = 0; rank < ranks; ++rank) {
    const Program& program = programs[rank];
    const auto is_equal = [&](const Program* other) {
      return *other == program;
    };
    const ProgramShape& shape = program.shape;
    const auto found = std::find_if(seen.begin(), seen.end(), is_equal);
    const bool known = found != seen.end();
    by_rank.push_back(known ? *found : &program);
    absl::Status status;
    if (shape.ranks * shape.stages != ranks) {
      status =
          BadShape(absl::StrCat("made for ", shape.ranks * shape.stages,
                                " ranks, but there are ", ranks, " programs"));
    } else if (!known || program.stage != rank / shape.ranks) {
      status = CheckOne(program, rank / shape.ranks, programs[0]);
    }
    DELINK_RETURN_IF_ERROR(Of(absl::StrCat("rank ", rank), status));
    if (!known) seen.push_back(&program);
  }
  const ProgramShape& shape = programs[0].shape;
  std::vector<Column> all, distinct;
  for (int place = 0; place < shape.ranks; ++place) {
    Column column;
    for (int rank = place; rank < ranks; rank += shape.ranks) {
      column.push_back({.rank = rank, .program = by_rank[rank]});
    }
    const bool known = std::any_of(
        distinct.begin(), distinct.end(),
        [&](const Column& other) { return IsEqual(column, other); });
    if (!known) distinct.push_back(column);
    all.push_back(std::move(column));
  }
  if (distinct.size() == 1 && shape.stages == 1) return absl::OkStatus();
  // With whom a rank exchanges in a visit depends on its place.
  const bool by_place = VisitsTogether(shape);
  return CheckTogether(by_place && distinct.size() > 1 ? all : distinct);
}

}  // namespace delink
