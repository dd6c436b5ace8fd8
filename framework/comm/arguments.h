// The checks that every communicator makes of its arguments.
#pragma once

#include <cstdint>

#include "framework/base/check.h"
#include "framework/comm/communicator.h"

namespace delink::comm {

inline void CheckCount(int64_t count) { DELINK_CHECK_GE(count, 0); }

inline void CheckAllReduce(int64_t count, DType dtype) {
  CheckCount(count);
  DELINK_CHECK(dtype == DType::kF32 || dtype == DType::kF64 ||
               dtype == DType::kI32 || dtype == DType::kI64)
      << "no reduction of this dtype";
}

inline void CheckReduceScatter(int64_t count, DType dtype) {
  if (dtype == DType::kBF16) return CheckCount(count);
  CheckAllReduce(count, dtype);
}

inline void CheckRoot(const Communicator& comm, int root) {
  DELINK_CHECK(root >= 0 && root < comm.size())
      << "root " << root << " of " << comm.size() << " ranks";
}

inline void CheckPeer(const Communicator& comm, int peer, int tag) {
  DELINK_CHECK(peer >= 0 && peer < comm.size() && peer != comm.rank())
      << "peer " << peer << " of rank " << comm.rank() << " of " << comm.size();
  DELINK_CHECK(tag >= 0 && tag < Communicator::kTags) << "tag " << tag;
}

inline void CheckColor(int color) { DELINK_CHECK_GE(color, 0); }

}  // namespace delink::comm
