#include "data/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace delink::utf8_test {
namespace {

std::string Utf8Of(uint32_t c) {
  const auto tail = [](uint32_t bits) {
    return static_cast<char>(0x80 | (bits & 0x3F));
  };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(c)};
  if (c < 0x10000) {
    return {static_cast<char>(0xE0 | c >> 12), tail(c >> 6), tail(c)};
  }
  return {static_cast<char>(0xF0 | c >> 18), tail(c >> 12), tail(c >> 6),
          tail(c)};
}

TEST(Utf8, EveryCodePointAndOnlyThose) {
  for (uint32_t c = 0; c < 0x120000; ++c) {
    const bool real = c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
    ASSERT_EQ(CheckUtf8(Utf8Of(c)).ok(), real) << std::hex << c;
  }
}

TEST(Utf8, FirstBadByteIsFound) {
  const std::string ascii(37, 'a');
  for (const std::string bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80",
        "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF",
        "\xE2\x28\xA1"}) {
    for (const std::string& before : {std::string(), ascii, Utf8Of(0x20AC)}) {
      const Utf8Scan scan = ScanUtf8(before + bad + "tail");
      EXPECT_EQ(scan.valid, before.size());
      EXPECT_FALSE(scan.incomplete);
    }
  }
}

TEST(Utf8, CharactersCutShort) {
  for (const uint32_t c : {0x7FU, 0xE9U, 0x20ACU, 0x1F40EU}) {
    const std::string whole = Utf8Of(c);
    for (size_t cut = 1; cut < whole.size(); ++cut) {
      const Utf8Scan scan = ScanUtf8(std::string("ab") + whole.substr(0, cut));
      EXPECT_EQ(scan.valid, 2U);
      EXPECT_TRUE(scan.incomplete);
    }
  }
}

TEST(Utf8, BoundariesAndReplacement) {
  const std::string text = std::string("a").append(Utf8Of(0x1F40E)).append("b");
  EXPECT_EQ(CharacterBoundary(text, 0), 0U);
  EXPECT_EQ(CharacterBoundary(text, 1), 1U);
  EXPECT_EQ(CharacterBoundary(text, 3), 1U);
  EXPECT_EQ(CharacterBoundary(text, 5), 5U);
  EXPECT_EQ(CharacterBoundary(text, 99), 6U);
  EXPECT_EQ(ReplaceInvalidUtf8("a\xFF\x80z"), "a\xEF\xBF\xBD\xEF\xBF\xBDz");
}

}  // namespace
}  // namespace delink::utf8_test
