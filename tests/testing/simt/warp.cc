#include "tests/testing/simt/warp.h"

#include <sstream>

#include "tests/testing/simt/clock.h"
#include "tests/testing/simt/report.h"

namespace delink::simt {

const char* WaitName(Wait wait) {
  switch (wait) {
    case Wait::kNone:
      return "nothing";
    case Wait::kBlock:
      return "__syncthreads";
    case Wait::kBlockOr:
      return "__syncthreads_or";
    case Wait::kBlockAnd:
      return "__syncthreads_and";
    case Wait::kBlockCount:
      return "__syncthreads_count";
    case Wait::kWarp:
      return "__syncwarp";
    case Wait::kShuffle:
      return "__shfl_sync";
    case Wait::kShuffleUp:
      return "__shfl_up_sync";
    case Wait::kShuffleDown:
      return "__shfl_down_sync";
    case Wait::kShuffleXor:
      return "__shfl_xor_sync";
    case Wait::kBallot:
      return "__ballot_sync";
    case Wait::kAny:
      return "__any_sync";
    case Wait::kAll:
      return "__all_sync";
    case Wait::kMatrix:
      return "a matrix of the warp";
  }
  return "?";
}

std::string LineName(CodeLine where) {
  const std::string file = where.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line);
}

std::string DimName(const dim3& dim) {
  std::ostringstream name;
  name << '(' << dim.x << ',' << dim.y << ',' << dim.z << ')';
  return name.str();
}

void Warp::Begin(int lanes) {
  present_ = lanes == 32 ? 0xFFFFFFFF : (uint32_t{1} << lanes) - 1;
  waiting_ = 0;
  last_full_ = 0;
  if (partial_) met_ = {};
  partial_ = false;
}

uint32_t Warp::Arrive(int lane, const WarpCall& call) {
  calls_[Index(lane)] = call;
  waiting_ |= uint32_t{1} << lane;
  // Lanes that the block does not have are not waited for.
  const uint32_t needed = call.mask & present_;
  if ((waiting_ & needed) != needed) return 0;
  for (int other = 0; other < 32; ++other) {
    const WarpCall& its = calls_[Index(other)];
    if ((needed >> other & 1) != 0 &&
        (its.mask != call.mask || its.wait != call.wait)) {
      return 0;
    }
  }
  waiting_ &= ~needed;
  return needed;
}

// As PTX's shfl: out of its segment a lane reads itself.
int Warp::Source(const WarpCall& call, int lane) const {
  const int first = lane & ~(call.width - 1);
  const int last = first + call.width - 1;
  int source = lane;
  switch (call.wait) {
    case Wait::kShuffle:
      source = first | (call.argument & (call.width - 1));
      break;
    case Wait::kShuffleUp:
      source = lane - call.argument;
      break;
    case Wait::kShuffleDown:
      source = lane + call.argument;
      break;
    default:
      source = lane ^ call.argument;
      // Only an earlier segment may be read.
      return source <= last ? source : lane;
  }
  return source >= first && source <= last ? source : lane;
}

void Warp::Answer(uint32_t released, uint32_t mask, CodeLine where) {
  uint32_t votes = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const bool vote =
        (released >> lane & 1) != 0 && calls_[Index(lane)].value != 0;
    votes |= static_cast<uint32_t>(vote) << lane;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if ((released >> lane & 1) == 0) continue;
    const WarpCall& call = calls_[Index(lane)];
    uint64_t& answer = answers_[Index(lane)];
    if (call.wait == Wait::kWarp) continue;
    if (call.wait == Wait::kMatrix) {
      gathered_[Index(lane)] = call.value;
      answer = reinterpret_cast<uint64_t>(gathered_.data());
    } else if (call.wait == Wait::kBallot) {
      answer = votes;
    } else if (call.wait == Wait::kAny) {
      answer = static_cast<uint64_t>(votes != 0);
    } else if (call.wait == Wait::kAll) {
      answer = static_cast<uint64_t>(votes == released);
    } else {
      const int source = Source(call, lane);
      if ((released >> source & 1) == 0) {
        Report(std::string(WaitName(call.wait)) + " at " + LineName(where) +
               ": lane " + std::to_string(lane) + " reads lane " +
               std::to_string(source) + ", which takes no part (mask " +
               Hex(mask) + ", lanes there " + Hex(present_) + ")");
      }
      answer = calls_[Index(source)].value;
    }
  }
  const Record now = NextTime();
  if (released == present_) {
    last_full_ = now;
    return;
  }
  partial_ = true;
  for (int a = 0; a < 32; ++a) {
    for (int b = 0; b < 32; ++b) {
      if ((released >> a & released >> b & 1) != 0) {
        met_[Index(a)][Index(b)] = now;
      }
    }
  }
}

bool Warp::Names(int lane, int other) const {
  return (calls_[Index(lane)].mask >> other & 1) != 0;
}

const Record* Warp::lanes(int lane) const {
  return partial_ ? met_[Index(lane)].data() : nullptr;
}

}  // namespace delink::simt
