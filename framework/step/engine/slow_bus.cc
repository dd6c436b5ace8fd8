#include "framework/step/engine/slow_bus.h"

#include <algorithm>
#include <utility>

#include "framework/base/status_macros.h"

namespace delink {
namespace {

class Slowed final : public Pending {
 public:
  Slowed(std::unique_ptr<Pending> copy, int64_t due, const Nanoseconds& now)
      : copy_(std::move(copy)), due_(due), now_(now) {}

 private:
  absl::StatusOr<bool> Poll() override {
    if (copy_ != nullptr) {
      DELINK_ASSIGN_OR_RETURN(const bool done, copy_->Test());
      if (!done) return false;
    }
    return now_() >= due_;
  }

  const std::unique_ptr<Pending> copy_;
  const int64_t due_;
  const Nanoseconds& now_;
};

}  // namespace

SlowBus::SlowBus(const Link& way, Nanoseconds now)
    : way_(way), now_(now == nullptr ? SteadyNow : std::move(now)) {}

std::unique_ptr<Pending> SlowBus::Slow(std::unique_ptr<Pending> copy,
                                       bool to_device, int64_t begin,
                                       int64_t bytes) {
  if (bytes == 0) return copy;
  int64_t& free = free_[to_device ? 0 : 1];
  free = std::max(free, begin) + InNanoseconds(way_.BusySeconds(bytes));
  const int64_t due = free + InNanoseconds(way_.latency);
  return std::make_unique<Slowed>(std::move(copy), due, now_);
}

}  // namespace delink
