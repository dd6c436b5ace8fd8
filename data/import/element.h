// The integers that token files are made of, little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace delink {

enum class TokenElement { kU8, kI8, kU16, kI16, kU32, kI32, kI64 };

int64_t ByteSize(TokenElement type);

// "u16" and so on, the values of --dtype.
std::optional<TokenElement> TokenElementByName(std::string_view name);
const std::vector<std::string>& TokenElementNames();

// Appends the numbers in `bytes`, whose size is a multiple of ByteSize.
void Widen(TokenElement type, std::string_view bytes,
           std::vector<int64_t>* values);

// The number at `bytes[at]`, all of which must be inside `bytes`.
int64_t NumberAt(TokenElement type, std::string_view bytes, size_t at);

}  // namespace delink
