#include "tests/data/text_samples.h"

#include <zlib.h>

#include <random>
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
  const absl::Status status = WriteFile(path, bytes);
  DELINK_CHECK(status.ok()) << status.ToString();
}

void WriteGzipOrDie(const std::string& path, std::string_view bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  DELINK_CHECK(file != nullptr) << path;
  DELINK_CHECK_EQ(
      gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
      static_cast<int>(bytes.size()));
  DELINK_CHECK_EQ(gzclose(file), Z_OK);
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
