// What g++ -fsanitize=thread calls at each access to memory; the sanitizer's
// own library is not linked. Also what -fsanitize=bounds and =alignment call:
// at an index outside an array of known size, and at an address that the type
// there does not allow (the compiler may split an access of 16 bytes in four).
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/testing/simt/clock.h"
#include "tests/testing/simt/device_code.h"
#include "tests/testing/simt/report.h"
#include "tests/testing/simt/shadow.h"
#include "tests/testing/simt/shadow_fast.h"

namespace {

using delink::simt::Access;
using delink::simt::g_layout;
using delink::simt::t_in_kernel;

// Local variables are most of what is seen, and nobody else's.
inline bool Unseen(uintptr_t address) {
  return !t_in_kernel ||
         address - g_layout.stacks_begin < g_layout.stacks_bytes;
}

[[noreturn]] void ReportMisaligned(uintptr_t address, int bytes, bool write,
                                   const void* pc) {
  delink::simt::Report(std::string("misaligned ") + (write ? "write" : "read") +
                           " of " + std::to_string(bytes) + " bytes at " +
                           delink::simt::Hex(address),
                       pc);
}

template <int kBytes, Access kAccess, bool kAligned>
inline void OnAccess(void* pointer, const void* pc) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (Unseen(address)) return;
  if (kAligned && address % kBytes != 0) {
    ReportMisaligned(address, kBytes, kAccess == Access::kWrite, pc);
  }
  if constexpr (kBytes > 1) {
    if (delink::simt::FastCheck<kBytes, kAccess>(address)) return;
  }
  delink::simt::CheckAccess(address, kBytes, kAccess, pc);
}

inline void OnRange(void* pointer, uint64_t bytes, Access access,
                    const void* pc) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (Unseen(address)) return;
  delink::simt::CheckAccess(address, static_cast<int64_t>(bytes), access, pc);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

#define DELINK_SIMT_HOOKS(n)                                            \
  void __tsan_read##n(void* p) {                                        \
    OnAccess<n, Access::kRead, true>(p, __builtin_return_address(0));   \
  }                                                                     \
  void __tsan_write##n(void* p) {                                       \
    OnAccess<n, Access::kWrite, true>(p, __builtin_return_address(0));  \
  }                                                                     \
  void __tsan_unaligned_read##n(void* p) {                              \
    OnAccess<n, Access::kRead, false>(p, __builtin_return_address(0));  \
  }                                                                     \
  void __tsan_unaligned_write##n(void* p) {                             \
    OnAccess<n, Access::kWrite, false>(p, __builtin_return_address(0)); \
  }                                                                     \
  void __tsan_volatile_read##n(void* p) {                               \
    OnAccess<n, Access::kRead, true>(p, __builtin_return_address(0));   \
  }                                                                     \
  void __tsan_volatile_write##n(void* p) {                              \
    OnAccess<n, Access::kWrite, true>(p, __builtin_return_address(0));  \
  }
DELINK_SIMT_HOOKS(1)
DELINK_SIMT_HOOKS(2)
DELINK_SIMT_HOOKS(4)
DELINK_SIMT_HOOKS(8)
DELINK_SIMT_HOOKS(16)
#undef DELINK_SIMT_HOOKS

void __tsan_read_range(void* p, uint64_t bytes) {
  OnRange(p, bytes, Access::kRead, __builtin_return_address(0));
}
void __tsan_write_range(void* p, uint64_t bytes) {
  OnRange(p, bytes, Access::kWrite, __builtin_return_address(0));
}

// Where the host's side of a .cu uses std::atomic, or what is made of it.
#define DELINK_SIMT_ATOMICS(bits, T)                                          \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                    \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                              \
  }                                                                           \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                 \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                 \
  }                                                                           \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                 \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                       \
  }                                                                           \
  T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int) {                \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                        \
  }                                                                           \
  T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int) {                \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                        \
  }                                                                           \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* e, T v, \
                                                    int, int) {               \
    return static_cast<int>(__atomic_compare_exchange_n(                      \
        p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));                 \
  }
DELINK_SIMT_ATOMICS(8, uint8_t)
DELINK_SIMT_ATOMICS(32, uint32_t)
DELINK_SIMT_ATOMICS(64, uint64_t)
#undef DELINK_SIMT_ATOMICS

struct SourceLocation {
  const char* file;
  uint32_t line;
  uint32_t column;
};
struct OutOfBoundsData {
  SourceLocation where;
  const void* array_type;
  const void* index_type;
};
void __ubsan_handle_out_of_bounds(OutOfBoundsData* data, uintptr_t index) {
  delink::simt::Report("out-of-bounds index " + std::to_string(index) +
                           " of an array at " + data->where.file + ":" +
                           std::to_string(data->where.line),
                       __builtin_return_address(0));
}

struct TypeMismatchData {
  SourceLocation where;
  const void* type;
  unsigned char log_alignment;
  unsigned char kind;  // 1: a store
};
void __ubsan_handle_type_mismatch_v1(TypeMismatchData* data,
                                     uintptr_t address) {
  delink::simt::Report(
      std::string("misaligned ") + (data->kind == 1 ? "write" : "read") +
          " at " + delink::simt::Hex(address) + ", which is no multiple of " +
          std::to_string(1 << data->log_alignment) + ", at " +
          data->where.file + ":" + std::to_string(data->where.line),
      __builtin_return_address(0));
}

}  // extern "C"

namespace delink::simt {

void AtomicRead(const void* address, int64_t bytes, void* value) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  const void* const pc = __builtin_return_address(0);
  if (number % static_cast<uintptr_t>(bytes) != 0) {
    ReportMisaligned(number, static_cast<int>(bytes), true, pc);
  }
  if (!Unseen(number)) CheckAccess(number, bytes, Access::kAtomic, pc);
  std::memcpy(value, address, static_cast<size_t>(bytes));
}

void AtomicWrite(void* address, int64_t bytes, const void* value) {
  std::memcpy(address, value, static_cast<size_t>(bytes));
  AtomicDone();
}

void ThreadFence() { Fence(); }

}  // namespace delink::simt
