#include "framework/safetensors/type.h"

#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/tensor/bfloat16.h"
#include "framework/tensor/float16.h"

namespace delink::safetensors {
namespace {

struct TypeRow {
  Type type;
  std::string_view name;
  int64_t size;
};
constexpr TypeRow kTypes[] = {
    {Type::kF32, "F32", 4},        {Type::kBF16, "BF16", 2},
    {Type::kF16, "F16", 2},        {Type::kF64, "F64", 8},
    {Type::kI64, "I64", 8},        {Type::kI32, "I32", 4},
    {Type::kI16, "I16", 2},        {Type::kI8, "I8", 1},
    {Type::kU64, "U64", 8},        {Type::kU32, "U32", 4},
    {Type::kU16, "U16", 2},        {Type::kU8, "U8", 1},
    {Type::kBool, "BOOL", 1},      {Type::kF8E4M3, "F8_E4M3", 1},
    {Type::kF8E5M2, "F8_E5M2", 1},
};

const TypeRow& RowOf(Type type) {
  const TypeRow& row = At(kTypes, static_cast<size_t>(type));
  DELINK_CHECK(row.type == type);
  return row;
}

template <typename Half>
void WidenAll(const void* bytes, std::span<float> values) {
  const char* from = static_cast<const char*>(bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
    Half half;
    half.bits = bits;
    values[i] = half;
  }
}

// Returns how many finite values became infinite.
template <typename Half>
int64_t NarrowAll(std::span<const float> values, void* bytes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  char* to = static_cast<char*>(bytes);
  int32_t lost = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const Half half(values[i]);
    std::memcpy(to + 2 * i, &half.bits, sizeof(half.bits));
    const bool was = std::fabs(values[i]) == kInfinity;
    const bool is = std::fabs(float{half}) == kInfinity;
    lost += static_cast<int32_t>(is && !was);
  }
  return lost;
}

}  // namespace

int64_t SizeOf(Type type) { return RowOf(type).size; }

std::string_view ToString(Type type) { return RowOf(type).name; }

std::optional<Type> TypeNamed(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

void Widen(Type type, const void* bytes, std::span<float> values) {
  DELINK_CHECK(HasValues(type)) << std::string(ToString(type));
  if (type == Type::kBF16) return WidenAll<BFloat16>(bytes, values);
  if (type == Type::kF16) return WidenAll<Float16>(bytes, values);
  if (!values.empty()) std::memcpy(values.data(), bytes, values.size_bytes());
}

int64_t Narrow(std::span<const float> values, Type type, void* bytes) {
  DELINK_CHECK(HasValues(type)) << std::string(ToString(type));
  if (type == Type::kBF16) return NarrowAll<BFloat16>(values, bytes);
  if (type == Type::kF16) return NarrowAll<Float16>(values, bytes);
  if (!values.empty()) std::memcpy(bytes, values.data(), values.size_bytes());
  return 0;
}

}  // namespace delink::safetensors
