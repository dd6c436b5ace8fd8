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
#pragma omp parallel for schedule(static) if (count > 4096)
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<T>(init.stddev *
                                Normal(key, static_cast<uint64_t>(begin + i)));
      }
  }
}

template void InitValues(const Init&, RngKey, int64_t, int64_t, float*);
template void InitValues(const Init&, RngKey, int64_t, int64_t, double*);

}  // namespace delink
