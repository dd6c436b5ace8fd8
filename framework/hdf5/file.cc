#include "framework/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/hdf5/hdf5.h"
#include "framework/hdf5/library.h"

namespace delink::hdf5 {
namespace {

// Reserves disk blocks for all that the library is going to write, because on a
// full disk its flush and close fail silently.
absl::Status Reserve(const std::string& path, int64_t bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError(errno, path, "open for writing");
  int error = 0;
  while (::fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0) {
    error = errno;
    if (error != EINTR) break;
    error = 0;
  }
  ::close(descriptor);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return FileError(error, path, "write");
  }
  return absl::OkStatus();  // others: the file system has no such call
}

// Gives the library memory to write to instead of the file. An HDF5 file whose
// closing failed stays half open, and crashes the process later or at its exit.
void Abandon(hid_t id) {
  void* handle = nullptr;
  const int memory = ::memfd_create("abandoned", MFD_CLOEXEC);
  if (memory < 0) return;
  if (H5Fget_vfd_handle(id, H5P_DEFAULT, &handle) >= 0) {
    ::dup2(memory, *static_cast<const int*>(handle));
  }
  ::close(memory);
}

absl::Status FlushToDisk(hid_t id, const std::string& path) {
  hsize_t bytes = 0;
  if (H5Fget_filesize(id, &bytes) < 0) {
    return LibraryError(path, "read its size");
  }
  DELINK_RETURN_IF_ERROR(Reserve(path, static_cast<int64_t>(bytes)));
  if (H5Fflush(id, H5F_SCOPE_LOCAL) < 0) return LibraryError(path, "write");
  return absl::OkStatus();
}

bool ObjectExists(hid_t file, const std::string& path) {
  size_t end = path.find_first_not_of('/');
  if (end == std::string::npos) return true;  // the root
  while (end != std::string::npos) {
    end = path.find('/', end);
    const std::string prefix = path.substr(0, end);
    if (H5Lexists(file, prefix.c_str(), H5P_DEFAULT) <= 0 ||
        H5Oexists_by_name(file, prefix.c_str(), H5P_DEFAULT) <= 0) {
      return false;
    }
    end = path.find_first_not_of('/', end);
  }
  return true;
}

absl::StatusOr<std::string> TargetOf(hid_t group, const std::string& name,
                                     size_t size, const std::string& where) {
  std::string target(size, '\0');
  if (H5Lget_val(group, name.c_str(), target.data(), size, H5P_DEFAULT) < 0) {
    return LibraryError(where, "read the soft link");
  }
  target.resize(target.find('\0'));
  return target;
}

herr_t CollectName(hid_t, const char* name, const H5L_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->push_back(name);
  return 0;
}

ChildKind KindOf(hid_t group, const std::string& name) {
  const Handle object(H5Oopen(group, name.c_str(), H5P_DEFAULT), H5Oclose);
  switch (object.ok() ? H5Iget_type(object.get()) : H5I_BADID) {
    case H5I_GROUP:
      return ChildKind::kGroup;
    case H5I_DATASET:
      return ChildKind::kDataset;
    default:
      return ChildKind::kOther;
  }
}

}  // namespace

absl::StatusOr<File> File::Create(const std::string& path) {
  const Session session;
  const Handle access = AccessList();
  const hid_t id =
      H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get());
  if (id < 0) return LibraryError(path, "create the HDF5 file");
  File file;
  file.path_ = path;
  file.id_ = id;
  file.writable_ = true;
  return file;
}

absl::StatusOr<File> File::Open(const std::string& path, bool writable,
                                const std::string& parts) {
  DELINK_RETURN_IF_ERROR(CheckRegularFile(path));
  File file;
  file.path_ = path;
  file.parts_ = parts;
  absl::Status tree;
  {
    const Session session;
    const Handle access = AccessList();
    file.id_ = H5Fopen(path.c_str(), writable ? H5F_ACC_RDWR : H5F_ACC_RDONLY,
                       access.get());
    if (file.id_ < 0) return LibraryError(path, "open as an HDF5 file");
    file.writable_ = writable;
    tree = CheckTree(file.id_, path);
  }
  DELINK_RETURN_IF_ERROR(tree);
  return file;
}

absl::StatusOr<File> File::OpenReadOnly(const std::string& path,
                                        const std::string& parts) {
  return Open(path, /*writable=*/false, parts);
}

