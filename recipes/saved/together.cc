#include "recipes/saved/together.h"

#include "framework/base/status_macros.h"

namespace delink {

absl::StatusOr<Together> LoadTogether(const SavedModel& saved, Device& device,
                                      Communicator& comm) {
  Together together{.place = comm.rank(), .places = comm.size()};
  DELINK_ASSIGN_OR_RETURN(const Mesh mesh, saved.MeshFor(comm.size()));
  const bool alone = mesh.data == mesh.ranks();
  DELINK_ASSIGN_OR_RETURN(together.store,
                          saved.Load(comm, device, {}, alone ? Mesh() : mesh));
  if (alone) return together;
  together.place = mesh.PlaceOf(comm.rank())[Axis::kData];
  together.places = mesh.data;
  DELINK_ASSIGN_OR_RETURN(
      together.ranks,
      ForwardRanks::Create(together.store->layout(), device, comm));
  return together;
}

}  // namespace delink
