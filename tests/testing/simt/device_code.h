// Device code's part of CUDA, for g++: thread indices, barriers, collective
// operations of warps, atomics. As the CUDA programming guide describes them;
// what is undefined there is reported here.
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/testing/simt/block.h"
#include "tests/testing/simt/device_math.h"

extern "C" {
extern const uint3 threadIdx;
extern const uint3 blockIdx;
// dim3 on a device; here a type without constructors, whose constants need no
// call at each access.
extern const uint3 blockDim;
extern const uint3 gridDim;
extern const int warpSize;
extern unsigned char simt_dynamic_shared[];
}

// Where a barrier stands: an argument that nobody gives.
#define DELINK_SIMT_HERE \
  ::delink::simt::CodeLine where = {__builtin_FILE(), __builtin_LINE()}

inline void __syncthreads(DELINK_SIMT_HERE) {
  delink::simt::WaitForBlock(delink::simt::Wait::kBlock, 0, where);
}
inline int __syncthreads_or(int value, DELINK_SIMT_HERE) {
  return delink::simt::WaitForBlock(delink::simt::Wait::kBlockOr, value, where);
}
inline int __syncthreads_and(int value, DELINK_SIMT_HERE) {
  return delink::simt::WaitForBlock(delink::simt::Wait::kBlockAnd, value,
                                    where);
}
inline int __syncthreads_count(int value, DELINK_SIMT_HERE) {
  return delink::simt::WaitForBlock(delink::simt::Wait::kBlockCount, value,
                                    where);
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFF, DELINK_SIMT_HERE) {
  delink::simt::WaitForWarp({delink::simt::Wait::kWarp, mask, 0, 0, 32}, where);
}

namespace delink::simt {

template <typename T>
T Exchange(Wait wait, unsigned mask, T value, int argument, int width,
           CodeLine where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = WaitForWarp({wait, mask, bits, argument, width}, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
inline uint64_t Vote(Wait wait, unsigned mask, bool value, CodeLine where) {
  return WaitForWarp({wait, mask, value, 0, 32}, where);
}

// Atomic operations: what was there before, having checked the access.
void AtomicRead(const void* address, int64_t bytes, void* value);
void AtomicWrite(void* address, int64_t bytes, const void* value);
void ThreadFence();

template <typename T, typename F>
T Atomic(T* address, F next) {
  T before;
  AtomicRead(address, sizeof(T), &before);
  const T after = next(before);
  AtomicWrite(address, sizeof(T), &after);
  return before;
}

template <typename T>
inline constexpr bool kCanAdd =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> ||
    std::is_same_v<T, unsigned long long> || std::is_same_v<T, float> ||
    std::is_same_v<T, double>;
template <typename T>
inline constexpr bool kCanCompare =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> ||
    std::is_same_v<T, unsigned long long> || std::is_same_v<T, long long>;

}  // namespace delink::simt

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              DELINK_SIMT_HERE) {
  return delink::simt::Exchange(delink::simt::Wait::kShuffle, mask, value, lane,
                                width, where);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 DELINK_SIMT_HERE) {
  return delink::simt::Exchange(delink::simt::Wait::kShuffleUp, mask, value,
                                static_cast<int>(delta), width, where);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   DELINK_SIMT_HERE) {
  return delink::simt::Exchange(delink::simt::Wait::kShuffleDown, mask, value,
                                static_cast<int>(delta), width, where);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  DELINK_SIMT_HERE) {
  return delink::simt::Exchange(delink::simt::Wait::kShuffleXor, mask, value,
                                lanes, width, where);
}

inline unsigned __ballot_sync(unsigned mask, int value, DELINK_SIMT_HERE) {
  return static_cast<unsigned>(
      delink::simt::Vote(delink::simt::Wait::kBallot, mask, value != 0, where));
}
inline int __any_sync(unsigned mask, int value, DELINK_SIMT_HERE) {
  return static_cast<int>(
      delink::simt::Vote(delink::simt::Wait::kAny, mask, value != 0, where));
}
inline int __all_sync(unsigned mask, int value, DELINK_SIMT_HERE) {
  return static_cast<int>(
      delink::simt::Vote(delink::simt::Wait::kAll, mask, value != 0, where));
}
inline unsigned __activemask() { return delink::simt::ActiveLanes(); }

inline void __threadfence() { delink::simt::ThreadFence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { delink::simt::ThreadFence(); }

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <typename T>
void __stcg(T* address, std::type_identity_t<T> value) {
  *address = value;
}

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  static_assert(delink::simt::kCanAdd<T>);
  return delink::simt::Atomic(
      address, [value](T x) { return static_cast<T>(x + value); });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  static_assert(delink::simt::kCanCompare<T>);
  return delink::simt::Atomic(address,
                              [value](T x) { return x < value ? value : x; });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  static_assert(delink::simt::kCanCompare<T>);
  return delink::simt::Atomic(address,
                              [value](T x) { return value < x ? value : x; });
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  static_assert(delink::simt::kCanCompare<T>);
  return delink::simt::Atomic(address, [value](T x) { return x | value; });
}
template <typename T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  static_assert(delink::simt::kCanCompare<T>);
  return delink::simt::Atomic(address, [value](T x) { return x & value; });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return delink::simt::Atomic(address, [value](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected,
            std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>);
  return delink::simt::Atomic(address,
                              [=](T x) { return x == expected ? value : x; });
}
// Wraps around to 0 after `limit`.
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return delink::simt::Atomic(
      address, [limit](unsigned x) { return x >= limit ? 0U : x + 1; });
}

#undef DELINK_SIMT_HERE
