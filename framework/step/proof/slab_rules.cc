#include "framework/step/proof/slab_rules.h"

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/step/proof/well_formed.h"

namespace delink {
namespace {

std::string OnSlab(Op op, int32_t slab) {
  return ToString(Instruction{.op = op, .slab = slab});
}

}  // namespace

SlabRules::SlabRules(const Program& program)
    : program_(program),
      shape_(program.shape),
      here_(program.shape.slabs, false),
      in_halves_(LayersInHalves(program)),
      layers_of_slab_(program.shape.slabs),
      weights_(program.shape.slabs, Weights::kUnknown),
      copies_(program) {
  for (int32_t layer = shape_.layers - 1; layer >= 0; --layer) {
    if (StageOf(shape_, layer) != program.stage) continue;
    for (const int32_t slab : shape_.slabs_of_layer[layer]) {
      here_[slab] = true;
      layers_of_slab_[slab].push_back(layer);
    }
  }
}

void SlabRules::BeginStep() {
  contributed_.assign(shape_.layers,
                      std::vector<uint8_t>(shape_.micro_batches, 0));
  reduced_.assign(shape_.slabs, false);
  added_.assign(shape_.slabs, false);
  squared_.assign(shape_.slabs, false);
  updated_.assign(shape_.slabs, false);
  saved_.assign(shape_.slabs, false);
  saves_ = saves_of_updated_ = 0;
  norm_ = false;
  copies_.BeginStep();
}

std::string SlabRules::Use(const Instruction& instruction) {
  if (IsVisit(instruction)) {
    for (const int32_t slab : shape_.slabs_of_layer[instruction.layer]) {
      if (weights_[slab] == Weights::kAway) {
        return absl::StrCat("the weights of slab ", slab,
                            " are not whole: ", OnSlab(Op::kGather, slab),
                            " must come before it");
      }
      weights_[slab] = Weights::kHere;
    }
  }
  return copies_.Use(instruction);
}

std::string SlabRules::Contribute(int32_t layer, int32_t micro_batch) {
  for (const int32_t slab : shape_.slabs_of_layer[layer]) {
    if (reduced_[slab]) {
      return absl::StrCat("contributes to the gradient of slab ", slab,
                          ", which ", OnSlab(Op::kReduce, slab),
                          " has already combined");
    }
  }
  contributed_[layer][micro_batch] = true;
  for (const int32_t slab : shape_.slabs_of_layer[layer]) added_[slab] = true;
  return "";
}

std::string SlabRules::Check(const Instruction& instruction) {
  const int32_t slab = instruction.slab;
  if (IsOfPlanes(instruction)) {
    const bool reads = instruction.op == Op::kFetch &&
                       PlaneSetOf(instruction) == PlaneSet::kWeight;
    if (reads && weights_[slab] == Weights::kAway) {
      return absl::StrCat("the weights are not whole: ",
                          OnSlab(Op::kGather, slab), " must come before it");
    }
    if (reads) weights_[slab] = Weights::kHere;
    return copies_.Check(instruction, updated_[slab]);
  }
  if (std::string error = Use(instruction); !error.empty()) return error;
  switch (instruction.op) {
    case Op::kReduce:
      return CheckReduce(slab);
    case Op::kSquares:
      return CheckSquares(slab);
    case Op::kNorm:
      return CheckNorm();
    case Op::kUpdate:
      return CheckUpdate(slab);
    case Op::kSave:
      return CheckSave(slab);
    case Op::kGather:
      return CheckGather(slab);
    default:
      DELINK_CHECK(false) << ToString(instruction) << ": is of no slab";
      return "";
  }
}

std::string SlabRules::FindIncomplete(int32_t slab) const {
  for (const int32_t layer : layers_of_slab_[slab]) {
    for (int32_t m = 0; m < shape_.micro_batches; ++m) {
      if (contributed_[layer][m]) continue;
      const Op op = layer + 1 == shape_.layers ? Op::kLoss
                    : in_halves_[layer]        ? Op::kBackwardWeight
                                               : Op::kBackward;
      return absl::StrCat(
          "the gradient is not complete: ",
          ToString(Instruction{.op = op, .layer = layer, .micro_batch = m}),
          " must come before it");
    }
  }
  return "";
}

std::string SlabRules::CheckReduce(int32_t slab) {
  if (reduced_[slab]) return "the slab is already reduced in this step";
  const std::string error = FindIncomplete(slab);
  if (!error.empty() && !ReducesParts(shape_, slab)) return error;
  if (!added_[slab]) return "nothing was added since the slab was reduced";
  added_[slab] = false;
  reduced_[slab] = error.empty();
  return "";
}

std::string SlabRules::CheckSquares(int32_t slab) {
  if (squared_[slab]) return "has already run in this step";
  if (!reduced_[slab]) {
    return absl::StrCat("the gradient is not reduced: ",
                        OnSlab(Op::kReduce, slab), " must come before it");
  }
  squared_[slab] = true;
  return "";
}

std::string SlabRules::CheckNorm() {
  if (norm_) return "has already run in this step";
  for (int32_t slab = 0; slab < shape_.slabs; ++slab) {
    if (here_[slab] && !squared_[slab]) {
      return absl::StrCat("the squares of slab ", slab,
                          " are not summed: ", OnSlab(Op::kSquares, slab),
                          " must come before it");
    }
  }
  norm_ = true;
  return "";
}

std::string SlabRules::CheckUpdate(int32_t slab) {
  if (!norm_) return "the norm is not known: Norm must come before it";
  if (updated_[slab]) return "the slab is already updated in this step";
  if (HostUpdates(shape_, slab)) {
    if (std::string error = copies_.CheckHome(slab); !error.empty()) {
      return error;
    }
  }
  updated_[slab] = true;
  if (shape_.gathers[slab]) weights_[slab] = Weights::kAway;
  return "";
}

std::string SlabRules::CheckSave(int32_t slab) {
  if (saved_[slab]) return "the slab is already saved in this step";
  if (std::string error = copies_.CheckSave(slab); !error.empty()) return error;
  saved_[slab] = true;
  ++saves_;
  saves_of_updated_ += updated_[slab] ? 1 : 0;
  if (saves_of_updated_ != 0 && saves_of_updated_ != saves_) {
    return "some slabs are saved before their update and some after it; a "
           "snapshot is of one step";
  }
  return "";
}

std::string SlabRules::CheckGather(int32_t slab) {
  if (weights_[slab] == Weights::kHere || !shape_.gathers[slab]) {
    return absl::StrCat(
        "the weights are whole",
        shape_.gathers[slab]
            ? ": " + OnSlab(Op::kUpdate, slab) + " must come before it"
            : "");
  }
  if (HostUpdates(shape_, slab)) {
    if (std::string error = copies_.CheckHome(slab); !error.empty()) {
      return error;
    }
  }
  weights_[slab] = Weights::kHere;
  return "";
}

std::string SlabRules::FindMissing() const {
  for (int32_t slab = 0; slab < shape_.slabs; ++slab) {
    if (!here_[slab]) continue;
    if (!reduced_[slab]) return OnSlab(Op::kReduce, slab);
    if (!squared_[slab]) return OnSlab(Op::kSquares, slab);
  }
  if (!norm_) return ToString(Op::kNorm);
  for (int32_t slab = 0;
       slab < shape_.slabs && MayHave(program_.kind, Op::kUpdate); ++slab) {
    if (here_[slab] && !updated_[slab]) return OnSlab(Op::kUpdate, slab);
  }
  return "";
}

}  // namespace delink
