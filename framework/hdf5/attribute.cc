#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/hdf5/hdf5.h"
#include "framework/hdf5/library.h"

namespace delink::hdf5 {
namespace {

std::string AttributeWhere(const std::string& file, const std::string& path,
                           const std::string& name) {
  return Where(file, path) + ": attribute '" + name + "'";
}

absl::Status SetAttribute(hid_t file, const std::string& where,
                          const std::string& path, const std::string& name,
                          hid_t stored_type, hid_t memory_type,
                          const void* value) {
  const Handle object(H5Oopen(file, path.c_str(), H5P_DEFAULT), H5Oclose);
  if (!object.ok()) return LibraryError(where, "open the object");
  if (H5Aexists(object.get(), name.c_str()) > 0) {
    H5Adelete(object.get(), name.c_str());
  }
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(H5Acreate2(object.get(), name.c_str(), stored_type,
                                    space.get(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
  if (!attribute.ok() || H5Awrite(attribute.get(), memory_type, value) < 0) {
    return LibraryError(where, "write");
  }
  return absl::OkStatus();
}

// Opens an attribute that holds one value of class `wanted`.
absl::StatusOr<Handle> OpenAttribute(hid_t file, const std::string& where,
                                     const std::string& path,
                                     const std::string& name,
                                     H5T_class_t wanted, const char* noun) {
  Handle attribute(H5Aopen_by_name(file, path.c_str(), name.c_str(),
                                   H5P_DEFAULT, H5P_DEFAULT),
                   H5Aclose);
  if (!attribute.ok()) {
    H5Eclear2(H5E_DEFAULT);
    return absl::NotFoundError(
        absl::StrCat(where,
                     ": missing; the file is of another kind or was "
                     "written by another program"));
  }
  const Handle type(H5Aget_type(attribute.get()), H5Tclose);
  const Handle space(H5Aget_space(attribute.get()), H5Sclose);
  if (!type.ok() || H5Tget_class(type.get()) != wanted ||
      H5Sget_simple_extent_npoints(space.get()) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": is not ", noun, "; the file was written by another program"));
  }
  return attribute;
}

// Variable-length UTF-8, which h5py shows as str and which has no size limit.
Handle TextType() {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

absl::StatusOr<std::string> ReadText(const Handle& attribute,
                                     const std::string& where) {
  const Handle type(H5Aget_type(attribute.get()), H5Tclose);
  if (H5Tis_variable_str(type.get()) > 0) {
    char* text = nullptr;
    if (H5Aread(attribute.get(), type.get(), &text) < 0) {
      return LibraryError(where, "read");
    }
    std::string value = text == nullptr ? "" : text;
    H5free_memory(text);
    return value;
  }
  std::string value(H5Tget_size(type.get()) + 1, '\0');
  if (H5Aread(attribute.get(), type.get(), value.data()) < 0) {
    return LibraryError(where, "read");
  }
  value.resize(value.find('\0'));
  return value;
}

herr_t CollectAttribute(hid_t, const char* name, const H5A_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

}  // namespace

absl::Status File::SetInt(const std::string& path, const std::string& name,
                          int64_t value) {
  const Session session;
  return SetAttribute(id_, AttributeWhere(path_, path, name), path, name,
                      H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

absl::Status File::SetDouble(const std::string& path, const std::string& name,
                             double value) {
  const Session session;
  return SetAttribute(id_, AttributeWhere(path_, path, name), path, name,
                      H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

absl::Status File::SetText(const std::string& path, const std::string& name,
                           std::string_view value) {
  DELINK_CHECK(value.find('\0') == std::string_view::npos) << name;
  const Session session;
  const Handle type = TextType();
  const std::string terminated(value);
  const char* pointer = terminated.c_str();
  return SetAttribute(id_, AttributeWhere(path_, path, name), path, name,
                      type.get(), type.get(), &pointer);
}

absl::StatusOr<int64_t> File::GetInt(const std::string& path,
                                     const std::string& name) const {
  const Session session;
  const std::string where = AttributeWhere(path_, path, name);
  DELINK_ASSIGN_OR_RETURN(
      const Handle attribute,
      OpenAttribute(id_, where, path, name, H5T_INTEGER, "an integer"));
  int64_t value = 0;
  if (H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0) {
    return LibraryError(where, "read");
  }
  return value;
}

absl::StatusOr<double> File::GetDouble(const std::string& path,
                                       const std::string& name) const {
  const Session session;
  const std::string where = AttributeWhere(path_, path, name);
  DELINK_ASSIGN_OR_RETURN(
      const Handle attribute,
      OpenAttribute(id_, where, path, name, H5T_FLOAT, "a real number"));
  double value = 0;
  if (H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &value) < 0) {
    return LibraryError(where, "read");
  }
  return value;
}

absl::StatusOr<std::string> File::GetText(const std::string& path,
                                          const std::string& name) const {
  const Session session;
  const std::string where = AttributeWhere(path_, path, name);
  DELINK_ASSIGN_OR_RETURN(
      const Handle attribute,
      OpenAttribute(id_, where, path, name, H5T_STRING, "text"));
  return ReadText(attribute, where);
}

absl::StatusOr<std::map<std::string, AttributeValue>> File::Attributes(
    const std::string& path) const {
  std::vector<std::pair<std::string, H5T_class_t>> found;
  {
    const Session session;
    std::vector<std::string> names;
    if (H5Aiterate_by_name(id_, path.c_str(), H5_INDEX_NAME, H5_ITER_INC,
                           nullptr, CollectAttribute, &names,
                           H5P_DEFAULT) < 0) {
      return LibraryError(Where(path_, path), "list the attributes");
    }
    for (const std::string& name : names) {
      const Handle attribute(H5Aopen_by_name(id_, path.c_str(), name.c_str(),
                                             H5P_DEFAULT, H5P_DEFAULT),
                             H5Aclose);
      const Handle type(H5Aget_type(attribute.get()), H5Tclose);
      found.emplace_back(name, H5Tget_class(type.get()));
    }
  }
  std::map<std::string, AttributeValue> values;
  for (const auto& [name, kind] : found) {
    if (kind == H5T_INTEGER) {
      DELINK_ASSIGN_OR_RETURN(values[name], GetInt(path, name));
    } else if (kind == H5T_FLOAT) {
      DELINK_ASSIGN_OR_RETURN(values[name], GetDouble(path, name));
    } else {
      DELINK_ASSIGN_OR_RETURN(values[name], GetText(path, name));
    }
  }
  return values;
}

}  // namespace delink::hdf5
