// The blocks of a kernel, one after the other: the threads of one as fibers,
// and how they wait for one another.
//
// A fiber runs thread after thread until one of them waits; that thread keeps
// it and another fiber takes up the next, so a kernel without barriers needs
// one.
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <string>

namespace delink::simt {

struct Kernel {
  const void* function;
  dim3 grid;
  dim3 block;
  int64_t shared_bytes;
  // Calls the kernel with its arguments, which are in `closure`.
  void (*call)(const void* closure);
  const void* closure;
  int64_t closure_bytes;
};

// Makes stacks and shared memory; once.
struct BlockMemory {
  uintptr_t stacks_begin;
  uintptr_t stacks_bytes;
  const void* dynamic;  // dynamic shared memory
  int64_t dynamic_bytes;
};
BlockMemory MakeBlockMemory();

// Runs all blocks; `seed` decides in which order.
void RunKernel(const Kernel& kernel, uint64_t seed);

// "  kernel K, block (0,0,0) of (4,1,1), thread (3,0,0) of (64,1,1)\n"; empty
// where no kernel runs.
std::string WhereOnDevice();
// "(3,0,0)" of the running kernel's thread number 3.
std::string ThreadName(int thread);

// What of the running kernel the device code's header needs.
enum class Wait : uint8_t {
  kNone,
  kBlock,
  kBlockOr,
  kBlockAnd,
  kBlockCount,
  kWarp,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kBallot,
  kAny,
  kAll,
  kMatrix,
};
// Where in the device code, for reports.
struct CodeLine {
  const char* file;
  int line;
};
// Returns when all threads of the block have come; the value is what
// __syncthreads_or and its kin answer.
int WaitForBlock(Wait wait, int value, CodeLine where);
// Returns when all lanes of the mask have come.
struct WarpCall {
  Wait wait;
  uint32_t mask;
  uint64_t value;
  int argument;  // source lane, distance, or mask
  int width;
};
uint64_t WaitForWarp(const WarpCall& call, CodeLine where);
uint32_t ActiveLanes();
std::string DimName(const dim3& dim);

}  // namespace delink::simt
