// Element types of safetensors files, and their conversion from and to float.
//
// Values are wanted of fp32, bf16 and fp16 alone; of the others, which tensors
// beside the weights may have, the size is known.
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

// As files call it: "BF16".
std::string_view ToString(Type type);
// Nothing where no type is called that.
std::optional<Type> TypeNamed(std::string_view name);

// kF32, kBF16 and kF16: those that have values here.
constexpr bool HasValues(Type type) {
  return type == Type::kF32 || type == Type::kBF16 || type == Type::kF16;
}

// From bytes of a type with values, exact: values.size() * SizeOf(type) bytes,
// at any alignment, elsewhere than the values.
void Widen(Type type, const void* bytes, std::span<float> values);

// The other way: to the nearest, a tie to the even one. Returns how many finite
// values were too large and became infinite.
int64_t Narrow(std::span<const float> values, Type type, void* bytes);

}  // namespace delink::safetensors
