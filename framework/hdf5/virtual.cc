#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/hdf5/hdf5.h"
#include "framework/hdf5/library.h"
#include "framework/hdf5/rectangles.h"

namespace delink::hdf5 {
namespace {

// The library reads "%b" in the names of sources as a pattern.
std::string EscapePercent(const std::string& name) {
  std::string escaped;
  for (const char c : name) {
    escaped += c;
    if (c == '%') escaped += '%';
  }
  return escaped;
}

absl::Status AddPiece(hid_t list, hid_t space, const Shape& shape,
                      const Piece& piece, const std::string& where) {
  const Handle source = SimpleSpace({piece.offset + piece.end - piece.begin});
  int64_t offset = piece.offset;
  for (const Rectangle& r : FlatRectangles(shape, piece.begin, piece.end)) {
    const Rectangle from = {.start = {offset}, .count = {r.elements}};
    if (!Select(space, r) || !Select(source.get(), from) ||
        H5Pset_virtual(list, space, EscapePercent(piece.file).c_str(),
                       EscapePercent(piece.dataset).c_str(),
                       source.get()) < 0) {
      return LibraryError(where, "map a piece of the virtual dataset");
    }
    offset += r.elements;
  }
  return absl::OkStatus();
}

std::string UnescapePercent(const std::string& name) {
  std::string plain;
  for (size_t i = 0; i < name.size(); ++i) {
    plain += name[i];
    if (name[i] == '%' && i + 1 < name.size() && name[i + 1] == '%') ++i;
  }
  return plain;
}

// A name of mapping `i`, from one of the library's calls.
template <typename Call>
std::string MappingName(Call call, hid_t list, size_t i) {
  std::string name(static_cast<size_t>(call(list, i, nullptr, 0)) + 1, '\0');
  call(list, i, name.data(), name.size());
  name.pop_back();
  return UnescapePercent(name);
}

struct Range {
  int64_t begin = 0, end = 0;
};

// A selection as flat elements, if they follow each other.
std::optional<Range> FlatRange(hid_t space) {
  const int rank = H5Sget_simple_extent_ndims(space);
  hsize_t sizes[H5S_MAX_RANK], first[H5S_MAX_RANK], last[H5S_MAX_RANK];
  if (rank < 1 || H5Sget_simple_extent_dims(space, sizes, nullptr) < 0 ||
      H5Sget_select_bounds(space, first, last) < 0) {
    return std::nullopt;
  }
  Range range;
  for (int i = 0; i < rank; ++i) {
    const auto size = static_cast<int64_t>(sizes[i]);
    range.begin = range.begin * size + static_cast<int64_t>(first[i]);
    range.end = range.end * size + static_cast<int64_t>(last[i]);
  }
  ++range.end;
  // Nothing is left out between the two.
  if (H5Sget_select_npoints(space) != range.end - range.begin) {
    return std::nullopt;
  }
  return range;
}

// Opens a dataset if no link on its path leads elsewhere, such as to another
// file; else negative.
hid_t OpenWithoutLinks(const Handle& file, const std::string& path) {
  if (!file.ok()) return -1;
  size_t end = 0;
  while (end != std::string::npos) {
    end = path.find('/', path.find_first_not_of('/', end));
    H5L_info_t info;
    if (H5Lget_info(file.get(), path.substr(0, end).c_str(), &info,
                    H5P_DEFAULT) < 0 ||
        info.type != H5L_TYPE_HARD) {
      return -1;
    }
  }
  return H5Dopen2(file.get(), path.c_str(), H5P_DEFAULT);
}

// The sources of one virtual dataset, each opened once.
class Sources {
 public:
  explicit Sources(hid_t dataset) {
    const Handle file(H5Iget_file_id(dataset), H5Fclose);
    std::string path(static_cast<size_t>(H5Fget_name(file.get(), nullptr, 0)),
                     '\0');
    H5Fget_name(file.get(), path.data(), path.size() + 1);
    path_ = path;
    H5Fget_intent(file.get(), &intent_);
  }

  // The elements that a source has room for.
  absl::StatusOr<int64_t> Elements(const std::string& file,
                                   const std::string& dataset) {
    const auto known = elements_.find({file, dataset});
    if (known != elements_.end()) return known->second;
    DELINK_ASSIGN_OR_RETURN(const int64_t count, Count(file, dataset));
    elements_[{file, dataset}] = count;
    return count;
  }

 private:
  absl::StatusOr<int64_t> Count(const std::string& file,
                                const std::string& dataset) const {
    const Handle access = AccessList();
    const std::string path = JoinPath(ParentPath(path_), file);
    const absl::Status regular = CheckRegularFile(path);
    if (!regular.ok() && !absl::IsNotFound(regular)) return regular;
    const Handle open(H5Fopen(path.c_str(), intent_, access.get()), H5Fclose);
    const Handle source(OpenWithoutLinks(open, dataset), H5Dclose);
    if (!source.ok()) {
      return absl::DataLossError(
          "which is missing or cannot be opened; restore it");
    }
    const Handle list(H5Dget_create_plist(source.get()), H5Pclose);
    DELINK_RETURN_IF_ERROR(CheckContiguous(list.get(), Where(path, dataset)));
    const Handle space(H5Dget_space(source.get()), H5Sclose);
    const Handle type(H5Dget_type(source.get()), H5Tclose);
    const auto there = static_cast<int64_t>(H5Dget_storage_size(source.get()) /
                                            H5Tget_size(type.get()));
    return std::min<int64_t>(H5Sget_simple_extent_npoints(space.get()), there);
  }

