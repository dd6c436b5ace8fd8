// A program for launch_test.cc to start, alone and under mpirun.
//
//   launch_probe world [THREADS]   one line: the world and this rank's cores
//   launch_probe abort RANK        that rank aborts with code 3, others wait
//   launch_probe kill RANK         that rank is killed, others wait
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "parallel/launch/cores.h"
#include "parallel/launch/launch.h"

int main(int argc, char** argv) {
  absl::StatusOr<delink::World> world = delink::StartWorld(&argc, &argv);
  if (!world.ok()) {
    const std::string message(world.status().message());
    std::fprintf(stderr, "error: %s\n", message.c_str());
    return 2;
  }
  const std::string command = argc > 1 ? argv[1] : "";
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  if (command == "world") {
    const auto share = delink::TakeCores(world->local(), number).value();
    std::printf("rank %d of %d, local %d of %d, cpus %s, threads %d\n",
                world->rank(), world->size(), world->local_rank(),
                world->local_size(), delink::CpuList(share.cpus).c_str(),
                share.threads);
    return 0;
  }
  if (world->rank() == number) {
    if (command == "kill") raise(SIGKILL);
    world->Abort(3, "the disk of shard 7 is full");
  }
  return delink::Barrier(world->comm()).ok() ? 0 : 1;
}
