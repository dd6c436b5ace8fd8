#include "parallel/pipeline/cut_layers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "framework/base/check.h"

namespace delink {
namespace {

// A cut of the first layers: the cost of its largest chunk, and the sum of the
// squares, which is least if chunks are even; and where its last chunk begins.
struct Cut {
  std::pair<int64_t, int64_t> cost;
  size_t begin = 0;
};

// Sums of the first layers, in integer parts of the largest cost, so that
// equally good cuts compare equal, in whatever order they are summed.
std::vector<int64_t> Sums(std::span<const double> costs) {
  constexpr double kParts = 1 << 16;
  const double largest = *std::max_element(costs.begin(), costs.end());
  DELINK_CHECK(largest > 0);
  std::vector<int64_t> sums = {0};
  for (const double cost : costs) {
    sums.push_back(sums.back() + std::llround(cost / largest * kParts));
  }
  return sums;
}

}  // namespace

std::vector<int> CutByBlocks(std::span<const int64_t> blocks) {
  std::vector<int> chunks;
  for (size_t c = 0; c < blocks.size(); ++c) {
    int64_t layers = blocks[c];
    if (c == 0) ++layers;
    if (c + 1 == blocks.size()) ++layers;
    DELINK_CHECK(layers > 0) << "chunk " << c << " has no layers";
    chunks.insert(chunks.end(), static_cast<size_t>(layers),
                  static_cast<int>(c));
  }
  return chunks;
}

std::vector<int> CutByCost(std::span<const double> costs, int chunks) {
  const size_t layers = costs.size();
  const auto count = static_cast<size_t>(chunks);
  DELINK_CHECK(count >= 1 && count <= layers);
  const std::vector<int64_t> sums = Sums(costs);
  const auto added = [&](const Cut& before, size_t begin, size_t end) {
    const int64_t last = sums[end] - sums[begin];
    return Cut{.cost = {std::max(before.cost.first, last),
                        before.cost.second + last * last},
               .begin = begin};
  };
  // By number of chunks, less one, and number of layers: the best cut of so
  // many layers into so many chunks.
  std::vector<std::vector<Cut>> best(count, std::vector<Cut>(layers + 1));
  for (size_t n = 1; n <= layers; ++n) best[0][n] = added({}, 0, n);
  for (size_t k = 1; k < count; ++k) {
    for (size_t n = k + 1; n <= layers; ++n) {
      best[k][n] = added(best[k - 1][n - 1], n - 1, n);
      for (size_t begin = n - 2; begin >= k; --begin) {
        if (sums[n] - sums[begin] > best[k][n].cost.first) break;
        const Cut cut = added(best[k - 1][begin], begin, n);
        if (cut.cost < best[k][n].cost) best[k][n] = cut;
      }
    }
  }
  std::vector<int> chunk_of(layers);
  size_t end = layers;
  for (size_t k = count; k-- > 0;) {
    const size_t begin = best[k][end].begin;
    std::fill(chunk_of.begin() + static_cast<std::ptrdiff_t>(begin),
              chunk_of.begin() + static_cast<std::ptrdiff_t>(end),
              static_cast<int>(k));
    end = begin;
  }
  return chunk_of;
}

}  // namespace delink
