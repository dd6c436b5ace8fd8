#include "framework/device/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace delink::huge_pages_test {
namespace {

using Memory = std::unique_ptr<void, void (*)(void*)>;

uintptr_t AddressOf(const Memory& memory) {
  return reinterpret_cast<uintptr_t>(memory.get());
}

TEST(HugePages, LargeMemoryBeginsWithOne) {
  for (const int64_t bytes : {int64_t{1}, kHugePage - 1, kHugePage,
                              kHugePage + 1, 3 * kHugePage - 5}) {
    const Memory memory(AllocateInHugePages(bytes), std::free);
    ASSERT_NE(memory, nullptr) << bytes;
    EXPECT_EQ(
        AddressOf(memory) %
            static_cast<uintptr_t>(bytes < kHugePage ? kAlignment : kHugePage),
        0u)
        << bytes;
    std::memset(memory.get(), 1, static_cast<size_t>(bytes));
  }
}

TEST(HugePages, TheEnvironmentHasTheLastWord) {
  unsetenv("GLIBC_TUNABLES");
  EXPECT_TRUE(UseHugePagesFromRestart());
  EXPECT_STREQ(std::getenv("GLIBC_TUNABLES"), "glibc.malloc.hugetlb=1");
  EXPECT_FALSE(UseHugePagesFromRestart());
  setenv("GLIBC_TUNABLES", "glibc.malloc.check=1", 1);
  EXPECT_FALSE(UseHugePagesFromRestart());
  EXPECT_STREQ(std::getenv("GLIBC_TUNABLES"), "glibc.malloc.check=1");
}

}  // namespace
}  // namespace delink::huge_pages_test
