#include "framework/hdf5/library.h"

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/hdf5/rectangles.h"

namespace delink::hdf5 {
namespace {

// The library is process-wide state, so its mutex is too.
Mutex& LibraryMutex() {
  static Mutex mutex;
  return mutex;
}

std::vector<hsize_t> Sizes(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

// Innermost first.
herr_t CollectDescription(unsigned, const H5E_error2_t* error, void* out) {
  auto* messages = static_cast<std::vector<std::string>*>(out);
  if (error->desc != nullptr && error->desc[0] != '\0') {
    messages->push_back(error->desc);
  }
  return 0;
}

// The errno that a message of the library speaks of, or 0.
int SystemError(const std::string& message) {
  constexpr std::string_view kBefore = "errno = ";
  const size_t at = message.find(kBefore);
  if (at == std::string::npos) return 0;
  return std::atoi(message.c_str() + at + kBefore.size());
}

}  // namespace

Session::Session() : lock_(LibraryMutex()) {
  // A file whose descriptor could not be closed stays half open, and the
  // library's cleanup at exit crashes on it. Ours are closed by then. This must
  // precede any other use of the library, even of names like H5F_ACC_RDONLY.
  [[maybe_unused]] static const herr_t nothing_at_exit = H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

absl::Status LibraryError(std::string_view where, std::string_view action) {
  std::vector<std::string> messages;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, CollectDescription, &messages);
  H5Eclear2(H5E_DEFAULT);
  if (messages.empty()) messages.emplace_back("says no more");
  const std::string& cause = messages.front();
  if (const int error = SystemError(cause); error != 0) {
    return FileError(error, where, action);
  }
  std::string text = absl::StrCat(std::string(where), ": cannot ",
                                  std::string(action), ": HDF5: ", cause);
  if (messages.size() > 1) absl::StrAppend(&text, " (", messages.back(), ")");
  return absl::UnknownError(text);
}

std::string Where(const std::string& file, std::string_view path) {
  std::string where = file + ": ";
  if (path.empty() || path.front() != '/') where += '/';
  where += path;
  return where;
}

Handle AccessList() {
  Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(list.get(), /*use=*/true, /*ignore_disabled=*/true);
  return list;
}

Handle ParentsList() {
  Handle list(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(list.get(), 1);
  H5Pset_char_encoding(list.get(), H5T_CSET_UTF8);
  return list;
}

Handle SimpleSpace(const Shape& shape) {
  DELINK_CHECK(!shape.empty() && shape.size() <= H5S_MAX_RANK);
  for (const int64_t dim : shape) DELINK_CHECK_GE(dim, 0);
  return Handle(H5Screate_simple(static_cast<int>(shape.size()),
                                 Sizes(shape).data(), nullptr),
                H5Sclose);
}

bool Select(hid_t space, const Rectangle& r) {
  return H5Sselect_hyperslab(space, H5S_SELECT_SET, Sizes(r.start).data(),
                             nullptr, Sizes(r.count).data(), nullptr) >= 0;
}

hid_t StoredType(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return H5T_IEEE_F32LE;
    case ElementType::kF64:
      return H5T_IEEE_F64LE;
    case ElementType::kI32:
      return H5T_STD_I32LE;
    case ElementType::kI64:
      return H5T_STD_I64LE;
    case ElementType::kU8:
      return H5T_STD_U8LE;
    case ElementType::kU16:
      return H5T_STD_U16LE;
    case ElementType::kU32:
      return H5T_STD_U32LE;
  }
  DELINK_CHECK(false) << "element type " << static_cast<int>(type);
  return -1;
}

hid_t MemoryType(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return H5T_NATIVE_FLOAT;
    case ElementType::kF64:
      return H5T_NATIVE_DOUBLE;
    case ElementType::kI32:
      return H5T_NATIVE_INT32;
    case ElementType::kI64:
      return H5T_NATIVE_INT64;
    case ElementType::kU8:
      return H5T_NATIVE_UINT8;
    case ElementType::kU16:
      return H5T_NATIVE_UINT16;
    case ElementType::kU32:
      return H5T_NATIVE_UINT32;
  }
  DELINK_CHECK(false) << "element type " << static_cast<int>(type);
  return -1;
}

int64_t ByteSize(ElementType type) {
  switch (type) {
    case ElementType::kF64:
    case ElementType::kI64:
      return 8;
    case ElementType::kF32:
    case ElementType::kI32:
    case ElementType::kU32:
      return 4;
    case ElementType::kU16:
      return 2;
    case ElementType::kU8:
      return 1;
  }
  return 0;
}

const char* Name(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return "f32";
    case ElementType::kF64:
      return "f64";
    case ElementType::kI32:
      return "i32";
    case ElementType::kI64:
      return "i64";
    case ElementType::kU8:
      return "u8";
    case ElementType::kU16:
      return "u16";
    case ElementType::kU32:
      return "u32";
  }
  return "?";
}

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

}  // namespace delink::hdf5
