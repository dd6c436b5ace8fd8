// The state policy `calibrated`: measures which share of the old moments each
// new slab gets.
//
// Delink(..., kCalibrated) copies the moments unchanged. Then a few batches run
// forward and backward under the new sharing without an update. For a new slab
// l, g_l is its gradient and G the sum of the g_l of all slabs that came from
// the same old slab: the gradient that the old slab would have seen. Both are
// as the optimizer sees them, per token and clipped by norm: c_new = min(1,
// clip / norm) over all g_l, c_old over all G (FinishNorm has the formula).
// Clipping by value is not considered: recipes may not ask for both. Then, over
// the batches and for each parameter of each new slab, or for each entry of it
// (EntriesOf),
//
//   a_l = sum c_new c_old <g_l, G> / sum c_old^2 |G|^2     m_l = a_l m
//   b_l = sum c_new^2 |g_l|^2     / sum c_old^2 |G|^2     v_l = b_l v
//
// with m for every state that is linear in the gradient and v for every one
// that is quadratic (StateSpec::degree). a_l^2 <= b_l always holds, and the a_l
// add up to 1 if nothing is clipped. If G is zero in all batches, the layers
// count as agreeing, as in `scale`: <g_l, G> as 1/n and |g_l|^2 as 1/n^2 of
// |G|^2. Slabs whose sharing did not change have g_l = G: only the change of
// the clip factor scales them, and without clipping no bit of them changes.
//
// Memory: none on the device; a few MiB on the host for staging.
// Determinism: sums are in double, over each rank's even shard in order and
// then over ranks in order, whichever rank updates a slab. So ZeRO stages and
// kinds of ranks give the same bits; other numbers of ranks differ by rounding.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/comm/communicator.h"
#include "framework/device/backend.h"
#include "framework/module/param_store.h"
#include "framework/sharing/resolve.h"

namespace delink {

class Calibration {
 public:
  // The factors of the moments of one entry of one parameter of one slab.
  struct Factors {
    double first = 1, second = 1;  // a_l, b_l
  };

  // `origins`: RelationOf(registry, blocks, from.sharing(), to.sharing()).
  // `clip`: the optimizer's largest norm (0: none).
  static Calibration Create(const ParamStore& to,
                            std::vector<SlabOrigin> origins, double clip);

  // Adds the gradients that `to` holds now to the sums. They must be reduced
  // gradients of the sum of the losses of `tokens` counted targets over all
  // ranks. Each rank reads its share of the reduction, even if another rank
  // updates the slab (ReducedOf). Nothing else may use them meanwhile. A batch
  // without targets, or whose gradient is not finite, is left out on every
  // rank. Collective over comm.
  absl::Status AddBatch(const ParamStore& to, double tokens,
                        Communicator& comm);

  // Scales the moments; each rank scales those that it holds. If no batch
  // counted, changes nothing and returns FailedPrecondition.
  absl::Status Apply(ParamStore& to, Communicator& comm) const;

  int64_t batches() const { return batches_; }  // that counted
  // For params[param] of a logical slab; needs a batch that counted.
  Factors FactorsOf(int slab, size_t param, int64_t entry = 0) const;
  // For the log: "over 8 batches m x 0.0201 to 0.0216 and v x 0.00192 to
  // 0.0205; scale would take 0.0208 and 0.000434" (slabs that were cut only).
  std::string Summary() const;

 private:
  // The new logical slabs that came from one old slab; they have equal layouts.
  struct Family {
    std::vector<int> slabs;
    std::vector<Entries> params;  // of each slab
    size_t parts = 0;             // all entries of these, in order
    size_t first = 0;             // of its sums

    // The number of a parameter's first entry.
    size_t PartOf(size_t param) const;
  };
  // A family's sums: |G|^2 of each part; then, for each slab, <g_l, G> of each
  // part and |g_l|^2 of each part.
  static size_t SumIndex(const Family& family, size_t part);
  static size_t ProductIndex(const Family& family, size_t member, size_t part);
  static size_t MemberIndex(const Family& family, size_t member, size_t part);

  Calibration() = default;
  absl::Status AddFamily(const ParamStore& to, const Family& family,
                         Communicator& comm, std::vector<double>& sums) const;
  // sqrt of the sum of |G|^2, or of |g_l|^2, over everything.
  double NormBefore(const std::vector<double>& sums) const;
  double NormAfter(const std::vector<double>& sums) const;

  std::vector<SlabOrigin> origins_;
  double clip_ = 0;
  std::vector<Family> families_;
  std::vector<std::pair<size_t, size_t>> place_;  // family, member; by slab
  int64_t batches_ = 0;
  // Sums over the batches, weighted by clip factors; and sums of the factors.
  std::vector<double> sums_;
  double before_ = 0, across_ = 0, after_ = 0;  // c_old^2, c_new c_old, c_new^2
};

}  // namespace delink
