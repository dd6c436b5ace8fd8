// HDF5 files that no build of ours writes: well-formed, but made to read other
// files or to be walked for ever. Objects that stand at `path` give way.
#pragma once

#include <hdf5.h>

#include <functional>
#include <string>

#include "framework/base/check.h"

namespace delink::testing {

// Opens the file for `change`, and closes it.
inline void Craft(const std::string& file,
                  const std::function<void(hid_t)>& change) {
  const hid_t list = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_file_locking(list, true, true);
  const hid_t id = H5Fopen(file.c_str(), H5F_ACC_RDWR, list);
  H5Pclose(list);
  DELINK_CHECK_GE(id, 0) << file;
  change(id);
  DELINK_CHECK_GE(H5Fclose(id), 0) << file;
}

inline void RemoveIfThere(hid_t file, const std::string& path) {
  if (H5Lexists(file, path.c_str(), H5P_DEFAULT) > 0) {
    H5Ldelete(file, path.c_str(), H5P_DEFAULT);
  }
}

// Puts a dataset of the type and shape of the one at `path` in its place, with
// properties that `set` gives it, by its dataspace and its bytes.
inline void Replace(
    hid_t file, const std::string& path,
    const std::function<void(hid_t list, hid_t space, hsize_t bytes)>& set) {
  const hid_t old = H5Dopen2(file, path.c_str(), H5P_DEFAULT);
  if (old < 0) return;
  const hid_t type = H5Dget_type(old);
  const hid_t space = H5Dget_space(old);
  H5Dclose(old);
  const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
  set(list, space,
      static_cast<hsize_t>(H5Sget_simple_extent_npoints(space)) *
          H5Tget_size(type));
  RemoveIfThere(file, path);
  const hid_t made = H5Dcreate2(file, path.c_str(), type, space, H5P_DEFAULT,
                                list, H5P_DEFAULT);
  if (made >= 0) H5Dclose(made);
  H5Pclose(list);
  H5Sclose(space);
  H5Tclose(type);
}

// The bytes of any file as the dataset's data.
inline void StoreIn(hid_t file, const std::string& path,
                    const std::string& other) {
  Replace(file, path, [&](hid_t list, hid_t, hsize_t bytes) {
    H5Pset_external(list, other.c_str(), 0, bytes);
  });
}

// Another dataset, or the same, as what is behind the dataset.
inline void VirtualOver(hid_t file, const std::string& path,
                        const std::string& other, const std::string& dataset) {
  Replace(file, path, [&](hid_t list, hid_t space, hsize_t) {
    H5Pset_virtual(list, space, other.c_str(), dataset.c_str(), space);
  });
}

inline void LinkOutside(hid_t file, const std::string& path,
                        const std::string& other, const std::string& target) {
  RemoveIfThere(file, path);
  H5Lcreate_external(other.c_str(), target.c_str(), file, path.c_str(),
                     H5P_DEFAULT, H5P_DEFAULT);
}

inline void LinkHard(hid_t file, const std::string& target,
                     const std::string& path) {
  H5Lcreate_hard(file, target.c_str(), file, path.c_str(), H5P_DEFAULT,
                 H5P_DEFAULT);
}

inline void NestGroups(hid_t file, const std::string& path, int depth) {
  hid_t at =
      H5Gcreate2(file, path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  for (int i = 0; i < depth && at >= 0; ++i) {
    const hid_t next =
        H5Gcreate2(at, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(at);
    at = next;
  }
  if (at >= 0) H5Gclose(at);
}

}  // namespace delink::testing
