#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/base/status_macros.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/prompts.h"
#include "recipes/saved/saved_model.h"
#include "tools/commands/commands.h"

namespace delink::tools {
namespace {

// Whole characters only, as soon as they are whole.
void Stream(std::string_view text) { std::cout << text << std::flush; }

// A checkpoint, ready to continue texts.
struct Opened {
  std::unique_ptr<SavedModel> saved;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Device> device;
  std::unique_ptr<ParamStore> store;

  int64_t positions() const { return saved->recipe().model->max_seq; }
};

PromptOptions OptionsOf(const Generate& command) {
  return {.tokens = command.tokens,
          .sampling = {.temperature = command.temperature,
                       .top_k = command.top_k,
                       .top_p = command.top_p},
          .seed = command.seed};
}

// All but the weights, which take longest.
absl::StatusOr<Opened> Open(const Generate& command, const ModelList& models,
                            World& world) {
  DELINK_RETURN_IF_ERROR(RequireOneProcess(world, "generate"));
  DELINK_RETURN_IF_ERROR(UseCores(world, 0).status());
  Opened opened;
  DELINK_ASSIGN_OR_RETURN(
      opened.saved, SavedModel::Open(world.comm(), command.checkpoint, models));
  DELINK_ASSIGN_OR_RETURN(opened.tokenizer, opened.saved->MakeTokenizer());
  DELINK_ASSIGN_OR_RETURN(
      opened.device, DeviceFor(command.device, opened.saved->recipe(), world));
  return opened;
}

absl::Status ContinueText(const Generate& command, World& world,
                          Opened& opened) {
  const Tokenizer& tokenizer = *opened.tokenizer;
  DELINK_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                          EncodePrompt(tokenizer, command.prompt));
  DELINK_ASSIGN_OR_RETURN(opened.store,
                          opened.saved->Load(world.comm(), *opened.device));
  const PromptOptions options = OptionsOf(command);
  Generator generator(opened.saved->model(), *opened.store,
                      {.sampling = options.sampling,
                       .seed = options.seed,
                       .positions = opened.positions(),
                       .vocab = tokenizer.vocab_size()});
  generator.Prompt(prompt);
  StreamDecoder decoder(tokenizer);
  Stream(command.prompt);
  for (int64_t i = 0; i < command.tokens && std::cout; ++i) {
    const int32_t token = generator.Next();
    if (tokenizer.EndsText(token)) break;
    Stream(decoder.Push(token));
  }
  Stream(decoder.Finish() + "\n");
  return absl::OkStatus();
}

absl::Status ContinueAll(const Generate& command, World& world,
                         Opened& opened) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts,
                          ReadPrompts(command.prompts, OptionsOf(command)));
  DELINK_ASSIGN_OR_RETURN(opened.store,
                          opened.saved->Load(world.comm(), *opened.device));
  for (const Prompt& prompt : prompts) {
    if (!std::cout) break;
    const absl::StatusOr<Continuation> continuation =
        ContinuePrompt(prompt, *opened.tokenizer, opened.saved->model(),
                       *opened.store, opened.positions());
    if (!continuation.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(command.prompts, ":", prompt.line, ": ",
                       std::string(continuation.status().message())));
    }
    Print(ToJson(prompt, *continuation));
  }
  return absl::OkStatus();
}

absl::Status GenerateText(const Generate& command, const ModelList& models,
                          World& world) {
  DELINK_ASSIGN_OR_RETURN(Opened opened, Open(command, models, world));
  return command.prompts.empty() ? ContinueText(command, world, opened)
                                 : ContinueAll(command, world, opened);
}

}  // namespace

int Run(const Generate& command, const ModelList& models, World& world) {
  return Finish(world, GenerateText(command, models, world));
}

}  // namespace delink::tools
