#include "framework/base/xxh64.h"

#include <gtest/gtest.h>

#include <string>

namespace delink::xxh64_test {
namespace {

std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31);
  return bytes;
}

// By libxxhash 0.8.1.
TEST(Xxh64, IsThatOfTheLibrary) {
  EXPECT_EQ(Xxh64(Bytes(32).data(), 32), 0xba7bafd4734262ddU);
  EXPECT_EQ(Xxh64(Bytes(96).data(), 96), 0x98d3b8c3a49b72b6U);
  EXPECT_EQ(Xxh64(Bytes(4096).data(), 4096), 0xd720ce1b46436aa9U);
}

}  // namespace
}  // namespace delink::xxh64_test
