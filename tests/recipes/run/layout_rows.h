// Drawn runs over tensor, context, pipeline and data ranks, with the switch of
// Pseudo-to-Real in the middle and often another layout after it; and which
// other runs they must be equal to.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/recipes/run/run_table.h"

namespace delink::testing {

struct LayoutRow {
  Configuration configuration;
  uint64_t index = 0;
  // As a person would start it.
  friend std::ostream& operator<<(std::ostream& out, const LayoutRow& row);
};

const std::vector<Axis>& LayoutAxes();

// `count` of them.
std::vector<LayoutRow> LayoutRows(uint64_t count, uint64_t seed);

enum class Direction { kTensor, kContext, kPipeline, kData };
// The ranks of a stage (0 or 1) along it.
int RanksAlong(const Configuration& c, int stage, Direction direction);
int RanksOf(const Configuration& c);
// Expert ranks of a stage (0 or 1).
int ExpertsOf(const Configuration& c, int stage);
int KeyHeadsOf(const Configuration& c);  // of keys and values

std::string RecipeOf(const Configuration& c);
std::vector<std::string> SetsOf(const Configuration& c);
std::string CommandOf(const Configuration& c);

// On one rank, which stores what it does not recompute as recipes do.
Configuration OnOneRank(Configuration c);
// Over another layout, which rounds otherwise.
Configuration OverAnotherLayout(const Configuration& c, uint64_t seed);
// What must have the same bits: without ZeRO or with it, with another
// recompute, with other ways to the experts, and where no slab is used in two
// chunks of the pipeline with another schedule over fewer stages.
Configuration WithTheSameBits(Configuration c);

}  // namespace delink::testing
