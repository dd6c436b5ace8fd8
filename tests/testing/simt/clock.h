// Time on the emulated device (shadow.h says what it is for), and who runs now.
#pragma once

#include "tests/testing/simt/shadow.h"

namespace delink::simt {

// Time goes on; the answer is shifted as in a Record. What ran before must say
// again who runs (BeginThread).
Record NextTime();

// A kernel, or a copy, begins, and everything before time `known` is ordered
// before it; the answer is when.
uint64_t BeginWork(uint64_t known);
void BeginBlock();
// `warp` and `lanes` are as in Now.
void BeginThread(int thread, Record warp, const Record* lanes);

// __threadfence. What a block wrote before a fence and an atomic operation
// after it is seen by blocks that come to an atomic operation later.
void Fence();
void AtomicDone();

}  // namespace delink::simt
