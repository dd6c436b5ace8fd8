// A recipe on the CPU, as a rank of a run has it, for tests that make its
// stages themselves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/comm/communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/schema/recipe_io.h"

namespace delink::testing {

struct RecipeEnv {
  ModelList models = BuiltInModels();
  Recipe recipe;
  std::unique_ptr<Communicator> network;
  std::unique_ptr<Device> device = NewCpuDevice();
  std::unique_ptr<RunModel> model;
  RunEnv env;  // of all these
};

// `comm` must outlive it.
inline absl::StatusOr<std::unique_ptr<RecipeEnv>> NewRecipeEnv(
    const std::string& recipe, const std::vector<std::string>& sets,
    Communicator& comm) {
  auto of = std::make_unique<RecipeEnv>();
  DELINK_ASSIGN_OR_RETURN(const Recipe read,
                          ReadRecipe(recipe, sets, KindsOf(of->models)));
  DELINK_ASSIGN_OR_RETURN(of->recipe, CheckWorld(read, comm.size()));
  DELINK_ASSIGN_OR_RETURN(of->network, comm.Split(0, comm.rank()));
  DELINK_ASSIGN_OR_RETURN(of->model, RunModel::Create(of->recipe, of->models));
  of->env = of->model->On(*of->device, comm, *of->network);
  return of;
}

}  // namespace delink::testing
