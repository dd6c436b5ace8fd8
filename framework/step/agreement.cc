#include "framework/step/agreement.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"
#include "framework/step/validator.h"

namespace delink {
namespace {

// The shape, then an instruction a line: equal where the programs are.
std::string Describe(const Program& program) {
  const ProgramShape& shape = program.shape;
  std::string text = absl::StrCat(
      "ranks ", shape.ranks, ", micro-batches ", shape.micro_batches,
      ", layers ", shape.layers, ", slabs ", shape.slabs, " (gathered: ",
      absl::StrJoin(shape.gathers, "",
                    [](std::string* out, bool gathers) {
                      out->push_back(gathers ? '1' : '0');
                    }),
      "), stages ", shape.stages,
      " (chunks: ", absl::StrJoin(shape.chunk_of_layer, " "),
      "), slot classes (", absl::StrJoin(shape.slot_class, " "), "), stage ",
      program.stage);
  for (const auto& slabs : shape.slabs_of_layer) {
    absl::StrAppend(&text, "; ", absl::StrJoin(slabs, " "));
  }
  for (const Instruction& i : program.instructions) {
    absl::StrAppend(&text, "\n", ToString(i), " in the ", ToString(i.lane),
                    " lane, flags ", int{i.flags});
  }
  return text;
}

absl::Status Compare(const char* what, const std::string& mine,
                     const std::string& first) {
  if (mine == first) return absl::OkStatus();
  const std::vector<std::string> here = absl::StrSplit(mine, '\n');
  const std::vector<std::string> there = absl::StrSplit(first, '\n');
  size_t line = 0;
  while (line < std::min(here.size(), there.size()) &&
         here[line] == there[line]) {
    ++line;
  }
  const auto text = [line](const std::vector<std::string>& lines) {
    return line < lines.size() ? lines[line] : std::string("nothing");
  };
  return absl::FailedPreconditionError(absl::StrCat(
      "the program of ", what, " differs from rank 0's: ",
      line == 0 ? "its shape" : absl::StrCat("instruction ", line - 1), " is '",
      text(here), "' here and '", text(there),
      "' there; start all ranks with the same recipe, options and version"));
}

}  // namespace

absl::Status AgreeOnProgram(Communicator& comm, const Program& program) {
  const char* const what = ToString(program.kind);
  absl::Status valid = ValidateProgram(program);
  if (valid.ok() && program.shape.ranks != comm.size()) {
    valid = absl::InvalidArgumentError(absl::StrCat(
        "the program of ", what, " is made for ", program.shape.ranks,
        " ranks, but there are ", comm.size()));
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, valid));
  const std::string mine = Describe(program);
  DELINK_ASSIGN_OR_RETURN(const std::string first,
                          BroadcastString(comm, mine, 0));
  return AgreeOnStatus(comm, Compare(what, mine, first));
}

}  // namespace delink
