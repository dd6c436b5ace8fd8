#include "tests/testing/simt/shadow.h"

#include <sys/mman.h>

#include <cstring>
#include <string>
#include <utility>

#include "tests/testing/simt/block.h"
#include "tests/testing/simt/machine.h"
#include "tests/testing/simt/report.h"
#include "tests/testing/simt/shadow_fast.h"

extern "C" char __executable_start, __data_start, _end;
extern "C" char __start_simt_constants, __stop_simt_constants;

namespace delink::simt {

Layout g_layout;
Now g_now;
thread_local bool t_in_kernel = false;

namespace {

// What the host may have written in pinned memory, whenever it did.
constexpr Record kByHost = Record{1} << kTimeShift | kBytes;

bool OrderedByStreams(Record record) {
  const bool in_kernel = std::exchange(t_in_kernel, false);
  const bool ordered = IsOrderedByStreams(record >> kTimeShift);
  t_in_kernel = in_kernel;
  return ordered;
}

// Whether the recorded access comes before all that the running thread does
// now.
template <bool kShared>
bool Ordered(Record record) {
  if constexpr (!kShared) {
    if (record < g_now.known) return true;
    if (record < g_now.kernel) return OrderedByStreams(record);
    if (record < g_now.block) return record < g_now.acquired;
    if ((record & kManyBlocks) != 0) return g_now.acquired != 0;
  } else {
    if (record < g_now.block) return true;
  }
  return OrderedInBlock(record);
}

const char* Verb(Access access) {
  switch (access) {
    case Access::kRead:
      return "read";
    case Access::kWrite:
      return "write";
    case Access::kAtomic:
      return "atomic access";
  }
  return "?";
}

// One access, for its report.
struct Asked {
  uintptr_t address;
  int64_t bytes;
  Access access;
  const void* pc;
};

std::string What(const Asked& asked) {
  return std::string(Verb(asked.access)) + " of " +
         std::to_string(asked.bytes) + " bytes at " + Hex(asked.address);
}

std::string Place(const Asked& asked, bool shared) {
  return shared ? "in shared memory"
                : TheMachine().memory().Describe(asked.address);
}

[[noreturn]] void ReportRace(const Asked& asked, bool shared, Record other,
                             bool other_wrote) {
  std::string who = "another kernel or copy, which no stream orders before it";
  if (shared || other >= g_now.block) {
    who = (other & kManyBlocks) != 0
              ? "another block"
              : "thread " + ThreadName(static_cast<int>(other & kThread)) +
                    " of the block";
  } else if (other >= g_now.kernel) {
    who = "another block";
  }
  Report(std::string("race in ") + (shared ? "shared" : "global") +
             " memory: " + What(asked) + ", " + Place(asked, shared) +
             ", not ordered after a " + (other_wrote ? "write" : "read") +
             " by " + who,
         asked.pc);
}

[[noreturn]] void ReportUninitialised(const Asked& asked, bool shared) {
  Report("uninitialised memory: " + What(asked) + ", " + Place(asked, shared) +
             (shared ? ", which this block has not written"
                     : ", which nothing has written"),
         asked.pc);
}

// The first access to these two bytes since they were allocated, or none that
// is allowed.
void CheckUntouched(const Asked& asked, uintptr_t granule, Cell& cell) {
  const bool in_kernel = std::exchange(t_in_kernel, false);
  Memory& memory = TheMachine().memory();
  if (!memory.IsLive(granule, 1) ||
      !memory.IsLive(asked.address, asked.bytes)) {
    Report(
        "out-of-bounds " + What(asked) + ", " + memory.Describe(asked.address),
        asked.pc);
  }
  t_in_kernel = in_kernel;
  if (asked.access == Access::kWrite) return;
  const bool pinned = granule >= g_layout.pinned_begin;
  if (!pinned && g_now.report_uninitialised) {
    ReportUninitialised(asked, false);
  }
  cell.write = kByHost;
}

template <bool kShared>
void CheckCell(Cell& cell, Record bytes, uintptr_t granule,
               const Asked& asked) {
  const bool atomic = asked.access == Access::kAtomic;
  const Record self = g_now.self | bytes | (atomic ? kAtomic : 0);
  if (asked.access == Access::kRead ? cell.read == self : cell.write == self) {
    return;
  }
  Record write = cell.write;
  if constexpr (kShared) {
    if (write < g_now.block && asked.access != Access::kWrite) {
      ReportUninitialised(asked, true);
    }
  } else if (write == 0) {
    CheckUntouched(asked, granule, cell);
    write = cell.write;
  }
  const auto harmless = [&](Record other) {
    return (other & bytes) == 0 || (atomic && (other & kAtomic) != 0) ||
           Ordered<kShared>(other);
  };
  if (!harmless(write)) ReportRace(asked, kShared, write, true);
  if (asked.access == Access::kRead) {
    cell.read = Merge<kShared>(cell.read, self);
    return;
  }
  if (!harmless(cell.read)) ReportRace(asked, kShared, cell.read, false);
  cell.write = Merge<kShared>(write, self);
}

template <bool kShared>
void CheckCells(Cell* cells, uintptr_t origin, const Asked& asked) {
  const uintptr_t first = (asked.address - origin) / 2;
  const uintptr_t end =
      asked.address - origin + static_cast<uintptr_t>(asked.bytes);
  for (uintptr_t i = first; 2 * i < end; ++i) {
    Record bytes = kBytes;
    if (2 * i < asked.address - origin) bytes &= ~Record{0x400};
    if (2 * i + 1 >= end) bytes &= ~Record{0x800};
    CheckCell<kShared>(cells[i], bytes, origin + 2 * i, asked);
  }
}

void CheckElsewhere(const Asked& asked) {
  const auto begin = reinterpret_cast<uintptr_t>(&__executable_start);
  const auto end = reinterpret_cast<uintptr_t>(&__data_start);
  // The program's constants.
  if (asked.access == Access::kRead && asked.address - begin < end - begin) {
    return;
  }
  Report("out-of-bounds " + What(asked) + ", in no allocation of the device",
         asked.pc);
}

void* Reserve(uintptr_t bytes) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    Report(
        "no addresses for what is known of the emulated memory (ulimit -v?)");
  }
  // Huge pages would make gigabytes of a few scattered accesses.
  madvise(base, bytes, MADV_NOHUGEPAGE);
  return base;
}

