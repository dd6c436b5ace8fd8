#include "framework/step/proof/stored_rules.h"

#include "absl/strings/str_cat.h"

namespace delink {
namespace {

std::string Of(Op op, const Instruction& visit) {
  return ToString(Instruction{
      .op = op, .layer = visit.layer, .micro_batch = visit.micro_batch});
}

}  // namespace

void StoredRules::BeginStep() {
  slots_.assign(shape_.layers,
                std::vector<Slot>(shape_.micro_batches, Slot::kHere));
}

std::string StoredRules::Check(const Instruction& i, bool forward,
                               bool backward) {
  Slot& slot = slots_[i.layer][i.micro_batch];
  const bool goes = i.op == Op::kStoreSlot;
  if (slot == Slot::kBack || goes == (slot == Slot::kAway)) {
    if (goes || slot == Slot::kBack) return "has already run in this step";
    return absl::StrCat("the slot is not away: ", Of(Op::kStoreSlot, i),
                        " must come before it");
  }
  if (!forward) {
    return absl::StrCat("the slot is not filled: ", Of(Op::kForward, i),
                        " must come before it");
  }
  if (backward) {
    return absl::StrCat("the slot is wanted no more: the backward of layer ",
                        i.layer, " must come after it");
  }
  slot = goes ? Slot::kAway : Slot::kBack;
  return "";
}

std::string StoredRules::Use(const Instruction& visit) const {
  if (slots_[visit.layer][visit.micro_batch] != Slot::kAway) return "";
  return absl::StrCat("its slot is away: ", Of(Op::kLoadSlot, visit),
                      " must come before it");
}

}  // namespace delink