  std::string path_;
  unsigned intent_ = 0;
  std::map<std::pair<std::string, std::string>, int64_t> elements_;
};

// Whether `name` is PARTS-00003.h5, whatever the number.
bool IsPart(std::string_view name, const std::string& parts) {
  constexpr std::string_view kSuffix = ".h5";
  if (parts.empty() || !name.starts_with(parts + "-") ||
      !name.ends_with(kSuffix)) {
    return false;
  }
  name.remove_prefix(parts.size() + 1);
  name.remove_suffix(kSuffix.size());
  return !name.empty() &&
         name.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

absl::Status File::CreateVirtual(const std::string& path, ElementType type,
                                 const Shape& shape,
                                 std::vector<Piece> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t covered = 0;
  for (const Piece& piece : pieces) {
    DELINK_CHECK_EQ(piece.begin, covered) << path;
    DELINK_CHECK_GE(piece.end, piece.begin) << path;
    covered = piece.end;
  }
  DELINK_CHECK_EQ(covered, ElementCount(shape)) << path;

  const std::string where = Where(path_, path);
  const Session session;
  const Handle space = SimpleSpace(shape);
  const Handle parents = ParentsList();
  const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(list.get(), false);
  for (const Piece& piece : pieces) {
    DELINK_RETURN_IF_ERROR(
        AddPiece(list.get(), space.get(), shape, piece, where));
  }
  const Handle dataset(
      H5Dcreate2(id_, path.c_str(), StoredType(type), space.get(),
                 parents.get(), list.get(), H5P_DEFAULT),
      H5Dclose);
  if (!dataset.ok()) return LibraryError(where, "create the virtual dataset");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Piece>> Dataset::Pieces() const {
  const Session session;
  const Handle list(H5Dget_create_plist(id_), H5Pclose);
  size_t count = 0;
  if (H5Pget_virtual_count(list.get(), &count) < 0) {
    return LibraryError(where_, "read what the virtual dataset maps");
  }
  std::vector<Piece> pieces;
  for (size_t i = 0; i < count; ++i) {
    const Handle target(H5Pget_virtual_vspace(list.get(), i), H5Sclose);
    const Handle source(H5Pget_virtual_srcspace(list.get(), i), H5Sclose);
    const std::optional<Range> to = FlatRange(target.get());
    const std::optional<Range> from = FlatRange(source.get());
    if (!to || !from || to->end - to->begin != from->end - from->begin) {
      return absl::InvalidArgumentError(absl::StrCat(
          where_,
          ": does not map ranges of elements; another program wrote it"));
    }
    pieces.push_back(
        {.begin = to->begin,
         .end = to->end,
         .file = MappingName(H5Pget_virtual_filename, list.get(), i),
         .dataset = MappingName(H5Pget_virtual_dsetname, list.get(), i),
         .offset = from->begin});
  }
  std::ranges::sort(pieces, {}, &Piece::begin);
  int64_t end = 0;
  for (const Piece& piece : pieces) {
    if (piece.begin != end) break;
    end = piece.end;
  }
  if (end == size_) return pieces;
  return absl::InvalidArgumentError(
      absl::StrCat(where_,
                   ": has elements that lie in no file, or in several; another "
                   "program wrote it"));
}

absl::Status CheckSourceNames(hid_t list, const std::string& where,
                              const std::string& parts) {
  size_t count = 0;
  if (H5Pget_virtual_count(list, &count) < 0) {
    return LibraryError(where, "read what the virtual dataset maps");
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string file = MappingName(H5Pget_virtual_filename, list, i);
    if (IsPart(file, parts)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": takes its data from '", file, "', ",
        parts.empty() ? "instead of holding it"
                      : absl::StrCat("not from a file ", parts, "-NNNNN.h5"),
        "; another program wrote it"));
  }
  return absl::OkStatus();
}

absl::Status CheckSources(hid_t dataset, hid_t list, const std::string& where) {
  size_t count = 0;
  if (H5Pget_virtual_count(list, &count) < 0) {
    return LibraryError(where, "read what the virtual dataset maps");
  }
  Sources sources(dataset);
  hssize_t mapped = 0;
  for (size_t i = 0; i < count; ++i) {
    const Handle target(H5Pget_virtual_vspace(list, i), H5Sclose);
    mapped += H5Sget_select_npoints(target.get());
    const std::string file = MappingName(H5Pget_virtual_filename, list, i);
    const std::string name = MappingName(H5Pget_virtual_dsetname, list, i);
    const absl::StatusOr<int64_t> elements = sources.Elements(file, name);
    if (!elements.ok()) {
      return absl::Status(
          elements.status().code(),
          absl::StrCat(where, ": its data is in ", file, ": ", name, ", ",
                       elements.status().message()));
    }
    const Handle space(H5Pget_virtual_srcspace(list, i), H5Sclose);
    hsize_t first[H5S_MAX_RANK], last[H5S_MAX_RANK];
    if (H5Sget_simple_extent_ndims(space.get()) != 1 ||
        H5Sget_select_bounds(space.get(), first, last) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": maps ", file, ": ", name,
                       " as Delink does not; another program wrote it"));
    }
    if (static_cast<int64_t>(last[0]) >= *elements) {
      return absl::DataLossError(
          absl::StrCat(where, ": needs element ", last[0], " of ", file, ": ",
                       name, ", which has ", *elements, "; restore it"));
    }
  }
  const Handle space(H5Dget_space(dataset), H5Sclose);
  const hssize_t wanted = H5Sget_simple_extent_npoints(space.get());
  if (mapped < wanted) {
    return absl::DataLossError(
        absl::StrCat(where, ": only ", mapped, " of its ", wanted,
                     " elements are in any file; another program wrote it"));
  }
  return absl::OkStatus();
}

}  // namespace delink::hdf5
