#include "data/import/element.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "framework/base/check.h"

namespace delink {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Kind {
  TokenElement type;
  const char* name;
  int64_t bytes;
};
constexpr Kind kKinds[] = {
    {TokenElement::kU8, "u8", 1},   {TokenElement::kI8, "i8", 1},
    {TokenElement::kU16, "u16", 2}, {TokenElement::kI16, "i16", 2},
    {TokenElement::kU32, "u32", 4}, {TokenElement::kI32, "i32", 4},
    {TokenElement::kI64, "i64", 8}};

template <typename T>
void WidenAs(std::string_view bytes, std::vector<int64_t>* values) {
  const size_t count = bytes.size() / sizeof(T);
  values->reserve(values->size() + count);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values->push_back(static_cast<int64_t>(value));
  }
}

}  // namespace

int64_t ByteSize(TokenElement type) {
  return std::find_if(std::begin(kKinds), std::end(kKinds),
                      [&](const Kind& kind) { return kind.type == type; })
      ->bytes;
}

std::optional<TokenElement> TokenElementByName(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind.type;
  }
  return std::nullopt;
}

const std::vector<std::string>& TokenElementNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Kind& kind : kKinds) all.push_back(kind.name);
    return all;
  }();
  return names;
}

void Widen(TokenElement type, std::string_view bytes,
           std::vector<int64_t>* values) {
  DELINK_CHECK(bytes.size() % static_cast<size_t>(ByteSize(type)) == 0);
  switch (type) {
    case TokenElement::kU8:
      return WidenAs<uint8_t>(bytes, values);
    case TokenElement::kI8:
      return WidenAs<int8_t>(bytes, values);
    case TokenElement::kU16:
      return WidenAs<uint16_t>(bytes, values);
    case TokenElement::kI16:
      return WidenAs<int16_t>(bytes, values);
    case TokenElement::kU32:
      return WidenAs<uint32_t>(bytes, values);
    case TokenElement::kI32:
      return WidenAs<int32_t>(bytes, values);
    case TokenElement::kI64:
      return WidenAs<int64_t>(bytes, values);
  }
}

int64_t NumberAt(TokenElement type, std::string_view bytes, size_t at) {
  std::vector<int64_t> one;
  Widen(type, bytes.substr(at, static_cast<size_t>(ByteSize(type))), &one);
  return one.front();
}

}  // namespace delink
