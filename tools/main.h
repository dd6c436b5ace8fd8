// The `delink` program. A user's own repository has its own main, which adds a
// model:
//
//   int main(int argc, char** argv) {
//     delink::ModelList models = delink::BuiltInModels();
//     delink::AddModel(models, MyKind(), BuildMyModel);
//     return delink::Main(argc, argv, std::move(models));
//   }
#pragma once

#include "recipes/models/model_list.h"

namespace delink {

// Runs the command line (docs/cli.md) and returns the exit code: 0 for success;
// 2 for bad arguments or a bad recipe, before anything is written; 1 for other
// errors. Call it once, before all else in main: it may restart the process
// (layers/kernels/cpu/spin.h), which then repeats any code before it.
int Main(int argc, char** argv, ModelList models);

}  // namespace delink
