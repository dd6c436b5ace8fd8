#include "recipes/run/setup/init_folder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/module/mover.h"
#include "framework/module/store_values.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

using huggingface::FolderValues;
using huggingface::ModelFolder;

// A key that the shapes of tensors check. So a recipe may have fewer positions
// if nothing is stored for them.
constexpr char kMaxSeq[] = "model.max_seq";

absl::Status CheckModel(const ModelFolder& folder, const Recipe& recipe) {
  if (folder.config->kind() != recipe.model->kind()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder.path, ": is a model of the family ", folder.family->model_type,
        ", which is model.kind \"", std::string(folder.config->kind()),
        "\", but the recipe's is \"", std::string(recipe.model->kind()), "\""));
  }
  Recipe theirs = recipe;
  theirs.model = folder.config;
  const auto is_own = [&](const std::string& key) {
    return key == kMaxSeq || std::ranges::any_of(folder.family->own_keys,
                                                 [&](const std::string& own) {
                                                   return key == "model." + own;
                                                 });
  };
  std::string wrong;
  for (const Difference& d : DiffRecipes(theirs, recipe)) {
    if (is_own(d.key)) continue;
    absl::StrAppend(&wrong, "\n", folder.path, ": ", d.key, " is ", d.before,
                    ", but the recipe's is ", d.after);
  }
  if (wrong.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(folder.path,
                   ": differs from the recipe's model; give [model] the values "
                   "of the folder's config.json:",
                   wrong));
}

// The part of a tokenizer's bytes that determines a text's ids, independent of
// the file's origin.
absl::StatusOr<TokenizerFiles> MainFile(std::string_view bytes,
                                        const std::string& name) {
  if (!IsPacked(bytes)) return TokenizerFiles{{"", std::string(bytes)}};
  return UnpackFiles(bytes, name);
}

// Whether a corpus of this tokenizer has the ids of one of `files`.
bool SameIds(const TokenizerFiles& corpus, const TokenizerFiles& files) {
  for (const char* const name : {kTokenizerJson, kTokenizerModel}) {
    const auto theirs = files.find(name);
    if (theirs == files.end()) continue;
    for (const char* const own : {"", name}) {
      const auto mine = corpus.find(own);
      if (mine != corpus.end() && mine->second == theirs->second) return true;
    }
  }
  return false;
}

// A corpus of ids alone, and a folder without a tokenizer, must be trusted.
absl::Status CheckTokenizer(const ModelFolder& folder,
                            const FolderInit::Target& target) {
  const absl::StatusOr<TokenizerFiles> files = ReadTokenizerFiles(folder.path);
  if (absl::IsNotFound(files.status())) {
    if (target.rank == 0) {
      DELINK_LOG(kWarning) << folder.path
                           << ": has no tokenizer; the token ids of "
                           << target.corpus
                           << " are assumed to be those of its model";
    }
    return absl::OkStatus();
  }
  DELINK_RETURN_IF_ERROR(files.status());
  DELINK_ASSIGN_OR_RETURN(const TokenizerFiles corpus,
                          MainFile(target.tokenizer, target.corpus));
  if (SameIds(corpus, *files)) return absl::OkStatus();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          LoadTokenizer(target.tokenizer, target.corpus));
  if (std::string_view(tokenizer->kind()) == "ids") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      target.corpus, ": was built with another tokenizer than ", folder.path,
      ", so its token ids do not match the weights; build it with --tokenizer ",
      folder.path));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FolderInit>> FolderInit::Open(
    const std::string& path, const ModelList& models, const Target& target) {
  const std::vector<const huggingface::Family*> families = FamiliesOf(models);
  DELINK_ASSIGN_OR_RETURN(ModelFolder folder,
                          huggingface::OpenModelFolder(path, families));
  std::unique_ptr<FolderInit> init(new FolderInit(std::move(folder)));
  DELINK_RETURN_IF_ERROR(CheckModel(init->folder_, *target.recipe));
  DELINK_ASSIGN_OR_RETURN(
      FolderValues values,
      FolderValues::Open(init->folder_, *target.registry, target.ranks));
  init->values_ = std::make_unique<FolderValues>(std::move(values));
  DELINK_RETURN_IF_ERROR(CheckTokenizer(init->folder_, target));
  return init;
}

absl::Status FolderInit::Load(Communicator& comm, ParamStore& store) {
  // A store of one rank belongs to that rank, even if other ranks read with it.
  SelfCommunicator alone;
  Communicator& group = store.ranks() == 1 ? alone : comm;
  DELINK_CHECK(group.size() == store.ranks() && group.rank() == store.rank());
  StoreValues ends(store);
  std::vector<Move> moves;
  for (const LogicalTensor& tensor : store.layout().tensors()) {
    if (!tensor.link.empty()) continue;
    Move& move = moves.emplace_back();
    move.from = &tensor;
    move.to = {&tensor};
  }
  return AgreeOnStatus(comm, MoveValues(*values_, ends, moves, group));
}

}  // namespace delink
