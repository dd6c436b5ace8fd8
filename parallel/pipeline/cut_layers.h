// Where a model is cut into the chunks of a pipeline. Both functions return the
// chunk of each layer, ascending from 0; each chunk has at least one layer.
// They are pure, so all ranks find the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace delink {

// `blocks`: the number of blocks of each chunk. The first chunk also has the
// prologue, the last the epilogue.
std::vector<int> CutByBlocks(std::span<const int64_t> blocks);

// `costs`: the cost of each layer, prologue and epilogue included. Minimises
// the largest chunk's cost, because all others wait for that chunk; then the
// sum of squared costs, so that chunks are even. The layers before each chunk
// are cut by the same rule. Of equal cuts it takes the one with more layers in
// front. Costs are rounded to 2^-16 of the largest. O(chunks x layers^2).
std::vector<int> CutByCost(std::span<const double> costs, int chunks);

}  // namespace delink
