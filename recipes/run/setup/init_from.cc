#include "recipes/run/setup/init_from.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/sharing/resolve.h"
#include "recipes/models/upcycling.h"
#include "recipes/run/position/saved_run.h"

namespace delink {
namespace {

using Tensors = std::map<std::string, TensorInfo>;

constexpr char kSameModel[] =
    "; --init needs the checkpoint's model: copy [model] from its recipe.toml, "
    "including model.vocab and model.max_seq";

absl::Status CheckTokenizer(const std::string& checkpoint,
                            const InitTarget& target) {
  const std::string file = JoinPath(checkpoint, "tokenizer");
  DELINK_ASSIGN_OR_RETURN(const std::string tokenizer, ReadFile(file));
  if (tokenizer == target.tokenizer) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      target.corpus, ": was built with another tokenizer than ", checkpoint,
      ", so its token ids do not match the weights; build it with --tokenizer ",
      file));
}

absl::Status CheckShapes(const std::string& checkpoint,
                         const std::vector<LogicalTensor>& model,
                         Tensors tensors, const SavedAs& saved_as) {
  for (const LogicalTensor& mine : model) {
    if (saved_as.IsFresh(mine.name)) continue;
    const std::string& name = saved_as.NameOf(mine.name);
    const Shape shape = saved_as.IsRepeated(mine.name)
                            ? Shape(mine.shape.dims().subspan(1))
                            : mine.shape;
    const auto at = tensors.find(name);
    if (at == tensors.end()) {
      const bool block = name.rfind("blocks/", 0) == 0;
      return absl::InvalidArgumentError(
          absl::StrCat(checkpoint, ": has no ", name, ", the model's is ",
                       shape.ToString(), kSameModel,
                       block ? "; if its stage visits fewer blocks, grow the "
                               "checkpoint with delink delink --depth N"
                             : ""));
    }
    const std::string theirs = ShapeText(at->second.shape);
    if (theirs != shape.ToString()) {
      return absl::InvalidArgumentError(
          absl::StrCat(checkpoint, ": ", name, " is ", theirs,
                       ", but the model's is ", shape.ToString(), kSameModel));
    }
    tensors.erase(at);
  }
  if (tensors.empty()) return absl::OkStatus();
  const TensorInfo& more = tensors.begin()->second;
  return absl::InvalidArgumentError(absl::StrCat(
      checkpoint, ": has ", more.name, ", which is ", ShapeText(more.shape),
      ", but the model has none", kSameModel));
}

absl::Status CheckSharing(const std::string& checkpoint,
                          const InitTarget& target, const SavedAs& saved_as) {
  DELINK_ASSIGN_OR_RETURN(
      const SharingMap theirs,
      ReadSharing(checkpoint, *target.registry, target.blocks, saved_as));
  for (const std::string& part : PartsOf(*target.registry, target.blocks)) {
    for (const int block : target.sharing.VisitedOf(target.blocks)) {
      const int leader = target.sharing.Leader(part, block);
      if (theirs.Leader(part, block) == theirs.Leader(part, leader)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          checkpoint, ": blocks ", leader, " and ", block, " each have ", part,
          " of their own, but the first stage shares it between them; sharing "
          "can be removed, not added: give that stage less sharing, such as "
          "\"none\""));
    }
  }
  return absl::OkStatus();
}

// The model may untie a tied head, but not tie one that the checkpoint has
// apart.
absl::Status CheckTies(const std::string& checkpoint,
                       const std::vector<LogicalTensor>& model,
                       const Tensors& tensors) {
  const auto root = [&](const std::string& name) {
    const std::string& link = tensors.at(name).link;
    return link.empty() ? name : link;
  };
  for (const LogicalTensor& mine : model) {
    if (!mine.permanent || root(mine.name) == root(mine.link)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint, ": ", mine.name, " and ", mine.link,
        " have separate weights, but the model ties them", kSameModel));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SavedAs> CheckInit(const std::string& checkpoint,
                                  const InitTarget& target) {
  DELINK_RETURN_IF_ERROR(SavedRun::Read(checkpoint).status());
  DELINK_RETURN_IF_ERROR(CheckTokenizer(checkpoint, target));
  DELINK_ASSIGN_OR_RETURN(const std::vector<TensorInfo> listed,
                          ListTensors(checkpoint));
  Tensors tensors;
  for (const TensorInfo& tensor : listed) tensors[tensor.name] = tensor;
  const std::vector<LogicalTensor> model = LogicalTensors(
      *target.registry, target.blocks, target.sharing,
      LayOutSlabs(*target.registry, target.blocks, target.sharing));
  DELINK_ASSIGN_OR_RETURN(
      SavedAs saved_as,
      UpcyclingOf(checkpoint, listed, *target.model, *target.registry));
  DELINK_RETURN_IF_ERROR(CheckShapes(checkpoint, model, tensors, saved_as));
  DELINK_RETURN_IF_ERROR(CheckSharing(checkpoint, target, saved_as));
  DELINK_RETURN_IF_ERROR(CheckTies(checkpoint, model, tensors));
  return saved_as;
}

}  // namespace delink
