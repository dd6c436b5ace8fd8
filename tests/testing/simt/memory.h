// Memory of the emulated device and pinned memory of the host.
//
// Both lie in one range of addresses that is reserved once. An address is
// handed out once in the life of the process, so that a use after free can be
// told from anything else; between two allocations nothing lies for at least
// 256 bytes. The device's part cannot be touched by the host: it is readable
// and writable only between Open and Close.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace delink::simt {

class Memory {
 public:
  struct Range {
    uintptr_t begin;
    uintptr_t end;
  };

  Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Null where `limit`, of memory of the device, or the addresses are used up.
  void* Allocate(int64_t bytes, bool pinned, int64_t limit);
  // False where `address` is not the beginning of an allocation of that kind.
  bool Free(void* address, bool pinned);

  bool IsPinned(const void* address) const;
  bool IsDevice(const void* address) const;
  // Whether the bytes are in one live allocation.
  bool IsLive(uintptr_t address, int64_t bytes);
  // What to say of an address that is not: how far it is from which allocation,
  // or when that was freed.
  std::string Describe(uintptr_t address) const;

  // Lets kernels, or nobody, touch the device's memory.
  void Open();
  void Close();

  int64_t bytes_in_use() const { return bytes_in_use_; }
  Range arena() const { return arena_; }
  uintptr_t pinned_begin() const { return pinned_begin_; }

 private:
  static constexpr int64_t kDeviceBytes = int64_t{64} << 30;
  static constexpr int64_t kPinnedBytes = int64_t{8} << 30;

  bool InPart(uintptr_t address, bool pinned) const;

  Range arena_;
  uintptr_t pinned_begin_;
  uintptr_t next_device_;
  uintptr_t next_pinned_;
  int64_t bytes_in_use_ = 0;
  bool open_ = false;
  Range opened_{};                      // what Close closes
  std::map<uintptr_t, int64_t> live_;   // size by first address
  std::map<uintptr_t, int64_t> freed_;  // likewise
  Range last_{};                        // where IsLive found its last answer
};

}  // namespace delink::simt
