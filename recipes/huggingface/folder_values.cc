#include "recipes/huggingface/folder_values.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

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

  void Note(const std::string& name, const std::string& what) {
    problems_.push_back(absl::StrCat(folder_.path, ": ", name, ": ", what));
  }

  absl::Status Finish() {
    for (const auto& [name, unused] : folder_.tensors.tensors()) {
      if (taken_.contains(name) || IsBuffer(name)) continue;
      Note(name, absl::StrCat("the model of config.json has no such tensor"));
    }
    if (problems_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(problems_, "\n"));
  }

 private:
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
      return MatchesName(buffer, name) ||
             MatchesName(buffer, family.prefix + name);
    });
  }

  const ModelFolder& folder_;
  std::set<std::string> taken_;
  std::vector<std::string> problems_;
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

// `rect` of a tensor of ours, packed, from a piece that has rows
// [first, last) of it; `to` is where its first row goes.
absl::Status ReadPiece(const From& from, const Rect& rect, int64_t columns,
                       int64_t first, int64_t last, float* to) {
  const auto& [piece, tensor] = from;
  const Entry& entry = *tensor.entry;
  const int64_t rows = last - first;
  if (piece.transposed) {
    std::vector<float> column(static_cast<size_t>(rows));
    for (int64_t c = 0; c < rect.columns; ++c) {
      DELINK_RETURN_IF_ERROR(tensor.file->Read(
          entry, (rect.column + c) * piece.rows + first - piece.row, rows,
          column.data()));
      for (int64_t r = 0; r < rows; ++r) {
        to[r * rect.columns + c] = column[static_cast<size_t>(r)];
      }
    }
    return absl::OkStatus();
  }
  const int64_t begin = (first - piece.row) * columns + rect.column;
  if (rect.columns == columns) {
    return tensor.file->Read(entry, begin, rows * columns, to);
  }
  for (int64_t r = 0; r < rows; ++r) {
    DELINK_RETURN_IF_ERROR(tensor.file->Read(
        entry, begin + r * columns, rect.columns, to + r * rect.columns));
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
  const int64_t columns = WholeOf(tensor.shape).columns;
  const Rect& rect = extent.rect;
  for (const Source::From& from : source.from) {
    const int64_t first = std::max(rect.row, from.piece.row);
    const int64_t last =
        std::min(rect.row + rect.rows, from.piece.row + from.piece.rows);
    if (first >= last) continue;
    DELINK_RETURN_IF_ERROR(ReadPiece(
        from, rect, columns, first, last,
        static_cast<float*>(values) + (first - rect.row) * rect.columns));
  }
  return absl::OkStatus();
}

}  // namespace delink::huggingface
