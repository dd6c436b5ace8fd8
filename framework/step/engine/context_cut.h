// How the context axis cuts the tokens of a row: into twice as many equal
// chunks as there are ranks. Place i has chunk i and the i-th chunk from the
// end, so that all have equally much to attend to (zig-zag).
#pragma once

#include <cstdint>
#include <vector>

namespace delink {

// Where in a row of `seq` tokens those of context place `place` are, ascending.
// `seq` is a multiple of twice `ranks`, or there is one rank.
std::vector<int32_t> ContextPlaces(int64_t seq, int ranks, int place);

// Of rows [n, seq] the tokens at these places: [n, places].
void CutRows(const std::vector<int32_t>& rows, int64_t seq,
             const std::vector<int32_t>& places, std::vector<int32_t>* here);

}  // namespace delink
