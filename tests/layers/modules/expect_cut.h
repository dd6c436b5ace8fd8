// Layers cut over ranks against the same on one rank, in every way in which a
// visit may run and in the types of runs.
#pragma once

#include <gtest/gtest.h>

#include "tests/testing/cut_layer.h"

namespace delink::testing {

// Over 2 and 4 ranks. Sums may be off by so many roundings.
inline void ExpectCut(const CutCase& c, double roundings) {
  const CutResult whole = RunCut(c, {.times = 2});
  for (const int n : {2, 4}) {
    for (const bool sequence : {false, true}) {
      for (const bool halves : {false, true}) {
        const bool remake = halves == (n == 2);
        SCOPED_TRACE(::testing::Message()
                     << n << " ranks, sequence " << sequence << ", halves "
                     << halves << ", remake " << remake);
        ExpectSame(RunCut(c, {.ranks = n,
                              .sequence = sequence,
                              .memory = MemoryMode::kPlanned,
                              .halves = halves,
                              .remake = remake,
                              .times = 2}),
                   whole, roundings * 0x1p-53);
      }
    }
  }
}

// In f32, and in bf16 with gradients of either type: so many values that are
// rounded to bf16 are behind each other.
inline void ExpectCutInTypesOfRuns(const CutCase& c, double roundings,
                                   double of_bf16) {
  const CutResult whole = RunCut(c, {});
  for (const bool sequence : {false, true}) {
    SCOPED_TRACE(sequence);
    const CutOptions f32 = {.ranks = 4,
                            .sequence = sequence,
                            .dtype = DType::kF32,
                            .memory = MemoryMode::kPlanned};
    ExpectSame(RunCut(c, f32), whole, roundings * 0x1p-24);
    for (const bool narrow : {false, true}) {
      CutOptions bf16 = f32;
      bf16.dtype = DType::kBF16;
      bf16.bf16_gradients = narrow;
      ExpectSame(RunCut(c, bf16), whole, of_bf16 * 0x1p-9);
    }
  }
}

}  // namespace delink::testing
