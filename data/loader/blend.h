// Chooses the source of each sample of a blend.
//
// A blend consists of the weights of its sources and the number of samples
// consumed of each. The next source is a pure function of these: all ranks
// choose the same one, and a resumed run needs only the counts. After the
// weights take effect, the first n samples have n w_i / sum(w) of source i,
// plus or minus less than one, for every n. (Among the sources that would not
// exceed this bound, the next is the one with the earliest deadline, ties by
// order: R. Tijdeman, "The chairman assignment problem", 1980. To take the
// source that lags most would be simpler, but up to a few samples off.)
//
// A source that does not repeat leaves the blend when all of its samples have
// been consumed; the others keep their proportions. If the proportions change,
// by that or by SetWeights, the blend begins anew: it does not make up for
// samples consumed before. The counts go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace delink {

// A source, and the position of the blend in it.
struct BlendSource {
  int64_t epoch = 0;  // samples in it
  bool repeat = true;
  double weight = 1;

  int64_t consumed = 0;
  // `consumed` when the blend began, and the source's share of it, 0 to 1. If a
  // share changes, the blend begins anew.
  int64_t begin = 0;
  double share = 0;

  friend bool operator==(const BlendSource&, const BlendSource&) = default;

  bool ended() const { return !repeat && consumed >= epoch; }
  double epochs() const {
    return static_cast<double>(consumed) / static_cast<double>(epoch);
  }
};

class Blend {
 public:
  struct Draw {
    size_t source = 0;
    int64_t sample = 0;  // of the source; the count goes on across epochs

    friend bool operator==(const Draw&, const Draw&) = default;
  };

  // Weights are finite, at least 0 and not all 0.
  explicit Blend(std::vector<BlendSource> sources);

  // Changes the weights from the next sample on.
  void SetWeights(const std::vector<double>& weights);
  // Consumes a sample. Has(1) must hold.
  Draw Next();
  void Skip(int64_t samples);
  // Whether `samples` more samples are left.
  bool Has(int64_t samples) const;
  // The same blend, but every source repeats: to look past the end.
  Blend Endless() const;

  const std::vector<BlendSource>& sources() const { return sources_; }

  friend bool operator==(const Blend&, const Blend&) = default;

 private:
  void Begin();
  bool InBlend(const BlendSource& source) const { return source.share > 0; }

  std::vector<BlendSource> sources_;
  int64_t samples_ = 0;  // since the blend began
  double slack_ = 0;     // a source's count is off by at most 1 - slack_
};

}  // namespace delink
