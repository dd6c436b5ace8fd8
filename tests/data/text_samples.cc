#include "tests/data/text_samples.h"

#include <zlib.h>
#include <zstd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/file.h"

namespace delink::testing {

std::string SampleText(uint64_t seed, int64_t bytes) {
  const std::vector<std::string> words = {
      "the",     "horse",       "runs",      "over",  "green",  "fields",
      "and",     "sings",       "kůň",       "běží",  "日本語", "中文",
      "🐎",       "👩‍👧", "e\xCC\x81", "x+y",   "12.5",   "light",
      "lightly", "\t",          "\x01",      "house", "under",  "river"};
  std::mt19937_64 random(seed);
  std::string text;
  while (static_cast<int64_t>(text.size()) < bytes) {
    text += words[random() % words.size()];
    text += random() % 12 == 0 ? "\n" : " ";
  }
  return text;
}

void WriteOrDie(const std::string& path, std::string_view bytes) {
  // Without the sync of WriteFile, which would be most of what tests do.
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  DELINK_CHECK(file.good()) << path;
}

void WriteGzipOrDie(const std::string& path, std::string_view bytes) {
  WriteOrDie(path, Gzipped(bytes));
}

std::string Gzipped(std::string_view bytes) {
  z_stream stream = {};
  constexpr int kGzipHeader = 16, kMemory = 8;
  DELINK_CHECK_EQ(
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED,
                   MAX_WBITS + kGzipHeader, kMemory, Z_DEFAULT_STRATEGY),
      Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in =
      reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<unsigned>(bytes.size());
  stream.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream.avail_out = static_cast<unsigned>(out.size());
  DELINK_CHECK_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstandard(std::string_view bytes) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress2(context, out.data(), out.size(),
                                     bytes.data(), bytes.size());
  DELINK_CHECK(ZSTD_isError(size) == 0);
  out.resize(size);
  ZSTD_freeCCtx(context);
  return out;
}

std::string JsonLine(std::string_view text, const std::string& field) {
  nlohmann::ordered_json line = {{"id", 17}, {"tags", {"a", {{"text", "b"}}}}};
  line[field] = text;
  line["rest"] = nullptr;
  return line.dump() + "\n";
}

std::string ReadOrDie(const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadFile(path);
  DELINK_CHECK(bytes.ok()) << bytes.status().ToString();
  return *std::move(bytes);
}

void FlipBit(const std::string& path) {
  std::string bytes = ReadOrDie(path);
  bytes[bytes.size() / 2] ^= 4;
  WriteOrDie(path, bytes);
}

}  // namespace delink::testing
