#include "framework/step/slab_rules.h"

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/step/well_formed.h"

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
      free_copies_(program.shape.copies) {
  for (int32_t slab = 0; slab < shape_.slabs; ++slab) {
    if (CopyClassOf(shape_, slab) >= 0) weights_[slab] = Weights::kAway;
  }
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
  squared_.assign(shape_.slabs, false);
  updated_.assign(shape_.slabs, false);
  saved_.assign(shape_.slabs, false);
  saves_ = saves_of_updated_ = 0;
  norm_ = false;
}

std::string SlabRules::Read(int32_t layer) {
  for (const int32_t slab : shape_.slabs_of_layer[layer]) {
    if (weights_[slab] == Weights::kAway) {
      return absl::StrCat("the weights of slab ", slab,
                          " are not fetched: ", OnSlab(Op::kFetch, slab),
                          " must come before it");
    }
    weights_[slab] = Weights::kHere;
  }
  return "";
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
  return "";
}

std::string SlabRules::Check(const Instruction& instruction) {
  const int32_t slab = instruction.slab;
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
    case Op::kFetch:
      return CheckFetch(slab);
    case Op::kRelease:
      return CheckRelease(slab);
    default:
      DELINK_CHECK(false) << ToString(instruction) << ": is of no slab";
      return "";
  }
}

std::string SlabRules::CheckReduce(int32_t slab) {
  if (reduced_[slab]) return "the slab is already reduced in this step";
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
  reduced_[slab] = true;
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
  if (CopyClassOf(shape_, slab) >= 0 && weights_[slab] == Weights::kHere) {
    return absl::StrCat("the copy is of the weights before it: ",
                        OnSlab(Op::kRelease, slab), " must come before it");
  }
  updated_[slab] = true;
  if (shape_.gathers[slab]) weights_[slab] = Weights::kAway;
  return "";
}

std::string SlabRules::CheckSave(int32_t slab) {
  if (saved_[slab]) return "the slab is already saved in this step";
  saved_[slab] = true;
  ++saves_;
  saves_of_updated_ += updated_[slab] ? 1 : 0;
  if (saves_of_updated_ != 0 && saves_of_updated_ != saves_) {
    return "some slabs are saved before their update and some after it; a "
           "snapshot is of one step";
  }
  return "";
}

std::string SlabRules::CheckFetch(int32_t slab) {
  const int32_t copy_class = CopyClassOf(shape_, slab);
  if (weights_[slab] == Weights::kHere) {
    const bool may_update = shape_.gathers[slab] && copy_class < 0;
    return absl::StrCat(
        "the weights are already there: ", OnSlab(Op::kRelease, slab),
        may_update ? " or " + OnSlab(Op::kUpdate, slab) : "",
        " must come before it");
  }
  if (copy_class >= 0) {
    if (free_copies_[copy_class] == 0) {
      return "no copy is free: a Release must come before it";
    }
    --free_copies_[copy_class];
  }
  weights_[slab] = Weights::kHere;
  return "";
}

std::string SlabRules::CheckRelease(int32_t slab) {
  if (weights_[slab] == Weights::kAway) return "there is no copy to release";
  weights_[slab] = Weights::kAway;
  if (const int32_t c = CopyClassOf(shape_, slab); c >= 0) ++free_copies_[c];
  return "";
}

std::string SlabRules::FindKept() const {
  for (int32_t slab = 0; slab < shape_.slabs; ++slab) {
    if (CopyClassOf(shape_, slab) >= 0 && weights_[slab] == Weights::kHere) {
      return OnSlab(Op::kRelease, slab);
    }
  }
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
