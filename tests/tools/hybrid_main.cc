// The `delink` program with a gpt whose blocks are of two kinds in turn.
#include "tests/recipes/run/hybrid.h"
#include "tools/main.h"

int main(int argc, char** argv) {
  return delink::Main(argc, argv, delink::testing::Hybrids());
}
