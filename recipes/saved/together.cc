#include "recipes/saved/together.h"

#include "framework/base/status_macros.h"

namespace delink {

absl::StatusOr<Together> LoadTogether(const SavedModel& saved,
                                      const MakeDevice& device,
                                      Communicator& comm) {
  Together together{
      .device = NewCpuDevice(), .place = comm.rank(), .places = comm.size()};
  if (device != nullptr) {
    absl::StatusOr<std::unique_ptr<Device>> made = device(saved.recipe());
    DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, made.status()));
    together.device = *std::move(made);
  }
  DELINK_ASSIGN_OR_RETURN(const Layout::Options layout,
                          saved.LayoutFor(comm.size()));
  const bool alone = layout.mesh == Mesh{.data = comm.size()} &&
                     (layout.zero == 0 || comm.size() == 1);
  DELINK_ASSIGN_OR_RETURN(together.store,
                          saved.Load(comm, *together.device, {},
                                     alone ? Layout::Options() : layout));
  if (alone) return together;
  DELINK_ASSIGN_OR_RETURN(together.ranks,
                          ForwardRanks::Create(*together.store, comm));
  together.place = together.ranks->place();
  together.places = together.ranks->places();
  return together;
}

absl::StatusOr<std::vector<double>> SumOverRanks(
    Communicator& comm, absl::StatusOr<std::vector<double>> mine) {
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, mine.status()));
  DELINK_RETURN_IF_ERROR(comm.AllReduce(mine->data(), std::ssize(*mine),
                                        DType::kF64, ReduceOp::kSum)
                             ->Wait());
  return mine;
}

}  // namespace delink
