#include "framework/step/proof/agreement.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr char kStartAlike[] =
    "; start all ranks with the same recipe, options and version";

// Finds where two texts of plans first differ; the error names the program and
// the place in it.
absl::Status Compare(const std::string& mine, const std::string& first) {
  if (mine == first) return absl::OkStatus();
  const std::vector<std::string> here = absl::StrSplit(mine, '\n');
  const std::vector<std::string> there = absl::StrSplit(first, '\n');
  const auto is_title = [](const std::string& line) {
    return absl::StartsWith(line, "the program of ") ||
           line == JointPlan::kExchangesTitle;
  };
  size_t line = 0, title = 0;
  while (line < std::min(here.size(), there.size()) &&
         here[line] == there[line]) {
    if (is_title(here[line])) title = line;
    ++line;
  }
  const auto program_ends = [&](const std::vector<std::string>& lines) {
    return line >= lines.size() || lines[line].empty() || is_title(lines[line]);
  };
  if (program_ends(here) && program_ends(there)) {
    const auto next = [&](const std::vector<std::string>& lines) {
      return line < lines.size() && is_title(lines[line]) ? lines[line]
                                                          : "no more programs";
    };
    return absl::FailedPreconditionError(absl::StrCat(
        "has ", next(here), " where rank 0 has ", next(there), kStartAlike));
  }
  const auto text = [&](const std::vector<std::string>& lines) {
    return program_ends(lines) ? "nothing" : lines[line];
  };
  if (here[title] == JointPlan::kExchangesTitle) {
    return absl::FailedPreconditionError(
        absl::StrCat(here[title], " differs from rank 0's: '", text(here),
                     "' here and '", text(there), "' there", kStartAlike));
  }
  const size_t instruction = line - title - 2;
  return absl::FailedPreconditionError(absl::StrCat(
      here[title], " differs from rank 0's: ",
      line == title + 1 ? "its shape"
                        : absl::StrCat("instruction ", instruction),
      " is '", text(here), "' here and '", text(there), "' there",
      kStartAlike));
}

// `digest` must be equally long on all ranks. No rank is sent another's, so
// that a single rank that only imagines the others finds theirs to be the same.
absl::StatusOr<bool> IsSameOnAll(Communicator& comm, std::string_view digest) {
  std::vector<int32_t> extremes;  // the largest, and the smallest negated
  for (const char c : digest) {
    extremes.push_back(c);
    extremes.push_back(-c);
  }
  DELINK_RETURN_IF_ERROR(comm.AllReduce(extremes.data(),
                                        static_cast<int64_t>(extremes.size()),
                                        DType::kI32, ReduceOp::kMax)
                             ->Wait());
  for (size_t i = 0; i < extremes.size(); i += 2) {
    if (extremes[i] != -extremes[i + 1]) return false;
  }
  return true;
}

}  // namespace

absl::Status AgreeOnPlan(Communicator& comm,
                         const absl::StatusOr<JointPlan>& plan) {
  absl::Status made = plan.status();
  if (made.ok() && plan->ranks() != comm.size()) {
    made = absl::InvalidArgumentError(
        absl::StrCat("the programs are made for ", plan->ranks(),
                     " ranks, but there are ", comm.size()));
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, made));
  DELINK_ASSIGN_OR_RETURN(const bool same, IsSameOnAll(comm, plan->Digest()));
  if (same) return absl::OkStatus();
  const std::string text = plan->Text();
  DELINK_ASSIGN_OR_RETURN(const std::string text_of_first,
                          BroadcastString(comm, text, 0));
  return AgreeOnStatus(comm, Compare(text, text_of_first));
}

}  // namespace delink
