// The world of a test program that runs under mpirun. Such programs link
// delink_mpi_main (delink_mpi_test does) instead of GoogleTest's own main.
#pragma once

#include "parallel/launch/launch.h"

namespace delink::testing {

// All ranks of the program, for the tests of one of them. Lives while tests
// run.
World& TestWorld();

}  // namespace delink::testing
