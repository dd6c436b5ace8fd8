#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/hdf5/library.h"

namespace delink::hdf5 {
namespace {

// Far more than a model nests its modules.
constexpr int kDeepest = 32;

struct Link {
  std::string name;
  H5L_type_t type;
};

herr_t CollectLink(hid_t, const char* name, const H5L_info_t* info, void* out) {
  static_cast<std::vector<Link>*>(out)->push_back({name, info->type});
  return 0;
}

// Sees every object once.
class Walker {
 public:
  explicit Walker(std::string file) : file_(std::move(file)) {}

  absl::Status Group(hid_t parent, const std::string& name,
                     const std::string& path, int depth) {
    if (depth > kDeepest) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_, ": has groups more than ", kDeepest,
                       " deep; another program wrote it"));
    }
    const Handle group(H5Gopen2(parent, name.c_str(), H5P_DEFAULT), H5Gclose);
    std::vector<Link> links;
    if (!group.ok() || H5Literate(group.get(), H5_INDEX_NAME, H5_ITER_NATIVE,
                                  nullptr, CollectLink, &links) < 0) {
      return LibraryError(Where(file_, path), "list the group");
    }
    for (const Link& link : links) {
      DELINK_RETURN_IF_ERROR(
          Follow(group.get(), link, absl::StrCat(path, "/", link.name), depth));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Follow(hid_t group, const Link& link, const std::string& path,
                      int depth) {
    if (link.type == H5L_TYPE_SOFT) return absl::OkStatus();
    if (link.type != H5L_TYPE_HARD) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(file_, path),
                       ": is a link out of the file; another program wrote "
                       "it"));
    }
    H5O_info_t info;
    if (H5Oget_info_by_name2(group, link.name.c_str(), &info, H5O_INFO_BASIC,
                             H5P_DEFAULT) < 0) {
      return LibraryError(Where(file_, path), "find the object");
    }
    if (!seen_.insert(info.addr).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          Where(file_, path),
          ": is an object that has another name too; another program wrote "
          "it"));
    }
    if (info.type != H5O_TYPE_GROUP) return absl::OkStatus();
    return Group(group, link.name, path, depth + 1);
  }

  const std::string file_;
  std::set<haddr_t> seen_;
};

}  // namespace

absl::Status CheckTree(hid_t file, const std::string& path) {
  return Walker(path).Group(file, "/", "", 0);
}

}  // namespace delink::hdf5
