// docs: main
// The `delink` program, with one more kind of model.
#include "tools/main.h"

#include <utility>

#include "dyt/model.h"

int main(int argc, char** argv) {
  delink::ModelList models = delink::BuiltInModels();
  delink::AddModel(models, dyt::DytKind(), dyt::BuildDyt);
  return delink::Main(argc, argv, std::move(models));
}
// docs: end
