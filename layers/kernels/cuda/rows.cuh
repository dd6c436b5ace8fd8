// Rows [D] that several threads share, and the launch of such kernels.
//
// A team of threads has one row. If the row is short, a team is a power of two
// of neighbouring lanes of a warp, else the whole block. Its thread i has the
// packs i, i + size, ... of the row. If the row can be read by 16 bytes, the
// thread keeps its packs, at most kHeld, in registers, so that it reads memory
// only once. Other rows (kHeld = 0) are read again, from a cache.
#pragma once

#include <algorithm>

#include "framework/device/cuda/reduce.cuh"
#include "framework/device/cuda/vector.cuh"

namespace delink::cuda {

inline constexpr int kRowThreads = 256;      // in a block of lane teams
inline constexpr int kMaxRowThreads = 1024;  // in a block that is one team

// `size` lanes, a power of two up to 32.
class LaneTeam {
 public:
  static constexpr int kThreads = kRowThreads;
  __device__ explicit LaneTeam(int size) : size_(size) {}
  __device__ int size() const { return size_; }
  __device__ int index() const {
    return static_cast<int>(threadIdx.x) & (size_ - 1);
  }
  // Every thread of the warp must call it; a team gets its own sum.
  __device__ float Sum(float value) const {
    for (int lane = size_ / 2; lane > 0; lane /= 2) {
      value += __shfl_xor_sync(kFullWarp, value, lane);
    }
    return value;
  }
  // Calls body(row, mine) for the team's share of rows [0, N). All teams of a
  // warp make the same number of calls, since they sum together. `mine` is
  // false if this team has no row left.
  template <typename Body>
  __device__ void ForRows(int64_t N, Body body) const {
    const int teams = static_cast<int>(blockDim.x) / size_;
    const int team = static_cast<int>(threadIdx.x) / size_;
    for (int64_t first = int64_t{blockIdx.x} * teams; first < N;
         first += int64_t{gridDim.x} * teams) {
      body(first + team, first + team < N);
    }
  }

 private:
  int size_;
};

class BlockTeam {
 public:
  static constexpr int kThreads = kMaxRowThreads;
  __device__ explicit BlockTeam(int) {}
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ int index() const { return static_cast<int>(threadIdx.x); }
  __device__ float Sum(float value) const {
    __shared__ float partial[kWarp];
    return BlockSum(value, partial);
  }
  template <typename Body>
  __device__ void ForRows(int64_t N, Body body) const {
    for (int64_t row = blockIdx.x; row < N; row += gridDim.x) body(row, true);
  }
};

// The columns of a row that a thread has.
template <int kWidth, int kHeld>
class Columns {
 public:
  // If !mine, the thread has no columns.
  template <typename Team>
  __device__ Columns(const Team& team, int D, bool mine)
      : first_(team.index() * kWidth),
        step_(team.size() * kWidth),
        end_(mine ? D : 0) {}
  // Calls body(k, d): the thread's k-th pack starts at column d.
  template <typename Body>
  __device__ void ForEach(Body body) const {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int k = 0; k < kHeld; ++k) {
        const int d = first_ + k * step_;
        if (d < end_) body(k, d);
      }
    } else {
#pragma unroll 2
      for (int d = first_; d < end_; d += step_) body(0, d);
    }
  }

 private:
  int first_, step_, end_;
};

// A row of an input, loaded by the constructor (kHeld > 0) or when it is read.
template <typename T, int kWidth, int kHeld>
class Row {
 public:
  __device__ Row(const T* row, const Columns<kWidth, kHeld>& columns)
      : row_(row) {
    if constexpr (kHeld > 0) {
      columns.ForEach(
          [&](int k, int d) { packs_[k] = LoadPack<T, kWidth>(row + d); });
    }
  }
  // The row x + add, rounded to T and stored in `sum`. If `add` is null, the
  // row x.
  __device__ Row(const T* x, const T* add, T* sum,
                 const Columns<kWidth, kHeld>& columns)
      : Row(x, columns) {
    if (add == nullptr) return;
    // All loads are issued before the first store.
    const Row terms(add, columns);
    columns.ForEach([&](int k, int d) {
      const auto a = At(k, d), b = terms.At(k, d);
      packs_[k] = MakePack<T, kWidth>([&](int i) { return a[i] + b[i]; });
      StorePack(sum + d, packs_[k]);
    });
    row_ = sum;
  }
  __device__ Pack<T, kWidth> At(int k, int d) const {
    if constexpr (kHeld > 0) {
      return packs_[k];
    } else {
      return LoadPack<T, kWidth>(row_ + d);
    }
  }

