// 32 threads that exchange values: who has come to which collective operation,
// and what each gets.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tests/testing/simt/block.h"
#include "tests/testing/simt/shadow.h"

namespace delink::simt {

const char* WaitName(Wait wait);
std::string LineName(CodeLine where);

class Warp {
 public:
  // A new block, of which `lanes` threads are in this warp.
  void Begin(int lanes);

  // The lanes that may go on now that this one has come too: all of the mask
  // that are there, or none.
  uint32_t Arrive(int lane, const WarpCall& call);
  // Works out what each of them gets, and notes that they have met.
  void Answer(uint32_t released, uint32_t mask, CodeLine where);
  uint64_t answer(int lane) const { return answers_[Index(lane)]; }

  // Whether what `lane` waits in needs `other`.
  bool Names(int lane, int other) const;

  // When all lanes met last, and when this one met each other one of them in a
  // collective operation of some lanes (null: never).
  Record last_full() const { return last_full_; }
  const Record* lanes(int lane) const;

 private:
  static size_t Index(int lane) { return static_cast<size_t>(lane); }
  int Source(const WarpCall& call, int lane) const;

  uint32_t present_ = 0;
  uint32_t waiting_ = 0;
  std::array<WarpCall, 32> calls_{};
  std::array<uint64_t, 32> answers_{};
  std::array<uint64_t, 32> gathered_{};  // what all gave, for kMatrix
  Record last_full_ = 0;
  bool partial_ = false;
  std::array<std::array<Record, 32>, 32> met_{};
};

}  // namespace delink::simt
