#include "recipes/huggingface/folder_values.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink::huggingface {
namespace {

using safetensors::Entry;
using Tensor = safetensors::Folder::Tensor;
using From = FolderValues::Source::From;

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Compares the folder's tensors with those the model needs.
class Matcher {
 public:
  explicit Matcher(const ModelFolder& folder) : folder_(folder) {}

  // The tensor of a piece. If none fits, returns nothing and notes the problem;
  // an optional one may be missing.
  const Tensor* Take(const Piece& piece, bool optional) {
    const Tensor* const tensor = Find(piece.name);
    if (tensor == nullptr) {
      if (!optional) Missing(piece);
      return nullptr;
    }
    const Entry& entry = *tensor->entry;
    taken_.insert(entry.name);
    if (entry.shape != piece.shape) {
      Note(entry.name,
           absl::StrCat("is ", ShapeText(entry.shape), ", but the model's is ",
                        ShapeText(piece.shape)));
      return nullptr;
    }
    if (!safetensors::HasValues(entry.type)) {
      Note(entry.name,
           absl::StrCat("is ", std::string(safetensors::ToString(entry.type)),
                        "; weights are F32, BF16 or F16"));
      return nullptr;
    }
    return tensor;
  }

  // Notes once what is wrong alike with names of one pattern, or with several
  // pieces of one name.
  void Note(const std::string& name, const std::string& what) {
    const std::string pattern = PatternOf(name);
    const auto [known, is_new] =
        problem_of_.try_emplace({pattern, what}, problems_.size());
    if (is_new) {
      problems_.push_back({absl::StrCat(folder_.path, ": ", name, ": ", what)});
    } else if (pattern != name) {
      Problem& problem = problems_[known->second];
      problem.pattern = pattern;
      ++problem.more;
    }
  }

  absl::Status Finish() {
    for (const auto& [name, unused] : folder_.tensors.tensors()) {
      if (taken_.contains(name) || IsBuffer(name)) continue;
      Note(name, absl::StrCat("the model of config.json has no such tensor"));
    }
    if (problems_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(
        problems_, "\n", [](std::string* out, const Problem& problem) {
          absl::StrAppend(out, problem.line);
          if (problem.more == 0) return;
          absl::StrAppend(out, "; likewise ", problem.more, " more of ",
                          problem.pattern);
        }));
  }

 private:
  struct Problem {
    std::string line, pattern;
    int64_t more = 0;  // names with the same
  };

  // The pattern with "{e}" of the family that matches, or the name.
  std::string PatternOf(const std::string& name) const {
    for (const TensorRule& rule : folder_.family->tensors) {
      for (const std::string& theirs : rule.theirs) {
        if (absl::StrContains(theirs, "{e}") && Matches(theirs, name)) {
          return theirs;
        }
      }
    }
    return name;
  }

  // By its full name, else by that in a model without a head.
  const Tensor* Find(const std::string& name) const {
    const Tensor* const tensor = folder_.tensors.Find(name);
    const std::string& prefix = folder_.family->prefix;
    if (tensor != nullptr || !name.starts_with(prefix)) return tensor;
    return folder_.tensors.Find(std::string_view(name).substr(prefix.size()));
  }

  void Missing(const Piece& piece) {
    const bool head = piece.name == "lm_head.weight";
    Note(piece.name,
         absl::StrCat("is missing; the model needs ", ShapeText(piece.shape),
                      head ? "; if the embedding is also the head, set "
                             "tie_word_embeddings in config.json to true"
                           : ""));
  }

  bool IsBuffer(const std::string& name) const {
    const Family& family = *folder_.family;
    return std::ranges::any_of(family.buffers, [&](const std::string& buffer) {
      return Matches(buffer, name);
    });
  }

  bool Matches(const std::string& pattern, const std::string& name) const {
    return MatchesName(pattern, name) ||
           MatchesName(pattern, folder_.family->prefix + name);
  }

  const ModelFolder& folder_;
  std::set<std::string> taken_;
  std::vector<Problem> problems_;
  std::map<std::pair<std::string, std::string>, size_t>
      problem_of_;  // by pattern, what
};

// Whether two tensors of one shape have the same values.
absl::StatusOr<bool> SameValues(const Tensor& a, const Tensor& b) {
  constexpr int64_t kAtOnce = 1 << 18;
  const int64_t count = a.entry->count();
  std::vector<float> left, right;
  for (int64_t first = 0; first < count; first += kAtOnce) {
    const int64_t some = std::min(kAtOnce, count - first);
    left.resize(static_cast<size_t>(some));
    right.resize(static_cast<size_t>(some));
    DELINK_RETURN_IF_ERROR(a.file->Read(*a.entry, first, some, left.data()));
    DELINK_RETURN_IF_ERROR(b.file->Read(*b.entry, first, some, right.data()));
    if (std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) !=
        0) {
      return false;
    }
  }
  return true;
}

