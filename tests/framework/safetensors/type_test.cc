#include "framework/safetensors/type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace delink::safetensors::type_test {
namespace {

using ::testing::ElementsAre;

TEST(Type, NamesAndSizes) {
  for (const std::string_view name :
       {"F32", "BF16", "F16", "F64", "I64", "I32", "I16", "I8", "U64", "U32",
        "U16", "U8", "BOOL", "F8_E4M3", "F8_E5M2"}) {
    const auto type = TypeNamed(name);
    ASSERT_TRUE(type.has_value()) << name;
    EXPECT_EQ(ToString(*type), name);
  }
  EXPECT_FALSE(TypeNamed("f32").has_value());
  EXPECT_FALSE(TypeNamed("").has_value());
  EXPECT_EQ(SizeOf(Type::kF64), 8);
  EXPECT_EQ(SizeOf(Type::kBF16), 2);
  EXPECT_EQ(SizeOf(Type::kF8E5M2), 1);
}

TEST(Type, NarrowRoundsAndCountsWhatIsTooLarge) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1 + 0x1p-8F, 1 + 0x3p-8F, -70'000,
                                     65'504,      infinity,    0x1.FFFFFEp127F,
                                     -0x1p-24F,   0.1F};
  const auto there_and_back = [&](Type type, int64_t* lost) {
    // One byte on: at no alignment.
    std::vector<char> bytes(values.size() * 4 + 1);
    *lost = Narrow(values, type, bytes.data() + 1);
    std::vector<float> back(values.size());
    Widen(type, bytes.data() + 1, back);
    return back;
  };
  int64_t lost = 0;
  EXPECT_EQ(there_and_back(Type::kF32, &lost), values);
  EXPECT_EQ(lost, 0);
  EXPECT_THAT(there_and_back(Type::kBF16, &lost),
              ElementsAre(1, 1 + 0x1p-6F, -70'144, 65'536, infinity, infinity,
                          -0x1p-24F, 0.10009765625F));
  EXPECT_EQ(lost, 1);
  EXPECT_THAT(there_and_back(Type::kF16, &lost),
              ElementsAre(1 + 0x1p-8F, 1 + 0x3p-8F, -infinity, 65'504, infinity,
                          infinity, -0x1p-24F, 0.0999755859375F));
  EXPECT_EQ(lost, 2);
}

}  // namespace
}  // namespace delink::safetensors::type_test
