#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/layers/kernels/cases.h"
#include "tests/testing/documents.h"

namespace delink::testing {
namespace {

struct Shape {
  int64_t B, T, heads, Dh;
  int pairs;
  int64_t first_position = 0;
  std::vector<int64_t> documents = {};  // lengths; none: one a row
};

Case RotaryCase(const Shape& p, RotaryPairing pairing, bool inverse) {
  return MakeCase(
      absl::StrFormat(
          "rotary B%d T%d heads%d Dh%d pairs%d first%d form%d inv%d docs%d",
          p.B, p.T, p.heads, p.Dh, p.pairs, p.first_position,
          static_cast<int>(pairing), inverse, p.documents.size()),
      [=]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        // A head of each row that does not turn.
        const int64_t row = (p.heads + 1) * p.Dh;
        auto x = Input<T>("x", p.B * p.T * row);
        const Guarded<int32_t> positions(
            p.documents.empty() ? std::vector<int32_t>()
                                : Positions(p.B, p.T, p.documents));
        RotaryAngles angles = {.pairing = pairing, .pairs = p.pairs};
        for (int i = 0; i < p.pairs; ++i) {
          angles.inverse_frequency[i] = std::pow(1e4, -double{1} * i / p.pairs);
        }
        kernels.rotary(
            stream,
            {.B = p.B,
             .T = p.T,
             .Dh = p.Dh,
             .heads = p.heads,
             .row = row,
             .first_position = p.first_position,
             .positions = p.documents.empty() ? nullptr : positions.data(),
             .angles = &angles,
             .inverse = inverse,
             .x = x.data()});
        return {Result("x", x, Tolerance<float>(1))};
      });
}

}  // namespace

std::vector<Case> RotaryCases() {
  std::vector<Case> cases;
  for (const RotaryPairing pairing :
       {RotaryPairing::kHalf, RotaryPairing::kInterleaved}) {
    for (const int pairs : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 32, 64, 128}) {
      const bool odd = pairs % 2 == 1;
      cases.push_back(RotaryCase({2, 7, 3, 2 * pairs, pairs}, pairing, odd));
      cases.push_back(
          RotaryCase({1, 3, 2, 2 * pairs + 3, pairs, 5}, pairing, !odd));
    }
    // Every quadrant of the slow and the fast pairs; positions of long
    // contexts.
    cases.push_back(RotaryCase({1, 2000, 1, 6, 3}, pairing, false));
    for (const int64_t first : {131'071, 1'000'000, 10'000'000}) {
      cases.push_back(RotaryCase({2, 50, 1, 34, 17, first}, pairing, false));
    }
    cases.push_back(RotaryCase({3, 60, 6, 64, 32}, pairing, true));  // a team
    for (const int64_t B : {1, 2, 5}) {
      cases.push_back(
          RotaryCase({B, 23, 3, 16, 8, 0, {4, 1, 1, 9}}, pairing, B == 2));
      cases.push_back(RotaryCase({B, 300, 1, 9, 3, 0, {290}}, pairing, B != 2));
    }
    cases.push_back(RotaryCase({0, 5, 2, 8, 4}, pairing, false));
    cases.push_back(RotaryCase({2, 0, 2, 8, 4}, pairing, false));
  }
  return cases;
}

}  // namespace delink::testing
