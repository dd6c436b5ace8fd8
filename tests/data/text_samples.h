// Texts and files of text for the tests of data/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace delink::testing {

// About `bytes` of repeatable prose with CJK, emoji and control characters in
// it, in lines; UTF-8.
std::string SampleText(uint64_t seed, int64_t bytes);

void WriteOrDie(const std::string& path, std::string_view bytes);
void WriteGzipOrDie(const std::string& path, std::string_view bytes);
std::string Gzipped(std::string_view bytes);
std::string Zstandard(std::string_view bytes);  // with a checksum
std::string ReadOrDie(const std::string& path);

// A line of JSONL with `text` in `field`, between other fields.
std::string JsonLine(std::string_view text, const std::string& field = "text");

// Flips one bit of the byte in the middle of a file.
void FlipBit(const std::string& path);

}  // namespace delink::testing