absl::StatusOr<File> File::OpenReadWrite(const std::string& path,
                                         const std::string& parts) {
  return Open(path, /*writable=*/true, parts);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      parts_(std::move(other.parts_)),
      id_(std::exchange(other.id_, -1)),
      writable_(other.writable_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(parts_, other.parts_);
  std::swap(id_, other.id_);
  std::swap(writable_, other.writable_);
  return *this;
}

File::~File() {
  if (id_ < 0) return;
  const Session session;
  if (writable_ && !FlushToDisk(id_, path_).ok()) Abandon(id_);
  H5Fclose(id_);
}

absl::Status File::Close() {
  DELINK_CHECK_GE(id_, 0) << path_ << " is closed";
  {
    const Session session;
    absl::Status status;
    if (writable_) {
      DELINK_CHECK_EQ(H5Fget_obj_count(id_, H5F_OBJ_ALL | H5F_OBJ_LOCAL), 1)
          << path_ << ": close its datasets first";
      status = FlushToDisk(id_, path_);
      if (!status.ok()) Abandon(id_);
    }
    if (H5Fclose(std::exchange(id_, -1)) < 0 && status.ok()) {
      status = LibraryError(path_, "close");
    }
    DELINK_RETURN_IF_ERROR(status);
  }
  return writable_ ? SyncFile(path_) : absl::OkStatus();
}

absl::Status File::CreateGroup(const std::string& path) {
  const Session session;
  if (ObjectExists(id_, path)) return absl::OkStatus();
  const Handle parents = ParentsList();
  const Handle group(
      H5Gcreate2(id_, path.c_str(), parents.get(), H5P_DEFAULT, H5P_DEFAULT),
      H5Gclose);
  if (!group.ok()) return LibraryError(Where(path_, path), "create the group");
  return absl::OkStatus();
}

absl::Status File::CreateSoftLink(const std::string& target,
                                  const std::string& path) {
  const Session session;
  const Handle parents = ParentsList();
  if (H5Lcreate_soft(target.c_str(), id_, path.c_str(), parents.get(),
                     H5P_DEFAULT) < 0) {
    return LibraryError(Where(path_, path), "create the soft link");
  }
  return absl::OkStatus();
}

absl::Status File::Remove(const std::string& path) {
  const Session session;
  if (H5Ldelete(id_, path.c_str(), H5P_DEFAULT) < 0) {
    return LibraryError(Where(path_, path), "remove");
  }
  return absl::OkStatus();
}

bool File::Exists(const std::string& path) const {
  const Session session;
  return ObjectExists(id_, path);
}

absl::StatusOr<std::optional<std::string>> File::SoftLinkTarget(
    const std::string& path) const {
  const Session session;
  const std::string where = Where(path_, path);
  H5L_info_t info;
  if (H5Lget_info(id_, path.c_str(), &info, H5P_DEFAULT) < 0) {
    return LibraryError(where, "find the link");
  }
  if (info.type != H5L_TYPE_SOFT) return std::nullopt;
  DELINK_ASSIGN_OR_RETURN(std::string target,
                          TargetOf(id_, path, info.u.val_size, where));
  return target;
}

absl::StatusOr<std::vector<Child>> File::List(const std::string& group) const {
  const Session session;
  const std::string where = Where(path_, group);
  const Handle open(H5Gopen2(id_, group.c_str(), H5P_DEFAULT), H5Gclose);
  if (!open.ok()) return LibraryError(where, "open the group");
  std::vector<std::string> names;
  if (H5Literate(open.get(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr,
                 CollectName, &names) < 0) {
    return LibraryError(where, "list the group");
  }
  std::sort(names.begin(), names.end());
  std::vector<Child> children;
  for (std::string& name : names) {
    H5L_info_t info;
    if (H5Lget_info(open.get(), name.c_str(), &info, H5P_DEFAULT) < 0) {
      return LibraryError(where, "list the group");
    }
    Child child;
    if (info.type == H5L_TYPE_SOFT) {
      child.kind = ChildKind::kSoftLink;
      DELINK_ASSIGN_OR_RETURN(
          child.target, TargetOf(open.get(), name, info.u.val_size, where));
    } else if (info.type == H5L_TYPE_HARD) {
      child.kind = KindOf(open.get(), name);
    }
    child.name = std::move(name);
    children.push_back(std::move(child));
  }
  return children;
}

}  // namespace delink::hdf5
