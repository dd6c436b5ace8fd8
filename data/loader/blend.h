// Which source each sample of a blend comes from.
//
// A blend is the weights of some sources and how many samples of each have been
// consumed. The next source is a pure function of these: any rank finds the
// same, and resuming is going on with the same counts. Counted from where its
// weights took effect, a blend of n samples has n w_i / sum(w) of source i,
// plus or minus less than one, for every n. (Of the sources that may be next
// without going past that, it is the one that must be next the soonest, ties by
// order: R. Tijdeman, "The chairman assignment problem", 1980. To take the
// source that lags most would be simpler, and be up to a few samples off.)
//
// A source that does not repeat leaves the blend when its samples have all been
// consumed; the others keep their proportions. Where the proportions change, by
// that or by SetWeights, what was consumed before is not made up for: the blend
// begins anew, the counts go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace delink {

// A source, and where the blend is in it.
struct BlendSource {
  int64_t epoch = 0;  // samples in it
  bool repeat = true;
  double weight = 1;

  int64_t consumed = 0;
  // What the blend began with: `consumed` there, and its share of it, 0 to 1. A
  // blend whose shares are others begins anew.
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
    int64_t sample = 0;  // of the source, counted on over its epochs

    friend bool operator==(const Draw&, const Draw&) = default;
  };

  // Weights are finite, at least 0 and not all 0.
  explicit Blend(std::vector<BlendSource> sources);

  // From here on with these weights.
  void SetWeights(const std::vector<double>& weights);
  // Consumes a sample. Has(1) comes first.
  Draw Next();
  void Skip(int64_t samples);
  // Whether that many more samples can be had.
  bool Has(int64_t samples) const;
  // The same, with no source that ends: to look past the end.
  Blend Endless() const;

  const std::vector<BlendSource>& sources() const { return sources_; }

  friend bool operator==(const Blend&, const Blend&) = default;

 private:
  void Begin();
  bool InBlend(const BlendSource& source) const { return source.share > 0; }

  std::vector<BlendSource> sources_;
  int64_t samples_ = 0;  // since the blend began
  double slack_ = 0;     // how far from its place a source may be, below 1
};

}  // namespace delink
