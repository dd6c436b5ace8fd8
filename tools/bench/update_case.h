// One step of AdamW over planes of host memory, in three ways: Delink's fused
// update, the common one in three passes, and only the memory traffic.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/optim/arguments.h"
#include "framework/tensor/buffer.h"

namespace delink::bench {

// Gradients and weights are bf16.
struct UpdateForm {
  MasterForm master = MasterForm::kWhole;
  StateStorage moments = StateStorage::kExact;
};

// n values in one piece of memory, with huge pages if the system has them, like
// host-resident state. The planes of both updates begin with the same values.
class UpdateCase {
 public:
  // ResourceExhausted: there is not enough memory.
  static absl::StatusOr<std::unique_ptr<UpdateCase>> Create(Device& device,
                                                            UpdateForm form,
                                                            int64_t n);

  // The kernel, once over all planes.
  void Fused(ThreadPool& pool);
  // Has an f32 master and f32 moments for every form. The first pass widens and
  // unscales gradients into an f32 plane, the second runs the same kernel on
  // it, and the third rounds weights. Each pass goes over all of its planes.
  void ThreePasses(ThreadPool& pool);
  // Reads and writes the same bytes as Fused (but no scales), in the same order
  // and with the same prefetches, but computes nothing. Planes that are both
  // read and written keep their values. Stores are ordinary or bypass the
  // caches.
  void MoveAlone(ThreadPool& pool, bool past_caches);

  // Bytes that Fused reads and writes per parameter.
  double bytes() const;
  // The weights after the last step of each update.
  const void* weights() const { return args_.w; }
  const void* weights_of_three() const { return passes_.w; }

 private:
  struct Plane {
    char* at;
    int64_t width;  // bytes of a value
    bool read = true, written = true;
  };
  struct Passes {
    float *g, *p, *m, *v;
    uint16_t* w;
  };

  UpdateCase(Device& device, UpdateForm form, int64_t n)
      : device_(device), form_(form), n_(n) {}

  // Called once to count bytes, and once to lay the planes out in `memory_`.
  void Place();
  template <typename T>
  T* Take(int64_t values, bool positive = false);
  void* TakeMoment(bool positive);
  // Moves n values of each plane, at most a tile.
  void MovePiece(int64_t begin, int64_t n, bool past_caches) const;
  void Add(void* at, int64_t width, bool read, bool written);

  Device& device_;
  UpdateForm form_;
  int64_t n_;
  Buffer memory_;
  int64_t taken_ = 0;
  UpdateControl control_{.lr = 1e-4, .clip_factor = 0.5};
  UpdateControl unscaled_{.lr = 1e-4, .clip_factor = 1};
  AdamWArgs args_;
  Passes passes_{};
  std::vector<Plane> planes_;
};

}  // namespace delink::bench
