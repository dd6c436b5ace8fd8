// Writes the logits that a checkpoint gives after each of some tokens, or after
// every so many, for Python to compare with.
//
//   dump_logits CHECKPOINT TOKENS OUT [EVERY]
//
// TOKENS: a file of ids with white space between them; OUT: [tokens / EVERY,
// vocab] f32.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/device/backend.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/saved_model.h"

namespace delink::testing {
namespace {

absl::Status Dump(const std::string& checkpoint,
                  const std::vector<int32_t>& tokens, size_t every,
                  std::ostream& out) {
  SelfCommunicator comm;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          SavedModel::Open(comm, checkpoint, BuiltInModels()));
  const std::unique_ptr<Device> device = NewCpuDevice();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> store,
                          saved->Load(comm, *device));
  Generator generator(saved->model(), *store,
                      {.positions = saved->recipe().model->max_seq});
  for (size_t length = every; length <= tokens.size(); length += every) {
    generator.Prompt(std::span(tokens).first(length));
    const std::vector<double>& logits = generator.Logits();
    const std::vector<float> row(logits.begin(), logits.end());
    out.write(reinterpret_cast<const char*>(row.data()),
              static_cast<std::streamsize>(row.size() * sizeof(float)));
  }
  out.flush();
  return out ? absl::OkStatus() : absl::DataLossError("cannot write");
}

}  // namespace
}  // namespace delink::testing

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: dump_logits CHECKPOINT TOKENS OUT [EVERY]\n");
    return 2;
  }
  std::ifstream file(argv[2]);
  std::vector<int32_t> tokens;
  for (int32_t token = 0; file >> token;) tokens.push_back(token);
  std::ofstream out(argv[3], std::ios::binary);
  const absl::Status status = delink::testing::Dump(
      argv[1], tokens, argc == 5 ? std::stoul(argv[4]) : 1, out);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
