// The validator's rules of copies: what the device works on is there, what was
// written in a copy goes home before it is needed there. Part of
// ValidateProgram.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/step/dependencies.h"
#include "framework/step/instruction.h"

namespace delink {

// Follows a program through its steps and keeps where the planes of slabs are.
// Rules return what is wrong, or nothing.
class CopyRules {
 public:
  // The program must outlive it.
  explicit CopyRules(const Program& program);

  void BeginStep();
  // The instruction finds what it works on, and writes it.
  std::string Use(const Instruction& instruction);
  // What IsOfPlanes; `updated`: the slab is, in this step, so that nobody needs
  // its gradient any more.
  std::string Check(const Instruction& instruction, bool updated);
  // The host updates the slab, or gathers its weights: all is at home, and no
  // copy is left of what was there before.
  std::string CheckHome(int32_t slab) const;
  // A kSum reads gradients that blocks share, a kSave weights and state.
  std::string CheckSum() const;
  std::string CheckSave(int32_t slab) const;
  // The kRelease of a copy that is still there.
  std::string FindKept() const;

 private:
  struct Place {
    int32_t copy_class = -1;
    bool there = false;  // a copy
    bool dirty = false;  // with more in it than what is at home
    bool stale = false;  // home, of which a copy has more, or had
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
