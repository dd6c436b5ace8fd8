#include "tools/main.h"

int main(int argc, char** argv) {
  return delink::Main(argc, argv, delink::BuiltInModels());
}
