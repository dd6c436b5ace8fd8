// A model whose blocks note what each visit is told of itself
// (VisitInputs::again, counted_targets), and what the visits of a step and an
// evaluation are to be told: counted from the text by hand.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/recipes/run/step_rig.h"

namespace delink::testing {

// What a visit of a block was told. Visits are told apart by their first
// sequence.
struct VisitNote {
  int64_t block = 0, sample = 0;
  bool training = false, again = false;
  friend bool operator==(const VisitNote&, const VisitNote&) = default;
  friend bool operator<(const VisitNote& a, const VisitNote& b) {
    return std::tie(a.block, a.sample, a.training, a.again) <
           std::tie(b.block, b.sample, b.training, b.again);
  }
};
std::ostream& operator<<(std::ostream& out, const VisitNote& note);

// Of one rank, in order, with the number of counted targets.
using VisitNotes = std::vector<std::pair<VisitNote, int64_t>>;

// A model for RigOptions::build that appends to `notes`, which outlives it.
std::function<std::unique_ptr<Sequential>(const Scope&, const GptConfig&)>
BuildNoting(VisitNotes* notes);

// Of each micro-batch of so many sequences, by its first one.
std::map<int64_t, int64_t> CountedByHand(const HostBatch& batch,
                                         size_t sequences);

// A step and an evaluation of four micro-batches a data rank, of which the
// first has no counted target.
struct NotedCase {
  int data = 1;
  // Sizes of the model and the batch apart.
  RigOptions options = {};
  // In addition to options.recompute: these blocks run again.
  std::vector<int> again = {};
  // Slots of blocks go to the host between forward and backward.
  bool stores = false;

  int ranks() const {
    return data * options.tensor * options.context * options.pipeline;
  }
};
std::ostream& operator<<(std::ostream& out, const NotedCase& of);

// On of.ranks() threads. Expects of every block and micro-batch one first visit
// in the step and one in the evaluation, in the step another one exactly where
// the block runs again, and everywhere the number of counted targets of all of
// the micro-batch's rows.
void ExpectVisitsToldTruly(const NotedCase& of);

}  // namespace delink::testing
