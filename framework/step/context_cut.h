// How the tokens of a row are cut between the ranks of the context axis: into
// twice as many even chunks as there are ranks, of which place i has number i
// and as the second the i-th from behind: then all have as much to attend to
// (zig-zag).
#pragma once

#include <cstdint>
#include <vector>

namespace delink {

// Where in a row of `seq` tokens those of a place stand, ascending. `seq` is a
// multiple of twice `ranks`, or there is one rank.
std::vector<int32_t> ContextPlaces(int64_t seq, int ranks, int place);

// Of rows [n, seq] the tokens at these places: [n, places].
void CutRows(const std::vector<int32_t>& rows, int64_t seq,
             const std::vector<int32_t>& places, std::vector<int32_t>* here);

}  // namespace delink
