// Element types of safetensors files, and their conversion from and to float.
//
// Only values of fp32, bf16 and fp16 can be converted. Tensors beside the
// weights may have the other types, of which only the size is known.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace delink::safetensors {

enum class Type : uint8_t {
  kF32,
  kBF16,
  kF16,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2
};

// Bytes of an element.
int64_t SizeOf(Type type);

// The name in files: "BF16".
std::string_view ToString(Type type);
// Nothing if no type has that name.
std::optional<Type> TypeNamed(std::string_view name);

// Whether values can be converted: kF32, kBF16 and kF16.
constexpr bool HasValues(Type type) {
  return type == Type::kF32 || type == Type::kBF16 || type == Type::kF16;
}

// Converts values.size() * SizeOf(type) bytes of a type with values, exactly.
// The bytes have any alignment and do not overlap the values.
void Widen(Type type, const void* bytes, std::span<float> values);

// The reverse: rounds to the nearest, ties to even. Returns how many finite
// values were too large and became infinite.
int64_t Narrow(std::span<const float> values, Type type, void* bytes);

}  // namespace delink::safetensors
