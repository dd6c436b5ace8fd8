// The programs of all ranks, each by itself and how they meet.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/step/rendezvous.h"
#include "framework/step/validator.h"
#include "framework/step/well_formed.h"

namespace delink {
namespace {

absl::Status OfRank(int rank, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("rank ", rank, ": ", status.message()));
}

}  // namespace

absl::Status ValidatePrograms(const std::vector<Program>& programs) {
  if (programs.empty()) {
    return absl::InvalidArgumentError("no programs to validate");
  }
  const int ranks = static_cast<int>(programs.size());
  std::vector<RankProgram> distinct;
  for (int rank = 0; rank < ranks; ++rank) {
    const Program& program = programs[rank];
    const bool seen = std::any_of(
        distinct.begin(), distinct.end(),
        [&](const RankProgram& other) { return *other.program == program; });
    if (seen) continue;
    if (program.shape.ranks != ranks) {
      return OfRank(rank, BadShape(absl::StrCat(
                              "made for ", program.shape.ranks,
                              " ranks, but there are ", ranks, " programs")));
    }
    if (program.shape != programs[0].shape) {
      return OfRank(rank, BadShape("differs from that of rank 0"));
    }
    if (program.kind != programs[0].kind) {
      return OfRank(rank, absl::InvalidArgumentError(absl::StrCat(
                              "runs ", ToString(program.kind), ", but rank 0 ",
                              ToString(programs[0].kind))));
    }
    DELINK_RETURN_IF_ERROR(OfRank(rank, ValidateProgram(program)));
    distinct.push_back({.rank = rank, .program = &program});
  }
  return CheckRendezvous(distinct);
}

}  // namespace delink
