#include "framework/step/proof/validator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/step/program/shape_table.h"
#include "framework/step/proof/slab_rules.h"
#include "framework/step/proof/stored_rules.h"
#include "framework/step/proof/well_formed.h"

namespace delink {
namespace {

std::string Visit(Op op, int32_t layer, int32_t micro_batch) {
  return ToString(
      Instruction{.op = op, .layer = layer, .micro_batch = micro_batch});
}

std::string Transfer(Op op, uint8_t flags, int32_t layer, int32_t micro_batch) {
  return ToString(Instruction{
      .op = op, .flags = flags, .layer = layer, .micro_batch = micro_batch});
}

// Steps through a program and keeps what has happened so far. Rules return what
// is wrong, or nothing.
class StepChecker {
 public:
  explicit StepChecker(const Program& program)
      : program_(program),
        shape_(program.shape),
        table_(program.shape),
        last_(program.shape.layers - 1),
        forward_only_(!delink::MayHave(program.kind, Op::kBackward)),
        in_halves_(LayersInHalves(program)),
        slabs_(program),
        stored_(program.shape) {
    for (int32_t layer = 0; layer <= last_; ++layer) {
      here_.push_back(StageOf(shape_, layer) == program.stage);
    }
  }

  absl::Status Run() {
    for (int step = 0; step < 2; ++step) {
      BeginStep();
      for (size_t i = 0; i < program_.instructions.size(); ++i) {
        const Instruction& instruction = program_.instructions[i];
        const std::string error = Check(instruction);
        if (error.empty()) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("instruction ", i, ", ", ToString(instruction),
                         step == 0 ? "" : " of the next step", ": ", error));
      }
      const std::string missing = FindMissing();
      if (!missing.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "end of the program: ", missing, " is missing in the step"));
      }
    }
    return absl::OkStatus();
  }

 private:
  void BeginStep() {
    const std::vector<uint8_t> none(shape_.micro_batches, 0);
    forward_.assign(shape_.layers, none);
    backward_.assign(shape_.layers, none);
    halved_.assign(shape_.layers, none);
    contributed_.assign(shape_.layers, none);
    recompute_.assign(shape_.layers, none);
    inspected_.assign(shape_.layers, none);
    moved_.fill(backward_);
    last_backward_.assign(shape_.layers, -1);
    slabs_.BeginStep();
    stored_.BeginStep();
    apart_.clear();
    sum_ = false;
  }

  bool MayHave(Op op) const { return delink::MayHave(program_.kind, op); }

  std::string Check(const Instruction& i) {
    if (std::string error = FieldError(program_, table_, i); !error.empty())
      return error;
    const bool gradient = (i.flags & kOfGradient) != 0;
    if (!MayHave(i.op) || (gradient && forward_only_)) {
      return absl::StrCat(ToString(program_.kind), " has no such instruction");
    }
    switch (i.op) {
      case Op::kForward:
      case Op::kLoss:
        return CheckForward(i);
      case Op::kBackward:
      case Op::kBackwardInput:
        return CheckBackward(i);
      case Op::kBackwardWeight:
        return CheckBackwardWeight(i);
      case Op::kSend:
      case Op::kRecv:
        return CheckTransfer(i);
      case Op::kInspect:
        return CheckInspect(i);
      case Op::kProbe:
        return CheckProbe(i);
      case Op::kSum:
        return CheckSum();
      case Op::kReduce:
        return CheckReduce(i);
      case Op::kStoreSlot:
      case Op::kLoadSlot:
        return stored_.Check(i, forward_[i.layer][i.micro_batch],
                             backward_[i.layer][i.micro_batch]);
      default:
        return slabs_.Check(i);
    }
  }

  // Contributions are allowed in ascending order.
  std::string Contribute(int32_t layer, int32_t m) {
    const int32_t last = last_backward_[layer];
    if (last >= m) {
      const Op op = halved_[layer][last] ? Op::kBackwardWeight
                    : layer == last_     ? Op::kLoss
                                         : Op::kBackward;
      return absl::StrCat("backward of layer ", layer, " has already visited ",
                          Visit(op, layer, last),
                          "; micro-batches must ascend");
    }
    last_backward_[layer] = m;
    backward_[layer][m] = contributed_[layer][m] = true;
    return slabs_.Contribute(layer, m);
  }

  // kForward, and kLoss, which is the forward and backward of the last layer.
  std::string CheckForward(const Instruction& i) {
    const int32_t m = i.micro_batch;
    if (forward_[i.layer][m]) return "has already run in this step";
    if (i.layer > 0 && !HasInput(i.layer, m)) {
      return absl::StrCat("its slot is empty: ",
                          here_[i.layer - 1]
                              ? Visit(Op::kForward, i.layer - 1, m)
                              : Transfer(Op::kRecv, 0, i.layer, m),
                          " must come before it");
    }
    if (forward_only_ != ((i.flags & kForwardOnly) != 0)) {
      return absl::StrCat("the visits of ", ToString(program_.kind), " are ",
                          forward_only_ ? "" : "not ", "forward-only");
    }
    if (std::string error = slabs_.Use(i); !error.empty()) return error;
    forward_[i.layer][m] = true;
    recompute_[i.layer][m] = i.flags & kRecompute;
    return i.op == Op::kLoss && !forward_only_ ? Contribute(i.layer, m) : "";
  }

  // Whole, or the first half.
  std::string CheckBackward(const Instruction& i) {
    const int32_t m = i.micro_batch;
    if (backward_[i.layer][m]) return HasRun(i);
    if (!forward_[i.layer][m]) {
      return absl::StrCat(
          "its slot is empty: ", Visit(Op::kForward, i.layer, m),
          " must come before it");
    }
    if (!HasGradient(i.layer, m)) {
      return absl::StrCat(
          "its gradient boundary is empty: ",
          here_[i.layer + 1] ? Visit(BackwardOf(i.layer + 1), i.layer + 1, m)
                             : Transfer(Op::kRecv, kOfGradient, i.layer + 1, m),
          " must come before it");
    }
    if (recompute_[i.layer][m] != (i.flags & kRecompute)) {
      return absl::StrCat("recompute is ",
                          (i.flags & kRecompute) != 0 ? "set" : "not set",
                          " here, unlike in ", Visit(Op::kForward, i.layer, m));
    }
    if (std::string error = CheckApart(i); !error.empty()) return error;
    if (std::string error = Use(i); !error.empty()) return error;
    if (i.op == Op::kBackward) return Contribute(i.layer, m);
    backward_[i.layer][m] = halved_[i.layer][m] = true;
    return "";
  }

  std::string CheckBackwardWeight(const Instruction& i) {
    const int32_t m = i.micro_batch;
    if (contributed_[i.layer][m]) return HasRun(i);
    if (!halved_[i.layer][m]) {
      return absl::StrCat(
          "what it reads is not held: ", Visit(Op::kBackwardInput, i.layer, m),
          " must come before it");
    }
    if (std::string error = Use(i); !error.empty()) return error;
    return Contribute(i.layer, m);
  }

  std::string Use(const Instruction& backward) {
    std::string error = stored_.Use(backward);
    return error.empty() ? slabs_.Use(backward) : error;
  }

  // Of a backward that has run, whole or in part, before `i` of it.
  std::string HasRun(const Instruction& i) const {
    const bool halved = halved_[i.layer][i.micro_batch];
    if (halved == (i.op != Op::kBackward))
      return "has already run in this step";
    return absl::StrCat(
        Visit(halved ? Op::kBackwardInput : Op::kBackward, i.layer,
              i.micro_batch),
        " has already run in this step; a backward is whole or in two halves");
  }

  // That gives the gradient of its input.
  Op BackwardOf(int32_t layer) const {
    if (layer == last_) return Op::kLoss;
    return in_halves_[layer] ? Op::kBackwardInput : Op::kBackward;
  }
  // Whether its input, or the gradient of its output, has been made or has
  // come.
  bool HasInput(int32_t layer, int32_t m) const {
    return here_[layer - 1] ? forward_[layer - 1][m] : moved_[0][layer][m];
  }
  bool HasGradient(int32_t layer, int32_t m) const {
    return here_[layer + 1] ? backward_[layer + 1][m] : moved_[1][layer + 1][m];
  }

  std::string CheckTransfer(const Instruction& i) {
    const int32_t m = i.micro_batch;
    const bool gradient = (i.flags & kOfGradient) != 0;
    uint8_t& moved = moved_[gradient ? 1 : 0][i.layer][m];
    if (moved) return "has already run in this step";
    const int32_t maker = gradient ? i.layer : i.layer - 1;
    const bool made = gradient ? backward_[maker][m] : forward_[maker][m];
    if (i.op == Op::kSend && !made) {
      return absl::StrCat(
          "there is nothing to send: ",
          Visit(gradient ? BackwardOf(maker) : Op::kForward, maker, m),
          " must come before it");
    }
    moved = true;
    return "";
  }

  // Of a kBackward: which gradients it keeps apart.
  std::string CheckApart(const Instruction& i) {
    std::vector<int32_t> shared;
    if (MayHave(Op::kProbe)) shared = SharedSlabsOf(shape_, i.layer);
    const bool keeps = (i.flags & kApart) != 0;
    if (keeps == shared.empty()) {
      return keeps ? "it keeps gradients apart that nobody probes"
                   : "it does not keep apart the gradients to be probed";
    }
    if (keeps && !apart_.empty()) {
      return absl::StrCat("it takes the place of a gradient kept apart: ",
                          ToString(apart_.front()), " must come before it");
    }
    for (const int32_t slab : shared) {
      apart_.push_back({.op = Op::kProbe,
                        .layer = i.layer,
                        .slab = slab,
                        .micro_batch = i.micro_batch});
    }
    return "";
  }

  std::string CheckProbe(const Instruction& i) {
    const auto taken =
        std::find_if(apart_.begin(), apart_.end(), [&](const auto& left) {
          return left.layer == i.layer && left.slab == i.slab &&
                 left.micro_batch == i.micro_batch;
        });
    if (taken == apart_.end()) {
      return absl::StrCat(
          "no such gradient is kept apart here: it comes once, behind ",
          Visit(Op::kBackward, i.layer, i.micro_batch));
    }
    apart_.erase(taken);
    return slabs_.Use(i);
  }

  // A gradient that is kept apart is not in the slab's until kProbe takes it.
  std::string CheckReduce(const Instruction& i) {
    if (MayHave(Op::kProbe) && !table_.IsReducedByProbe(i.slab)) {
      return "a probe reduces none but what blocks of several stages share";
    }
    for (const Instruction& left : apart_) {
      if (left.slab != i.slab) continue;
      return absl::StrCat("the gradient is not complete: ", ToString(left),
                          " must come before it");
    }
    return slabs_.Check(i);
  }

  std::string CheckInspect(const Instruction& i) {
    const int32_t m = i.micro_batch;
    if (inspected_[i.layer][m]) return "has already run in this step";
    if (!forward_[i.layer][m]) {
      return absl::StrCat(
          "there is nothing to look at: ", Visit(Op::kForward, i.layer, m),
          " must come before it");
    }
    const int32_t next = i.layer + 1;
    if (here_[next] ? forward_[next][m] : moved_[0][next][m]) {
      const Op op = !here_[next]    ? Op::kSend
                    : next == last_ ? Op::kLoss
                                    : Op::kForward;
      return absl::StrCat("what it looks at is gone: ", Visit(op, next, m),
                          " must come after it");
    }
    inspected_[i.layer][m] = true;
    return "";
  }

  std::string CheckSum() {
    if (sum_) return "has already run in this step";
    if (const std::string missing = FindMissingVisit(); !missing.empty()) {
      return absl::StrCat(missing, " must come before it");
    }
    if (!apart_.empty()) {
      return absl::StrCat(ToString(apart_.front()), " must come before it");
    }
    if (std::string error = slabs_.CheckSum(); !error.empty()) return error;
    for (int32_t slab = 0; slab < shape_.slabs && MayHave(Op::kProbe); ++slab) {
      if (!table_.IsHere(program_.stage, slab) ||
          !table_.IsReducedByProbe(slab) || slabs_.IsReduced(slab)) {
        continue;
      }
      return absl::StrCat(
          ToString(Instruction{.op = Op::kReduce, .slab = slab}),
          " must come before it");
    }
    sum_ = true;
    return "";
  }

  std::string FindMissingVisit() const {
    for (int32_t m = 0; m < shape_.micro_batches; ++m) {
      for (int32_t l = 0; l <= last_; ++l) {
        if (!here_[l]) continue;
        const Op op = l == last_ ? Op::kLoss : Op::kForward;
        if (!forward_[l][m]) return Visit(op, l, m);
        if (l == last_) continue;
        if (MayHave(Op::kInspect) && !inspected_[l][m]) {
          return Visit(Op::kInspect, l, m);
        }
        if (!here_[l + 1] && !moved_[0][l + 1][m]) {
          return Transfer(Op::kSend, 0, l + 1, m);
        }
      }
      for (int32_t l = last_; l >= 0 && MayHave(Op::kBackward); --l) {
        if (!here_[l]) continue;
        if (!backward_[l][m]) return Visit(BackwardOf(l), l, m);
        if (!contributed_[l][m]) return Visit(Op::kBackwardWeight, l, m);
        if (l > 0 && !here_[l - 1] && !moved_[1][l][m]) {
          return Transfer(Op::kSend, kOfGradient, l, m);
        }
      }
    }
    return "";
  }

  // The first instruction that the step lacks.
  std::string FindMissing() const {
    if (std::string visit = FindMissingVisit(); !visit.empty()) return visit;
    const bool sums = MayHave(Op::kSum);
    if (sums && !sum_) return ToString(Op::kSum);
    const std::string missing = sums ? "" : slabs_.FindMissing();
    return missing.empty() ? slabs_.FindKept() : missing;
  }

  const Program& program_;
  const ProgramShape& shape_;
  const ShapeTable table_;
  const int32_t last_;
  const bool forward_only_;
  const std::vector<bool> in_halves_;  // LayersInHalves
  SlabRules slabs_;
  StoredRules stored_;
  std::vector<bool> here_;  // by layer: of this stage
  // By layer and micro-batch; the last layer's are of its loss.
  std::vector<std::vector<uint8_t>> forward_, recompute_, inspected_;
  // The gradient of its input is there; in two halves; those of its weights.
  std::vector<std::vector<uint8_t>> backward_, halved_, contributed_;
  // The same of inputs and of their gradients: sent or received.
  std::array<std::vector<std::vector<uint8_t>>, 2> moved_;
  std::vector<int32_t> last_backward_;  // by layer: micro-batch
  std::vector<Instruction> apart_;      // the kProbes that are to come
  bool sum_ = false;
};

}  // namespace

absl::Status ValidateProgram(const Program& program) {
  DELINK_RETURN_IF_ERROR(CheckShape(program.shape));
  if (program.stage < 0 || program.stage >= program.shape.stages) {
    return BadShape(absl::StrCat("there is no stage ", program.stage));
  }
  return StepChecker(program).Run();
}

}  // namespace delink
