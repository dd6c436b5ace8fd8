// The runtime's memory pools, on the emulated device: how much of the device
// they hold.
//
// As the runtime's, a pool holds on to what was freed, and a block lies in one
// piece of what the pool once took; only such pieces of which nothing is handed
// out go back. That what is free never lies at the best place for what comes is
// left open by the runtime, and used here: a piece is cut at its first gap.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "tests/testing/simt/memory.h"

// NOLINTNEXTLINE(readability-identifier-naming): the runtime's name
struct CUmemPoolHandle_st {
  struct Piece {
    int64_t bytes;
    std::map<int64_t, int64_t> blocks;  // handed out: size by offset
  };
  struct Place {
    Piece* piece;
    int64_t offset;
  };
  std::list<Piece> pieces;
  std::map<void*, Place> places;
  uint64_t threshold = 0;
  int64_t held = 0, most_held = 0;
};

namespace delink::simt {

class Pools {
 public:
  using Pool = CUmemPoolHandle_st;

  Pool* New();
  // False where it is none, or something of it is still handed out.
  bool Destroy(Pool* pool);
  bool Has(const Pool* pool) const;
  // Null where the pool must grow, and the device, which has `limit` bytes, has
  // not so much.
  void* Take(Pool* pool, int64_t bytes, Memory& memory, int64_t limit);
  // That the memory at `address`, if a pool's, is free.
  void Forget(void* address);
  static void Trim(Pool* pool, int64_t keep);
  // Bytes that pools hold and nobody has.
  int64_t idle() const;

 private:
  std::vector<std::unique_ptr<Pool>> pools_;
};

}  // namespace delink::simt
