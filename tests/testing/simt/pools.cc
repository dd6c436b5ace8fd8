#include "tests/testing/simt/pools.h"

#include <algorithm>

namespace delink::simt {
namespace {

using Pool = Pools::Pool;

// The offset of the first gap of so many bytes, or -1.
int64_t GapIn(const Pool::Piece& piece, int64_t bytes) {
  int64_t offset = 0;
  for (const auto& [begin, size] : piece.blocks) {
    if (begin - offset >= bytes) return offset;
    offset = begin + size;
  }
  return piece.bytes - offset >= bytes ? offset : -1;
}

Pool::Place FindPlace(Pool& pool, int64_t bytes) {
  for (Pool::Piece& piece : pool.pieces) {
    const int64_t offset = GapIn(piece, bytes);
    if (offset >= 0) return {&piece, offset};
  }
  return {};
}

}  // namespace

Pool* Pools::New() {
  return pools_.emplace_back(std::make_unique<Pool>()).get();
}

bool Pools::Has(const Pool* pool) const {
  return std::any_of(pools_.begin(), pools_.end(),
                     [=](const auto& p) { return p.get() == pool; });
}

bool Pools::Destroy(Pool* pool) {
  if (!Has(pool) || !pool->places.empty()) return false;
  std::erase_if(pools_, [=](const auto& p) { return p.get() == pool; });
  return true;
}

void* Pools::Take(Pool* pool, int64_t bytes, Memory& memory, int64_t limit) {
  Pool::Place place = FindPlace(*pool, bytes);
  const bool grows = place.piece == nullptr;
  // What lies in a piece is paid for.
  const int64_t room = limit - idle() + (grows ? 0 : bytes);
  void* const address = memory.Allocate(bytes, false, room);
  if (address == nullptr) return nullptr;
  if (grows) {
    place = {&pool->pieces.emplace_back(Pool::Piece{bytes, {}}), 0};
    pool->held += bytes;
    pool->most_held = std::max(pool->most_held, pool->held);
  }
  place.piece->blocks.emplace(place.offset, bytes);
  pool->places.emplace(address, place);
  return address;
}

void Pools::Forget(void* address) {
  for (const auto& pool : pools_) {
    const auto found = pool->places.find(address);
    if (found == pool->places.end()) continue;
    found->second.piece->blocks.erase(found->second.offset);
    pool->places.erase(found);
    return;
  }
}

void Pools::Trim(Pool* pool, int64_t keep) {
  for (auto piece = pool->pieces.begin(); piece != pool->pieces.end();) {
    if (piece->blocks.empty() && pool->held - piece->bytes >= keep) {
      pool->held -= piece->bytes;
      piece = pool->pieces.erase(piece);
    } else {
      ++piece;
    }
  }
}

int64_t Pools::idle() const {
  int64_t bytes = 0;
  for (const auto& pool : pools_) {
    bytes += pool->held;
    for (const auto& [address, place] : pool->places) {
      bytes -= place.piece->blocks.at(place.offset);
    }
  }
  return bytes;
}

}  // namespace delink::simt
