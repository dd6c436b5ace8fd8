// Random moves between random layouts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/module/mover.h"
#include "tests/framework/module/mover_ends.h"
#include "tests/framework/module/random_layouts.h"

namespace delink::testing {

// Two layouts of a model, and moves from tensors of one to those of the other
// that have their shape: exact values under any layouts; without a tensor axis
// also values in blocks and factored statistics.
class RandomMoves {
 public:
  RandomMoves(Dice& dice, int most_ranks);
  RandomMoves(const RandomMoves&) = delete;
  RandomMoves& operator=(const RandomMoves&) = delete;

  int ranks() const { return std::max(from_.ranks(), to_.ranks()); }
  TestSource SourceOf(int rank) const { return {from_, rank, source_}; }
  TestSink SinkOf(int rank) const { return {to_, rank, target_}; }
  absl::Status Go(ValueSource& source, ValueSink& sink,
                  Communicator& comm) const {
    return MoveValues(source, sink, moves_, comm, most_);
  }

  // That all that a sink's rank wants has come.
  void Check(TestSink& sink) const;

  // What ranks want and have not, each value once a rank, in bytes.
  int64_t LeastToCross() const;

 private:
  const LogicalTensor& AnyLike(const LogicalTensor& to, Dice& dice) const;
  double Expected(const TestSink& sink, const std::string& source,
                  const LogicalTensor& to, int64_t number) const;

  const bool tensor_;  // whether the layouts have a tensor axis
  const Model model_;
  const Layout from_, to_;
  EndOptions source_, target_;
  int64_t most_ = 1;
  bool changes_ = false;
  std::vector<Move> moves_;
};

}  // namespace delink::testing