// A stored head that is tied must equal the embedding. `embedding`: null where
// it is missing, which is a problem of its own.
absl::Status CheckTied(const std::vector<Piece>& pieces,
                       const FolderValues::Source* embedding,
                       Matcher& matcher) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Tensor* const head = matcher.Take(pieces[i], /*optional=*/true);
    if (head == nullptr || embedding == nullptr) continue;
    const From& like = embedding->from[i];
    DELINK_ASSIGN_OR_RETURN(const bool same, SameValues(*head, like.tensor));
    if (same) continue;
    matcher.Note(
        pieces[i].name,
        absl::StrCat("is not ", like.piece.name,
                     ", but config.json ties the two; if the head has weights "
                     "of its own, set tie_word_embeddings to false"));
  }
  return absl::OkStatus();
}

// `rect` of a tensor of ours, which is a part of the piece's, packed.
absl::Status ReadPiece(const From& from, const Rect& rect, float* to) {
  const auto& [piece, tensor] = from;
  const Entry& entry = *tensor.entry;
  const Rect& all = piece.rect;
  const int64_t row = rect.row - all.row, column = rect.column - all.column;
  if (piece.transposed) {
    std::vector<float> values(static_cast<size_t>(rect.rows));
    for (int64_t c = 0; c < rect.columns; ++c) {
      DELINK_RETURN_IF_ERROR(
          tensor.file->Read(entry, piece.first + (column + c) * all.rows + row,
                            rect.rows, values.data()));
      for (int64_t r = 0; r < rect.rows; ++r) {
        to[r * rect.columns + c] = values[static_cast<size_t>(r)];
      }
    }
    return absl::OkStatus();
  }
  const int64_t begin = piece.first + row * all.columns + column;
  if (rect.columns == all.columns) {
    return tensor.file->Read(entry, begin, rect.elements(), to);
  }
  for (int64_t r = 0; r < rect.rows; ++r) {
    DELINK_RETURN_IF_ERROR(tensor.file->Read(
        entry, begin + r * all.columns, rect.columns, to + r * rect.columns));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FolderValues> FolderValues::Open(const ModelFolder& folder,
                                                const ParamRegistry& registry,
                                                int ranks) {
  FolderValues values(ranks);
  Matcher matcher(folder);
  for (const ParamDecl& decl : registry.decls) {
    if (decl.spec.router_loads) {
      values.sources_.emplace(decl.name, Source{.shape = decl.spec.shape});
      continue;
    }
    DELINK_ASSIGN_OR_RETURN(std::vector<Piece> pieces,
                            PiecesOf(*folder.family, decl));
    if (decl.link >= 0) {
      const auto target = values.sources_.find(registry.decl(decl.link).name);
      DELINK_RETURN_IF_ERROR(CheckTied(
          pieces, target == values.sources_.end() ? nullptr : &target->second,
          matcher));
      continue;
    }
    Source source{.shape = decl.spec.shape};
    for (Piece& piece : pieces) {
      const Tensor* const tensor = matcher.Take(piece, /*optional=*/false);
      if (tensor == nullptr) continue;
      source.from.push_back({.piece = std::move(piece), .tensor = *tensor});
    }
    // If any is missing, Finish fails and none is read.
    if (source.from.size() == pieces.size()) {
      values.sources_.emplace(decl.name, std::move(source));
    }
  }
  DELINK_RETURN_IF_ERROR(matcher.Finish());
  return values;
}

Descriptor FolderValues::Has(const Field& field,
                             const LogicalTensor& tensor) const {
  DELINK_CHECK(field.kind == Field::Kind::kParameters);
  const Rect whole = WholeOf(tensor.shape);
  Descriptor extents;
  for (int rank = 0; rank < ranks_; ++rank) {
    extents.push_back({.rect = whole, .rank = rank, .pitch = whole.columns});
  }
  return extents;
}

Descriptor FolderValues::Owners(const Field& field,
                                const LogicalTensor& tensor) const {
  Descriptor all = Has(field, tensor);
  all.resize(1);
  return all;
}

absl::Status FolderValues::Read(const Field& field, const LogicalTensor& tensor,
                                const Extent& extent, void* values) {
  DELINK_CHECK(field.kind == Field::Kind::kParameters);
  const auto found = sources_.find(tensor.name);
  DELINK_CHECK(found != sources_.end()) << tensor.name;
  const Source& source = found->second;
  DELINK_CHECK(source.shape == tensor.shape) << tensor.name;
  const Rect& rect = extent.rect;
  // Of loads, which the folder does not have: all are taken to be equal.
  if (source.from.empty()) {
    std::fill_n(static_cast<float*>(values), rect.elements(), 1.0F);
  }
  for (const Source::From& from : source.from) {
    const Rect both = Overlap(rect, from.piece.rect);
    if (both.elements() == 0) continue;
    // Both are packed: a piece has whole rows, or is in one.
    DELINK_RETURN_IF_ERROR(ReadPiece(from, both,
                                     static_cast<float*>(values) +
                                         (both.row - rect.row) * rect.columns +
                                         both.column - rect.column));
  }
  return absl::OkStatus();
}

}  // namespace delink::huggingface
