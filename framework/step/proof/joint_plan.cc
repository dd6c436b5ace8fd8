#include "framework/step/proof/joint_plan.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/check.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "framework/step/proof/validator.h"
#include "framework/step/proof/visit_meetings.h"

namespace delink {
namespace {

void Describe(const Program& program, std::string* text) {
  const ProgramShape& shape = program.shape;
  absl::StrAppend(text, "the program of ", ToString(program.kind));
  if (shape.stages > 1) absl::StrAppend(text, " of stage ", program.stage);
  absl::StrAppend(text, "\nranks ", shape.ranks, ", micro-batches ",
                  shape.micro_batches, ", layers ", shape.layers, ", slabs ",
                  shape.slabs, " (gathered: ",
                  absl::StrJoin(shape.gathers, "",
                                [](std::string* out, bool gathers) {
                                  out->push_back(gathers ? '1' : '0');
                                }),
                  "), stages ", shape.stages,
                  " (chunks: ", absl::StrJoin(shape.chunk_of_layer, " "),
                  "), slot classes: ", absl::StrJoin(shape.slot_class, " "));
  if (VisitsTogether(shape)) {
    absl::StrAppend(
        text, ", tensor ", shape.tensor, ", context ", shape.context,
        ", expert ", shape.expert, ", cuts of slabs: ",
        absl::StrJoin(shape.slab_cuts, " ", [](std::string* out, AxisCut cut) {
          absl::StrAppend(out, ToString(cut.axis), " ", cut.pieces);
        }));
  }
  if (!shape.copies.empty()) {
    absl::StrAppend(text, ", copies: ", absl::StrJoin(shape.copies, " "));
    for (const std::vector<int32_t>& classes : shape.copy_class) {
      absl::StrAppend(text, " (", absl::StrJoin(classes, " "), ")");
    }
  }
  for (int32_t slab = 0; slab < shape.slabs; ++slab) {
    if (IsSharded(shape, slab)) absl::StrAppend(text, ", shards ", slab);
  }
  if (!shape.whole_class.empty()) {
    absl::StrAppend(
        text, ", whole gradients: ", absl::StrJoin(shape.whole_class, " "),
        shape.reduces_parts ? " in parts" : "");
  }
  for (int32_t slab = 0; slab < shape.slabs; ++slab) {
    if (UpdatesLate(shape, slab)) absl::StrAppend(text, ", late ", slab);
  }
  for (const auto& slabs : shape.slabs_of_layer) {
    absl::StrAppend(text, "; ", absl::StrJoin(slabs, " "));
  }
  for (const Instruction& i : program.instructions) {
    absl::StrAppend(text, "\n", ToString(i), " in the ", ToString(i.lane),
                    " lane, flags ", int{i.flags});
  }
  text->push_back('\n');
}

}  // namespace

absl::StatusOr<JointPlan> JointPlan::Create(const Planner& planner,
                                            const ProgramShape& shape,
                                            std::span<const PassKind> kinds) {
  JointPlan plan;
  for (const PassKind kind : kinds) {
    std::vector<Program>& stages = plan.programs_[kind];
    for (int32_t stage = 0; stage < shape.stages; ++stage) {
      stages.push_back(planner(kind, shape, stage));
      DELINK_CHECK(stages.back().kind == kind);
      DELINK_CHECK_EQ(stages.back().stage, stage);
    }
    DELINK_RETURN_IF_ERROR(ValidateStages(stages));
  }
  return plan;
}

int JointPlan::ranks() const {
  const ProgramShape& shape = programs_.begin()->second.front().shape;
  return shape.ranks * shape.stages;
}

std::string JointPlan::Text() const {
  std::string text;
  const ProgramShape& shape = programs_.begin()->second.front().shape;
  if (!shape.exchanges.empty() || !shape.update_exchanges.empty()) {
    absl::StrAppend(&text, kExchangesTitle, "\n",
                    absl::StrJoin(DescribeExchanges(shape), "\n"), "\n");
  }
  for (const auto& [kind, stages] : programs_) {
    for (const Program& program : stages) Describe(program, &text);
  }
  return text;
}

std::string JointPlan::Digest() const { return Sha256Hex(Text()); }

}  // namespace delink
