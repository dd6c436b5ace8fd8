#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/base/status_macros.h"
#include "framework/comm/communicator.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/prompts.h"
#include "recipes/saved/saved_model.h"
#include "tools/commands/commands.h"

namespace delink::tools {
namespace {

// Prints whole characters, as soon as they are complete.
void Stream(const World& world, std::string_view text) {
  if (world.rank() == 0) std::cout << text << std::flush;
}

// A checkpoint, ready to continue texts.
struct Opened {
  std::unique_ptr<SavedModel> saved;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Device> device;
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<ForwardRanks> ranks;  // null: there is one rank

  int64_t positions() const { return saved->recipe().model->max_seq; }
};

PromptOptions OptionsOf(const Generate& command) {
  return {.tokens = command.tokens,
          .sampling = {.temperature = command.temperature,
                       .top_k = command.top_k,
                       .top_p = command.top_p},
          .seed = command.seed};
}

// Opens everything but the weights, which take longest.
absl::StatusOr<Opened> Open(const Generate& command, const ModelList& models,
                            World& world) {
  DELINK_RETURN_IF_ERROR(UseCores(world, 0).status());
  Opened opened;
  DELINK_ASSIGN_OR_RETURN(
      opened.saved, SavedModel::Open(world.comm(), command.checkpoint, models,
                                     DType::kF32, command.sets));
  DELINK_ASSIGN_OR_RETURN(opened.tokenizer, opened.saved->MakeTokenizer());
  DELINK_ASSIGN_OR_RETURN(
      opened.device, DeviceFor(command.device, opened.saved->recipe(), world));
  return opened;
}

// Loads the weights, which are sharded over all ranks.
absl::Status Load(World& world, Opened& opened) {
  DELINK_ASSIGN_OR_RETURN(const Layout::Options layout,
                          opened.saved->LayoutFor(world.size()));
  const Mesh& mesh = layout.mesh;
  if (layout.zero == 0 &&
      mesh.pipeline * mesh.PlacesOfVisit({Axis::kExpert}) < world.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "delink generate shards the weights over all ranks, but ", world.size(),
        " were started, which does not match the layout of the checkpoint's "
        "stage; start it with mpirun -np ",
        opened.saved->RanksOfWeights(),
        ", or change the layout, as in --set stage.",
        opened.saved->run().stage_index, ".parallel={zero=3}"));
  }
  DELINK_ASSIGN_OR_RETURN(
      opened.store,
      opened.saved->Load(world.comm(), *opened.device, {}, layout));
  if (world.size() == 1) return absl::OkStatus();
  DELINK_ASSIGN_OR_RETURN(opened.ranks,
                          ForwardRanks::Create(*opened.store, world.comm()));
  return absl::OkStatus();
}

// Whether the output is still read; with several ranks always true, since none
// may stop alone.
bool Reads(const Opened& opened) {
  return opened.ranks != nullptr || static_cast<bool>(std::cout);
}

absl::Status ContinueText(const Generate& command, World& world,
                          Opened& opened) {
  const Tokenizer& tokenizer = *opened.tokenizer;
  DELINK_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                          EncodePrompt(tokenizer, command.prompt));
  DELINK_RETURN_IF_ERROR(Load(world, opened));
  const PromptOptions options = OptionsOf(command);
  Generator generator(opened.saved->model(), *opened.store,
                      {.sampling = options.sampling,
                       .seed = options.seed,
                       .positions = opened.positions(),
                       .vocab = tokenizer.vocab_size(),
                       .ranks = opened.ranks.get()});
  generator.Prompt(prompt);
  StreamDecoder decoder(tokenizer);
  Stream(world, command.prompt);
  for (int64_t i = 0; i < command.tokens && Reads(opened); ++i) {
    const int32_t token = generator.Next();
    if (tokenizer.EndsText(token)) break;
    Stream(world, decoder.Push(token));
  }
  Stream(world, decoder.Finish() + "\n");
  return absl::OkStatus();
}

absl::Status ContinueAll(const Generate& command, World& world,
                         Opened& opened) {
  // Also where one rank alone cannot, as of a pipe that mpirun gives to one.
  const absl::StatusOr<std::vector<Prompt>> prompts =
      ReadPrompts(command.prompts, OptionsOf(command));
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(world.comm(), prompts.status()));
  DELINK_RETURN_IF_ERROR(Load(world, opened));
  for (const Prompt& prompt : *prompts) {
    if (!Reads(opened)) break;
    const absl::StatusOr<Continuation> continuation =
        ContinuePrompt(prompt, *opened.tokenizer, opened.saved->model(),
                       *opened.store, opened.positions(), opened.ranks.get());
    if (!continuation.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(command.prompts, ":", prompt.line, ": ",
                       std::string(continuation.status().message())));
    }
    if (world.rank() == 0) Print(ToJson(prompt, *continuation));
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
