#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/saved_model.h"
#include "tools/commands/commands.h"

namespace delink::tools {
namespace {

// Whole characters only, as soon as they are whole.
void Stream(std::string_view text) { std::cout << text << std::flush; }

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(
    const SavedModel& saved) {
  const std::string path = JoinPath(saved.path(), "tokenizer");
  DELINK_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return LoadTokenizer(bytes, path);
}

absl::Status GenerateText(const Generate& command, const ModelList& models,
                          World& world) {
  DELINK_RETURN_IF_ERROR(RequireOneProcess(world, "generate"));
  DELINK_RETURN_IF_ERROR(UseCores(world, 0).status());
  DELINK_ASSIGN_OR_RETURN(
      const std::unique_ptr<SavedModel> saved,
      SavedModel::Open(world.comm(), command.checkpoint, models));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          TokenizerOf(*saved));
  DELINK_ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                          tokenizer->Encode(command.prompt));
  // Without a prompt, as at the start of a document.
  if (prompt.empty()) prompt.push_back(tokenizer->end_of_document());

  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                          DeviceFor(command.device, saved->recipe(), world));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> store,
                          saved->Load(world.comm(), *device));
  Generator generator(saved->model(), *store,
                      {.sampling = {.temperature = command.temperature,
                                    .top_k = command.top_k,
                                    .top_p = command.top_p},
                       .seed = command.seed,
                       .positions = saved->recipe().model->max_seq,
                       .vocab = tokenizer->vocab_size()});
  generator.Prompt(prompt);
  StreamDecoder decoder(*tokenizer);
  Stream(command.prompt);
  for (int64_t i = 0; i < command.tokens && std::cout; ++i) {
    const int32_t token = generator.Next();
    if (token == tokenizer->end_of_document()) break;
    Stream(decoder.Push(token));
  }
  Stream(decoder.Finish() + "\n");
  return absl::OkStatus();
}

}  // namespace

int Run(const Generate& command, const ModelList& models, World& world) {
  return Finish(world, GenerateText(command, models, world));
}

}  // namespace delink::tools
