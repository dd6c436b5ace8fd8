// One step of AdamW over planes of host memory, done in three ways: as Delink
// updates on the host, as is common practice, and not at all.
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

// n values in memory of their own, all in one piece with huge pages where the
// system has them, as states of a host are kept. The planes of either way begin
// with the same values.
class UpdateCase {
 public:
  // ResourceExhausted where there is not enough memory.
  static absl::StatusOr<std::unique_ptr<UpdateCase>> Create(Device& device,
                                                            UpdateForm form,
                                                            int64_t n);

  // The kernel, once over all planes.
  void Fused(ThreadPool& pool);
  // With an f32 master and f32 moments, whatever the form: gradients are
  // widened and unscaled into a plane of f32, which the same kernel reads, and
  // then weights are rounded. Each pass goes over all of its planes.
  void ThreePasses(ThreadPool& pool);
  // What Fused reads it reads, and what it writes it writes, in the same order
  // and fetched ahead as there, and computes nothing; of the planes that are
  // both read and written the values stay. By ordinary stores, or past the
  // caches.
  void MoveAlone(ThreadPool& pool, bool past_caches);

  // That Fused reads and writes, a parameter.
  double bytes() const;
  // What the last step of either way has left.
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
  // n values of each plane, at most a tile.
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
