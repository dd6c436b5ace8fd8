#include "tools/bench/bus.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/device/host_arena.h"
#include "framework/tensor/buffer.h"
#include "tools/bench/timing.h"

namespace delink::bench {
namespace {

using Clock = std::chrono::steady_clock;

// A block is copied in this many pieces, one after the other.
constexpr int64_t kPieces = 4;

enum class Towards : uint8_t { kToDevice, kToHost };

// One direction: a block on each side.
struct Direction {
  Towards towards;
  char* host;
  char* on_device;
  Stream* stream;
};

// Samples of one direction or both, bytes/s.
struct Samples {
  std::vector<double> to_device, to_host;
  double MedianToDevice() const { return Summarise(to_device).median; }
  double MedianToHost() const { return Summarise(to_host).median; }
};

class Bus {
 public:
  Bus(Target& target, const BusOptions& options)
      : device_(target.device()),
        in_(device_.NewStream()),
        out_(device_.NewStream()),
        piece_(std::max<int64_t>(options.bytes / kPieces, 1)),
        options_(options) {}

  // Uses these blocks of the host and of the device, of `bytes` each.
  offload::BusRates Measure(char* const host[2], char* const on_device[2]) {
    const Direction in{Towards::kToDevice, host[0], on_device[0], in_.get()};
    const Direction out{Towards::kToHost, host[1], on_device[1], out_.get()};
    // Warm-up: the first touch of memory, and one-time work of the driver.
    BytesPerSecond(in, 0);
    BytesPerSecond(out, 0);
    Samples alone, both;
    for (int64_t i = 0; i < options_.samples; ++i) {
      alone.to_device.push_back(BytesPerSecond(in, options_.seconds));
      alone.to_host.push_back(BytesPerSecond(out, options_.seconds));
      AtOnce(in, out, &both);
    }
    return {.to_device = alone.MedianToDevice(),
            .to_host = alone.MedianToHost(),
            .both_to_device = both.MedianToDevice(),
            .both_to_host = both.MedianToHost()};
  }

 private:
  // Measures the copies that begin within `seconds`, at least one block.
  double BytesPerSecond(const Direction& lane, double seconds) {
    const Clock::time_point start = Clock::now();
    int64_t pieces = 0;
    do {
      const int64_t at = pieces % kPieces * piece_;
      if (lane.towards == Towards::kToDevice) {
        device_.CopyFromHost(*lane.stream, lane.on_device + at, lane.host + at,
                             piece_);
      } else {
        device_.CopyToHost(*lane.stream, lane.host + at, lane.on_device + at,
                           piece_);
      }
      lane.stream->Synchronize();
      ++pieces;
    } while (pieces < kPieces || Since(start) < seconds);
    return static_cast<double>(pieces * piece_) / Since(start);
  }

  void AtOnce(const Direction& in, const Direction& out, Samples* samples) {
    std::barrier gate(2);
    double to_host = 0;
    std::thread other([&] {
      gate.arrive_and_wait();
      to_host = BytesPerSecond(out, options_.seconds);
    });
    gate.arrive_and_wait();
    samples->to_device.push_back(BytesPerSecond(in, options_.seconds));
    other.join();
    samples->to_host.push_back(to_host);
  }

  Device& device_;
  const std::unique_ptr<Stream> in_, out_;
  const int64_t piece_;
  const BusOptions options_;
};

}  // namespace

absl::StatusOr<BusMeasure> MeasureBus(Target& target,
                                      const BusOptions& options) {
  const int64_t bytes = AlignUp(options.bytes);
  Device& device = target.device();
  DELINK_ASSIGN_OR_RETURN(const Buffer blocks,
                          Buffer::Allocate(device, 2 * bytes, "copies"));
  target.Fill(blocks.data(), 2 * bytes);
  char* const on_device[] = {static_cast<char*>(blocks.data()),
                             static_cast<char*>(blocks.at(bytes))};
  Bus bus(target, options);
  const auto measure = [&](void* memory) {
    char* const host[] = {static_cast<char*>(memory),
                          static_cast<char*>(memory) + bytes};
    device.CopyToHost(target.stream(), memory, blocks.data(), 2 * bytes);
    target.stream().Synchronize();
    return bus.Measure(host, on_device);
  };
  BusMeasure rates;
  {
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<HostArena> arena,
                            HostArena::Create(device, 2 * bytes));
    DELINK_ASSIGN_OR_RETURN(void* const memory,
                            arena->Take(2 * bytes, "copies"));
    rates.pinned_memory = arena->pinned();
    rates.pinned = measure(memory);
  }
  const std::unique_ptr<char[]> pageable(new char[2 * bytes]);
  rates.pageable = measure(pageable.get());
  return rates;
}

}  // namespace delink::bench
