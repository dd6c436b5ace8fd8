// Elements of a store's planes on their way through the host, as doubles, a
// piece at a time: for work at a switch, where it need not be fast and must not
// take device memory. Nothing happens on a device that computes nothing.
// Internal to framework/sharing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>

#include "framework/module/param_store.h"

namespace delink {

// Elements on the host at a time.
inline constexpr int64_t kPieceElements = int64_t{1} << 18;

// The overlap; empty ranges begin where they end.
inline Range Overlap(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Calls visit(Range) for pieces of at most `most` elements, in order.
template <typename Visit>
void ForEachPiece(Range range, int64_t most, Visit visit) {
  for (int64_t begin = range.begin; begin < range.end; begin += most) {
    visit(Range{begin, std::min(begin + most, range.end)});
  }
}

// Elements `piece` of the gradient, say, or of another plane of floating-
// point numbers, which must be held; values.size() of them.
void ReadPiece(Stream& stream, const ParamStore& store, int slab, Plane plane,
               Range piece, std::span<double> values);

// Replaces the values of a parameter's state that this rank holds by what
// `change` makes of them; rounded once to the form they are stored in. Where
// all are multiplied by one factor, 8-bit codes stay as they are and only their
// scales change.
void ChangeState(Stream& stream, ParamStore& store, int slab, int state,
                 size_t param,
                 const std::function<void(std::span<double>)>& change);

}  // namespace delink
