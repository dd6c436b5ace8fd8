// The `delink` program. A user's own repository has a main of its own that adds
// a model:
//
//   int main(int argc, char** argv) {
//     delink::ModelList models = delink::BuiltInModels();
//     delink::AddModel(models, MyKind(), BuildMyModel);
//     return delink::Main(argc, argv, std::move(models));
//   }
#pragma once

#include "recipes/models/model_list.h"

namespace delink {

// Does what the arguments say (docs/cli.md) and returns the exit code: 0; 2 for
// bad arguments or a bad recipe, before anything is written; 1 for everything
// else. Call it first thing in main, once: it may begin the process anew
// (layers/kernels/cpu/spin.h), and what came before with it.
int Main(int argc, char** argv, ModelList models);

}  // namespace delink
