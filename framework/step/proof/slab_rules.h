// The validator's rules of slabs: where their planes are, when their gradients
// are complete, and what may then run. Part of ValidateProgram.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/step/program/instruction.h"
#include "framework/step/proof/copy_rules.h"

namespace delink {

// Follows a program through its steps and keeps what has happened to its slabs.
// Rules return what is wrong, or nothing.
class SlabRules {
 public:
  // The program must outlive it.
  explicit SlabRules(const Program& program);

  void BeginStep();
  // The instruction finds the planes of slabs that it works on.
  std::string Use(const Instruction& instruction);
  // A visit adds to gradients that are not reduced yet.
  std::string Contribute(int32_t layer, int32_t micro_batch);
  // kReduce, kSquares, kNorm, kUpdate, kSave, kGather, and all that IsOfPlanes.
  std::string Check(const Instruction& instruction);
  bool IsReduced(int32_t slab) const { return reduced_[slab]; }
  // The first of these that the step lacks.
  std::string FindMissing() const;
  // The missing kRelease of a copy: none may be left between steps.
  std::string FindKept() const { return copies_.FindKept(); }
  // What is wrong with the gradients that a kSum reads.
  std::string CheckSum() const { return copies_.CheckSum(); }

 private:
  // Whether a slab's weights are whole. The slab's first use in a step tells
  // what held at its start; the same must hold at its end.
  enum class Weights { kUnknown, kHere, kAway };

  std::string CheckReduce(int32_t slab);
  // The first contribution to the slab's gradient that is missing.
  std::string FindIncomplete(int32_t slab) const;
  std::string CheckSquares(int32_t slab);
  std::string CheckNorm();
  std::string CheckUpdate(int32_t slab);
  std::string CheckSave(int32_t slab);
  std::string CheckGather(int32_t slab);

  const Program& program_;
  const ProgramShape& shape_;
  std::vector<bool> here_;             // some layer of the stage uses it
  const std::vector<bool> in_halves_;  // LayersInHalves
  std::vector<std::vector<int32_t>> layers_of_slab_;  // here, from the last
  std::vector<Weights> weights_;
  CopyRules copies_;
  std::vector<std::vector<uint8_t>> contributed_;  // by layer, micro-batch
  // By slab. added_: by visits, since its last kReduce.
  std::vector<bool> added_, reduced_, squared_, updated_, saved_;
  int32_t saves_ = 0, saves_of_updated_ = 0;
  bool norm_ = false;
};

}  // namespace delink
