#include "data/corpus/split.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "framework/base/rng.h"

namespace delink {
namespace {

// A document may bring the validation side to this multiple of its share.
constexpr double kSlack = 1.25;

// The documents in the order of a keyed hash of their keys.
std::vector<size_t> HashOrder(const std::vector<DocumentSize>& documents,
                              uint64_t seed) {
  const RngKey key = Fold(KeyFromSeed(seed), "validation split");
  std::vector<std::pair<uint64_t, size_t>> hashes;
  for (size_t i = 0; i < documents.size(); ++i) {
    const RngKey hash = Fold(key, documents[i].key);
    hashes.emplace_back(uint64_t{hash.hi} << 32 | hash.lo, i);
  }
  std::sort(hashes.begin(), hashes.end());
  std::vector<size_t> order;
  for (const auto& [hash, i] : hashes) order.push_back(i);
  return order;
}

// The document from which to cut `wanted` bytes for the validation side: the
// first that is larger, else the largest.
size_t DocumentToCut(const std::vector<size_t>& order,
                     const std::vector<int64_t>& training, int64_t wanted) {
  size_t largest = order.front();
  for (const size_t i : order) {
    if (training[i] > wanted) return i;
    if (training[i] > training[largest]) largest = i;
  }
  return largest;
}

}  // namespace

// The first 64 bits.
uint64_t DocumentKey(Sha256& digest) {
  const std::string hex = digest.Hex();
  uint64_t key = 0;
  std::from_chars(hex.data(), hex.data() + 16, key, 16);
  return key;
}

std::vector<int64_t> TrainingBytes(const std::vector<DocumentSize>& documents,
                                   double share, uint64_t seed) {
  std::vector<int64_t> training;
  int64_t filled = 0;  // documents that are not empty
  int64_t total = 0;
  for (const DocumentSize& document : documents) {
    training.push_back(document.bytes);
    total += document.bytes;
    filled += document.bytes > 0 ? 1 : 0;
  }
  if (total < 2 || share == 0) return training;
  const int64_t target = std::clamp<int64_t>(
      std::llround(share * static_cast<double>(total)), 1, total - 1);
  const std::vector<size_t> order = HashOrder(documents, seed);
  int64_t taken = 0;
  for (const size_t i : order) {
    const int64_t bytes = documents[i].bytes;
    if (bytes == 0 || taken >= target || filled == 1) continue;
    if (static_cast<double>(taken + bytes) >
        kSlack * static_cast<double>(target)) {
      continue;
    }
    taken += bytes;
    training[i] = 0;
    --filled;
  }
  if (2 * taken >= target) return training;
  const size_t cut = DocumentToCut(order, training, target - taken);
  training[cut] = std::max<int64_t>(training[cut] - (target - taken), 1);
  return training;
}

}  // namespace delink
