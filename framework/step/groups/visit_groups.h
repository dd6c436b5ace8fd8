// The groups of a rank's visits: a VisitGroup for each axis along which ranks
// work on the same visit, with its own communicator on the compute lane's
// stream. Also a group that exchanges nothing and only notes the calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/autograd/visit_group.h"
#include "framework/comm/communicator.h"
#include "framework/comm/stream_communicator.h"
#include "framework/device/backend.h"
#include "framework/module/mesh.h"
#include "framework/step/program/visit_exchange.h"

namespace delink {

// A group that names each exchange and leaves doing it to a derived class.
class NamingGroup : public VisitGroup {
 public:
  NamingGroup(Axis axis, int rank, int size, int nodes = 1)
      : axis_(axis), rank_(rank), size_(size), nodes_(nodes) {}

  int rank() const final { return rank_; }
  int size() const final { return size_; }
  int nodes() const final { return nodes_; }
  void AllGather(void* buffer, int64_t count, DType dtype) final;
  void ReduceScatter(const void* send, void* recv, int64_t count,
                     DType dtype) final;
  int64_t BeginAllToAll(const void* send, void* recv, int64_t count,
                        DType dtype, Among among) final;
  void AllReduce(void* buffer, int64_t count, DType dtype,
                 Reduction reduction) final;

 protected:
  // The arguments of the call; `recv` is the buffer where there is only one.
  struct Call {
    VisitExchange what;
    const void* send = nullptr;
    void* recv = nullptr;
    int64_t count = 0;
    DType dtype = DType::kF32;
  };
  // As VisitGroup::BeginAllToAll. A visit may wait for any exchange of its own.
  virtual int64_t Begin(const Call& call) = 0;

 private:
  const Axis axis_;
  const int rank_, size_, nodes_;
};

// Appends to a list that the caller sets.
class NotingGroup final : public NamingGroup {
 public:
  using NamingGroup::NamingGroup;
  void NoteIn(std::vector<VisitExchange>* notes) { notes_ = notes; }
  void Finish(int64_t) override {}

 private:
  int64_t Begin(const Call& call) override {
    notes_->push_back(call.what);
    return 0;
  }

  std::vector<VisitExchange>* notes_ = nullptr;
};

// The groups of a rank, for the compute lane's thread alone.
class StepVisitGroups {
 public:
  // How the thread waits for what is posted.
  using Wait = std::function<absl::Status(Pending&)>;

  // Collective over `world`, the ranks of the mesh. The arguments must outlive
  // the result. It has no group for an axis of one rank.
  static absl::StatusOr<std::unique_ptr<StepVisitGroups>> Create(
      const Mesh& mesh, Device& device, Stream& stream, Communicator& world);
  ~StepVisitGroups();

  // For visits; `sequence` as in VisitGroups.
  VisitGroups groups(bool sequence) const;
  void set_wait(Wait wait) { wait_ = std::move(wait); }
  // Called when an exchange has ended: when it was posted, and when the thread
  // began to wait for it.
  using Clock = std::chrono::steady_clock;
  using Tell =
      std::function<void(const VisitExchange&, Clock::time_point posted,
                         Clock::time_point waited)>;
  void set_tell(Tell tell) { tell_ = std::move(tell); }
  // The first error; it begins with the exchange's name.
  const absl::Status& status() const { return status_; }
  // The exchange that the thread waits for; null: none.
  const VisitExchange* under_way() const { return under_way_; }

 private:
  class Group;

  StepVisitGroups() = default;
  absl::Status Make(Axis axis, const Mesh& mesh, Device& device, Stream& stream,
                    Communicator& world);

  std::vector<std::unique_ptr<Group>> groups_;
  VisitGroups by_axis_;
  Wait wait_;
  Tell tell_;
  absl::Status status_;
  const VisitExchange* under_way_ = nullptr;
};

}  // namespace delink