Cell* CellOf(uintptr_t address) {
  return g_layout.arena_cells + (address - g_layout.arena_begin) / 2;
}

void CheckCopy(uintptr_t address, int64_t bytes, Access access) {
  const Asked asked{address, bytes, access, nullptr};
  Memory& memory = TheMachine().memory();
  if (!memory.IsLive(address, bytes)) {
    Report("out-of-bounds " + What(asked) + ", " + memory.Describe(address));
  }
  const bool write = access == Access::kWrite;
  const Record self = g_now.self | kBytes;
  Cell* const end = CellOf(address + static_cast<uintptr_t>(bytes) + 1);
  for (Cell* cell = CellOf(address); cell != end; ++cell) {
    if (!Ordered<false>(cell->write)) {
      ReportRace(asked, false, cell->write, true);
    }
    if (write && !Ordered<false>(cell->read)) {
      ReportRace(asked, false, cell->read, false);
    }
    (write ? cell->write : cell->read) = self;
  }
}

}  // namespace

void InitShadow(uintptr_t arena_begin, uintptr_t arena_end,
                uintptr_t pinned_begin, const void* dynamic,
                int64_t dynamic_bytes) {
  Layout& layout = g_layout;
  layout.arena_begin = arena_begin;
  layout.arena_bytes = arena_end - arena_begin;
  layout.pinned_begin = pinned_begin;
  constexpr uintptr_t kCellBytes = sizeof(Cell) / 2;  // for each byte
  layout.arena_cells =
      static_cast<Cell*>(Reserve(layout.arena_bytes * kCellBytes));
  layout.image_begin = reinterpret_cast<uintptr_t>(&__data_start);
  layout.image_bytes = reinterpret_cast<uintptr_t>(&_end) - layout.image_begin;
  layout.image_cells =
      static_cast<Cell*>(Reserve((layout.image_bytes + 2) * kCellBytes));
  layout.constants_begin = reinterpret_cast<uintptr_t>(&__start_simt_constants);
  layout.constants_bytes = reinterpret_cast<uintptr_t>(&__stop_simt_constants) -
                           layout.constants_begin;
  layout.dynamic_begin = reinterpret_cast<uintptr_t>(dynamic);
  layout.dynamic_end =
      layout.dynamic_begin + static_cast<uintptr_t>(dynamic_bytes);
}

void ForgetShadow(uintptr_t begin, int64_t bytes) {
  constexpr uintptr_t kPage = 4096;
  char* first = reinterpret_cast<char*>(CellOf(begin));
  char* const last = reinterpret_cast<char*>(
      CellOf(begin + static_cast<uintptr_t>(bytes) + 1));
  const auto page = [](char* p) {
    return p + (kPage - reinterpret_cast<uintptr_t>(p) % kPage) % kPage;
  };
  if (last - first > static_cast<int64_t>(4 * kPage)) {
    char* const whole = page(first);
    char* const end = page(last) - kPage;
    madvise(whole, static_cast<size_t>(end - whole), MADV_DONTNEED);
    std::memset(first, 0, static_cast<size_t>(whole - first));
    first = end;
  }
  std::memset(first, 0, static_cast<size_t>(last - first));
}

void CheckAccess(uintptr_t address, int64_t bytes, Access access,
                 const void* pc) {
  const Layout& layout = g_layout;
  if (address - layout.stacks_begin < layout.stacks_bytes || bytes == 0 ||
      (address - layout.constants_begin < layout.constants_bytes &&
       access == Access::kRead)) {
    return;
  }
  const Asked asked{address, bytes, access, pc};
  if (address - layout.arena_begin < layout.arena_bytes) {
    CheckCells<false>(layout.arena_cells, layout.arena_begin, asked);
  } else if (address - layout.image_begin < layout.image_bytes) {
    const uintptr_t end = address + static_cast<uintptr_t>(bytes);
    if (address < layout.dynamic_end && end > layout.dynamic_begin &&
        (address < layout.dynamic_begin || end > g_now.dynamic_end)) {
      Report("out-of-bounds " + What(asked) + ", outside the " +
                 std::to_string(g_now.dynamic_end - layout.dynamic_begin) +
                 " bytes of dynamic shared memory of the launch",
             pc);
    }
    CheckCells<true>(layout.image_cells, layout.image_begin, asked);
  } else {
    CheckElsewhere(asked);
  }
}

void CheckCopyRead(uintptr_t address, int64_t bytes) {
  if (bytes > 0) CheckCopy(address, bytes, Access::kRead);
}
void CheckCopyWrite(uintptr_t address, int64_t bytes) {
  if (bytes > 0) CheckCopy(address, bytes, Access::kWrite);
}

void CopyWritten(uintptr_t to, uintptr_t from, int64_t bytes) {
  if ((to - from) % 2 != 0) return;
  Cell* cell = CellOf(to);
  Cell* const end = CellOf(to + static_cast<uintptr_t>(bytes) + 1);
  const Cell* source = CellOf(from);
  for (; cell != end; ++cell, ++source) {
    if (source->write == 0) cell->write = 0;
  }
}

}  // namespace delink::simt
