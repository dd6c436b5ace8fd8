// Where a model is cut into the chunks of a pipeline. Both give the chunk of
// each layer, from 0 up, never falling; each chunk has a layer at least. Pure:
// all ranks find the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace delink {

// By chunk, how many blocks it has: the first has the prologue besides, the
// last the epilogue.
std::vector<int> CutByBlocks(std::span<const int64_t> blocks);

// By layer what it costs, prologue and epilogue too. The chunk that costs most,
// for which all others wait, costs as little as can be. What is before it is
// cut likewise; of cuts that are as good, the one with more in front. Costs are
// rounded to 2^-16 of the largest. O(chunks x layers^2).
std::vector<int> CutByCost(std::span<const double> costs, int chunks);

}  // namespace delink
