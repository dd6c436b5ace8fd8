#include "framework/device/cpu/pooled_stream.h"

#include <utility>

#include "absl/status/status.h"

namespace delink {
namespace {

class PooledStream final : public Stream {
 public:
  PooledStream(std::unique_ptr<Stream> stream, ThreadPool& pool)
      : stream_(std::move(stream)), pool_(pool) {}

  ThreadPool& pool() { return pool_; }

  void Record(Event& event) override { stream_->Record(event); }
  void Wait(const Event& event) override { stream_->Wait(event); }
  void Synchronize() override { stream_->Synchronize(); }
  void SynchronizeWith(const Event& event) override {
    stream_->SynchronizeWith(event);
  }
  bool Reached(const Event& event) override { return stream_->Reached(event); }
  absl::Status Prepare() override { return stream_->Prepare(); }

 private:
  std::unique_ptr<Stream> stream_;
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<Stream> NewPooledStream(Device& device, ThreadPool& pool) {
  return std::make_unique<PooledStream>(device.NewStream(), pool);
}

ThreadPool* PoolOf(Stream& stream) {
  auto* const pooled = dynamic_cast<PooledStream*>(&stream.underlying());
  return pooled == nullptr ? nullptr : &pooled->pool();
}

}  // namespace delink