 private:
  const T* row_;
  Pack<T, kWidth> packs_[kHeld > 0 ? kHeld : 1];
};

// On the host: whether rows of D elements T of all operands can be read in
// packs. Null operands are ignored.
template <typename T, typename... Operands>
bool CanPackAll(int64_t D, const Operands*... operands) {
  return (CanPack<T>(operands, D) && ...);
}

// On the host: the launch for rows of D elements T. `teams` share a block.
struct RowLaunch {
  bool packed, block_team;
  int team_size;
  dim3 grid, block;
};

inline constexpr int kBlocksEach = 32;  // most blocks for each multiprocessor

// `packed`: every row of every operand can be read in packs. A lane of a team
// keeps up to kLaneHeld of them, and a thread of a block up to kBlockHeld.
template <typename T, int kLaneHeld, int kBlockHeld>
RowLaunch ShapeRows(int64_t N, int64_t D, bool packed, int multiprocessors) {
  constexpr int64_t kSize = Pack<T>::kSize;
  RowLaunch launch = {};
  launch.packed = packed && D <= kMaxRowThreads * kBlockHeld * kSize;
  // A row that is not kept gets a whole block if a warp's lanes would each have
  // more elements than this.
  constexpr int64_t kEach = 8;
  launch.block_team = D > kWarp * (launch.packed ? kSize * kLaneHeld : kEach);
  if (launch.block_team) {
    const int64_t each = launch.packed ? kSize * kBlockHeld : kEach;
    const int64_t warps = (D + each * kWarp - 1) / (each * kWarp);
    launch.team_size =
        static_cast<int>(std::min<int64_t>(warps * kWarp, kMaxRowThreads));
    launch.block = dim3(launch.team_size);
  } else {
    // The team grows, up to a warp, until it reads its row at once, although
    // fewer lanes could keep the row.
    const int64_t width = launch.packed ? kSize : 1;
    launch.team_size = 1;
    while (launch.team_size < kWarp && launch.team_size * width < D) {
      launch.team_size *= 2;
    }
    launch.block = dim3(kRowThreads);
  }
  const int64_t teams = launch.block.x / launch.team_size;
  launch.grid = dim3(static_cast<unsigned>(std::min<int64_t>(
      (N + teams - 1) / teams, int64_t{kBlocksEach} * multiprocessors)));
  return launch;
}

// Calls launch.template operator()<Team, kWidth, kHeld>(shape) for N rows of D
// elements T, as ShapeRows has them, on `stream`.
template <typename T, int kLaneHeld, int kBlockHeld, typename Launch>
void LaunchRows(Stream& stream, int64_t N, int64_t D, bool packed,
                Launch launch) {
  if (N == 0 || D == 0) return;
  constexpr int kWidth = Pack<T>::kSize;
  const RowLaunch shape = ShapeRows<T, kLaneHeld, kBlockHeld>(
      N, D, packed, InfoOf(stream).multiprocessors);
  if (shape.packed && shape.block_team) {
    launch.template operator()<BlockTeam, kWidth, kBlockHeld>(shape);
  } else if (shape.packed) {
    launch.template operator()<LaneTeam, kWidth, kLaneHeld>(shape);
  } else if (shape.block_team) {
    launch.template operator()<BlockTeam, 1, 0>(shape);
  } else {
    launch.template operator()<LaneTeam, 1, 0>(shape);
  }
}

}  // namespace delink::cuda
