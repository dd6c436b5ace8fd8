#include "data/corpus/decompressor.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>

#include "framework/base/check.h"

namespace delink {
namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;

class Gzip final : public Decompressor {
 public:
  Gzip() {
    constexpr int kGzipHeader = 16;
    DELINK_CHECK_EQ(inflateInit2(&stream_, MAX_WBITS + kGzipHeader), Z_OK);
  }
  ~Gzip() override { inflateEnd(&stream_); }

  const char* kind() const override { return "gzip"; }

  Step Run(std::string_view in, std::span<char> out) override {
    if (whole_) {
      // Tapes and some programs pad a file with zeros.
      const size_t zeros = std::min(in.find_first_not_of('\0'), in.size());
      if (zeros > 0 || in.empty()) return {.consumed = zeros, .whole = true};
      inflateReset(&stream_);
      whole_ = false;
    }
    const size_t in_size = std::min(in.size(), kMostAtOnce);
    const size_t out_size = std::min(out.size(), kMostAtOnce);
    stream_.next_in =
        reinterpret_cast<unsigned char*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<unsigned>(in_size);
    stream_.next_out = reinterpret_cast<unsigned char*>(out.data());
    stream_.avail_out = static_cast<unsigned>(out_size);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    Step step = {.consumed = in_size - stream_.avail_in,
                 .produced = out_size - stream_.avail_out};
    // Z_BUF_ERROR means that it needs more input or room.
    if (code == Z_STREAM_END) {
      whole_ = true;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      step.error = stream_.msg != nullptr ? stream_.msg : zError(code);
    }
    step.whole = whole_;
    return step;
  }

 private:
  z_stream stream_ = {};
  bool whole_ = false;
};

class Zstd final : public Decompressor {
 public:
  Zstd() : stream_(ZSTD_createDStream()) { DELINK_CHECK(stream_ != nullptr); }
  ~Zstd() override { ZSTD_freeDStream(stream_); }

  const char* kind() const override { return "zstd"; }

  Step Run(std::string_view in, std::span<char> out) override {
    // After the end of a frame, a call without input would begin the next one.
    if (in.empty() && whole_) return {.whole = true};
    ZSTD_inBuffer from = {.src = in.data(), .size = in.size(), .pos = 0};
    ZSTD_outBuffer to = {.dst = out.data(), .size = out.size(), .pos = 0};
    const size_t left = ZSTD_decompressStream(stream_, &to, &from);
    Step step = {.consumed = from.pos, .produced = to.pos};
    if (ZSTD_isError(left) != 0) {
      step.error = ZSTD_getErrorName(left);
    }
    whole_ = left == 0;
    step.whole = whole_;
    return step;
  }

 private:
  ZSTD_DStream* const stream_;
  bool whole_ = false;
};

// A zstd frame or a skippable frame, which pzstd writes first.
bool IsZstd(std::string_view head) {
  if (head.size() < 4) return false;
  uint32_t magic = 0;
  for (size_t i = 4; i-- > 0;) {
    magic = magic << 8 | static_cast<unsigned char>(head[i]);
  }
  return magic == ZSTD_MAGICNUMBER ||
         (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
}

}  // namespace

std::unique_ptr<Decompressor> MakeDecompressor(std::string_view head) {
  if (head.substr(0, 2) == "\x1F\x8B") return std::make_unique<Gzip>();
  if (IsZstd(head)) return std::make_unique<Zstd>();
  return nullptr;
}

}  // namespace delink
