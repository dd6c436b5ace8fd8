#include "framework/step/engine/context_cut.h"

#include <cstddef>

#include "framework/base/check.h"

namespace delink {

std::vector<int32_t> ContextPlaces(int64_t seq, int ranks, int place) {
  std::vector<int32_t> places;
  const auto add = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      places.push_back(static_cast<int32_t>(t));
    }
  };
  if (ranks == 1) {
    add(0, seq);
    return places;
  }
  const int64_t chunk = seq / (2 * ranks);
  DELINK_CHECK_EQ(chunk * 2 * ranks, seq) << "a row is cut into even chunks";
  add(place * chunk, (place + 1) * chunk);
  add((2 * ranks - 1 - place) * chunk, (2 * ranks - place) * chunk);
  return places;
}

void CutRows(const std::vector<int32_t>& rows, int64_t seq,
             const std::vector<int32_t>& places, std::vector<int32_t>* here) {
  here->clear();
  for (size_t row = 0; row < rows.size(); row += static_cast<size_t>(seq)) {
    for (const int32_t t : places) {
      here->push_back(rows[row + static_cast<size_t>(t)]);
    }
  }
}

}  // namespace delink
