// The stacks of a block's threads: side by side, so that one comparison tells a
// local variable from anything else, each with a page below it that nobody may
// touch. The arguments of the kernel lie behind the last.
#pragma once

#include <sys/mman.h>

#include <boost/context/stack_context.hpp>
#include <cstdint>
#include <vector>

#include "tests/testing/simt/report.h"

namespace delink::simt {

namespace context = boost::context;

inline constexpr int kMaxThreads = 1024;
inline constexpr uintptr_t kStackBytes = uintptr_t{128} << 10;
inline constexpr uintptr_t kGuardBytes = 4096;
inline constexpr uintptr_t kStagger = 13 * 64;
inline constexpr uintptr_t kArgumentBytes = uintptr_t{64} << 10;

class Stacks {
 public:
  void Init() {
    const uintptr_t bytes = kMaxThreads * kStackBytes + kArgumentBytes;
    void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) Report("no memory for the stacks of threads");
    begin_ = static_cast<char*>(base);
    free_.reserve(kMaxThreads);
  }
  uintptr_t begin() const { return reinterpret_cast<uintptr_t>(begin_); }
  uintptr_t bytes() const { return kMaxThreads * kStackBytes + kArgumentBytes; }
  void* arguments() const { return begin_ + kMaxThreads * kStackBytes; }

  context::stack_context Take() {
    if (free_.empty()) {
      char* const bottom = begin_ + made_ * kStackBytes;
      mprotect(bottom, kGuardBytes, PROT_NONE);
      // Tops that are whole pages apart would all want the same lines of the
      // cache.
      free_.push_back(bottom + kStackBytes - made_ % 64 * kStagger);
      ++made_;
    }
    context::stack_context stack;
    stack.size = kStackBytes - kGuardBytes - 64 * kStagger;
    stack.sp = free_.back();
    free_.pop_back();
    return stack;
  }
  void GiveBack(const context::stack_context& stack) {
    free_.push_back(static_cast<char*>(stack.sp));
  }

 private:
  char* begin_ = nullptr;
  uintptr_t made_ = 0;
  std::vector<char*> free_;  // tops
};

struct StackAllocator {
  Stacks* stacks;
  context::stack_context allocate() { return stacks->Take(); }
  void deallocate(context::stack_context& stack) { stacks->GiveBack(stack); }
};

}  // namespace delink::simt
