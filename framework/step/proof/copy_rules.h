// The validator's rules of copies: planes are on the device when it works on
// them, and a copy that was written is evicted before its planes are needed at
// home. Part of ValidateProgram.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/step/program/dependencies.h"
#include "framework/step/program/instruction.h"

namespace delink {

// Follows a program through its steps and keeps where the planes of slabs are.
// Rules return what is wrong, or nothing.
class CopyRules {
 public:
  // The program must outlive it.
  explicit CopyRules(const Program& program);

  void BeginStep();
  // The instruction finds the planes that it works on, and writes them.
  std::string Use(const Instruction& instruction);
  // An instruction that IsOfPlanes. `updated`: the slab was already updated in
  // this step, so its gradient is not needed any more.
  std::string Check(const Instruction& instruction, bool updated);
  // Before the host updates the slab or gathers its weights: all planes are at
  // home, and none has a copy, which would be out of date.
  std::string CheckHome(int32_t slab) const;
  // A kSum reads gradients that blocks share, a kSave weights and state.
  std::string CheckSum() const;
  std::string CheckSave(int32_t slab) const;
  // The missing kRelease of a copy that is still there.
  std::string FindKept() const;

 private:
  struct Place {
    int32_t copy_class = -1;
    bool there = false;  // there is a copy
    bool dirty = false;  // the copy was written since it was last evicted
    bool stale = false;  // home is out of date: a copy was written, not evicted
  };

  Place& At(PlaneSet planes, int32_t slab) {
    return places_[static_cast<size_t>(planes)][slab];
  }
  const Place& At(PlaneSet planes, int32_t slab) const {
    return places_[static_cast<size_t>(planes)][slab];
  }
  std::string CheckAtHome(PlaneSet planes, int32_t slab) const;
  std::string CheckArrival(const Instruction& instruction);
  std::string CheckEvict(const Instruction& instruction);
  std::string CheckRelease(const Instruction& instruction, bool updated);

  const Program& program_;
  const ProgramShape& shape_;
  const std::vector<int32_t> sharers_;
  std::array<std::vector<Place>, kPlaneSets>
      places_;                     // by set of planes and slab
  std::vector<int32_t> free_;      // by class
  std::vector<bool> contributed_;  // by slab: the gradient has something
};

}  // namespace delink
