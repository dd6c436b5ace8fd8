#include "framework/module/init_values.h"

#include <algorithm>

namespace delink {

RngKey InitKey(uint64_t seed, std::string_view name) {
  return Fold(Fold(KeyFromSeed(seed), "init"), name);
}

template <typename T>
void InitValues(const Init& init, RngKey key, int64_t begin, int64_t count,
                T* out) {
  switch (init.kind) {
    case Init::Kind::kZeros:
      std::fill_n(out, count, T{0});
      return;
    case Init::Kind::kOnes:
      std::fill_n(out, count, T{1});
      return;
    case Init::Kind::kNormal:
      // In pairs; of the first and the last only half may be here.
#pragma omp parallel for schedule(static) if (count > 4096)
      for (int64_t pair = begin / 2; pair < (begin + count + 1) / 2; ++pair) {
        const auto two = NormalPair(key, static_cast<uint64_t>(pair));
        for (int64_t k = 0; k < 2; ++k) {
          const int64_t i = 2 * pair + k - begin;
          if (i < 0 || i >= count) continue;
          out[i] = static_cast<T>(init.stddev * two[static_cast<size_t>(k)]);
        }
      }
  }
}

template void InitValues(const Init&, RngKey, int64_t, int64_t, float*);
template void InitValues(const Init&, RngKey, int64_t, int64_t, double*);

}  // namespace delink
