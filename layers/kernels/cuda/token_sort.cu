#include <algorithm>
#include <utility>

#include "layers/kernels/cuda/token_sort.cuh"

namespace delink::cuda {
namespace {

// Bounds of segments: fewer counts than tokens, and not too many counts.
constexpr int64_t kMinSegment = 256;
constexpr int64_t kMaxSegments = 512;

int64_t Segment(int64_t n) {
  const int64_t even = (n + kMaxSegments - 1) / kMaxSegments;
  return std::max(kMinSegment, (even + kWarp - 1) / kWarp * kWarp);
}
int64_t Segments(int64_t n) { return (n + Segment(n) - 1) / Segment(n); }

constexpr int64_t Align16(int64_t bytes) { return (bytes + 15) / 16 * 16; }
int64_t ListBytes(int64_t n) {
  return Align16(n * int64_t{sizeof(Occurrence)});
}
int64_t CountBytes(int64_t n) { return 4 * kDigits * Segments(n); }

}  // namespace

int64_t TokenSortBytes(int64_t n) {
  return 2 * ListBytes(n) + 2 * CountBytes(n) + 4 * kDigits;
}

const Occurrence* SortTokens(Stream& stream, const int32_t* tokens, int64_t n,
                             const TokenIds& ids, void* memory) {
  char* at = static_cast<char*>(memory);
  const auto take = [&at](int64_t bytes) {
    char* const taken = at;
    at += bytes;
    return taken;
  };
  auto* other = reinterpret_cast<Occurrence*>(take(ListBytes(n)));
  auto* sorted = reinterpret_cast<Occurrence*>(take(ListBytes(n)));
  SortPass pass = {
      .n = n, .segment = Segment(n), .segments = Segments(n), .tokens = tokens};
  pass.first_token = static_cast<int32_t>(ids.first);
  pass.V = static_cast<uint32_t>(ids.V);
  pass.counts = reinterpret_cast<uint32_t*>(take(CountBytes(n)));
  pass.before = reinterpret_cast<uint32_t*>(take(CountBytes(n)));
  pass.totals = reinterpret_cast<uint32_t*>(take(4 * kDigits));

  const int64_t warps = std::min<int64_t>(pass.segments, kSortWarps);
  const dim3 grid(static_cast<unsigned>((pass.segments + warps - 1) / warps));
  const dim3 block(static_cast<unsigned>(warps * kWarp));
  const int64_t last = ids.others ? ids.V : ids.V - 1;
  do {
    pass.to = sorted;
    Launch(CountDigits, grid, block, 0, stream, pass);
    Launch(AddUpSegments, dim3(kDigits), dim3(kWarp), 0, stream, pass);
    Launch(MoveToDigits, grid, block, 0, stream, pass);
    std::swap(sorted, other);
    pass.tokens = nullptr;
    pass.from = pass.to;
    pass.shift += kDigitBits;
  } while (pass.shift < 31 && last >> pass.shift > 0);
  return pass.from;
}

}  // namespace delink::cuda
