// Shared by the sources of this folder, and private to it: the mutex,
// identifiers that close themselves, and the library's error stack as a Status.
#pragma once

#include <hdf5.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/hdf5/hdf5.h"

namespace delink::hdf5 {

// Every public call opens one first. It holds the library's mutex and stops the
// library from printing.
class Session {
 public:
  Session();

 private:
  MutexLock<std::mutex> lock_;
};

// An identifier and the function that closes it. Lives within a Session.
class Handle {
 public:
  using CloseFunction = herr_t (*)(hid_t);

  Handle(hid_t id, CloseFunction close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }

  bool ok() const { return id_ >= 0; }
  hid_t get() const { return id_; }
  hid_t Release() { return std::exchange(id_, -1); }

 private:
  hid_t id_;
  CloseFunction close_;
};

// The Status of the call that has just failed: "WHERE: cannot ACTION: ...".
absl::Status LibraryError(std::string_view where, std::string_view action);

// "FILE: /PATH", for messages.
std::string Where(const std::string& file, std::string_view path);

// How files are opened: with locks, if the file system has them. Without locks,
// sources of virtual datasets, which the library opens itself, could not be
// opened a second time and would silently read as zeros.
Handle AccessList();

// The properties of a new link: missing groups are created.
Handle ParentsList();

Handle SimpleSpace(const Shape& shape);

struct Rectangle;

// Selects a rectangle of a dataspace; false on failure.
bool Select(hid_t space, const Rectangle& r);

// Checks that all links of an open file lead to objects in it, that no object
// has two links except soft ones, and that groups are not nested too deep. Then
// a walk over the file ends, and no path leads out of it.
absl::Status CheckTree(hid_t file, const std::string& path);

// Checks that the elements of a dataset, whose properties are `list`, are
// contiguous in its own file.
absl::Status CheckContiguous(hid_t list, const std::string& where);

// Checks that every source of a virtual dataset, whose properties are `list`,
// is in a file PARTS-NNNNN.h5 of the same folder. Opens none.
absl::Status CheckSourceNames(hid_t list, const std::string& where,
                              const std::string& parts);

// Checks that every source of the virtual dataset `dataset`, whose properties
// are `list`, can be opened, is contiguous and long enough, and that the
// sources cover the dataset: the library reads missing data as zeros. Their
// names must have been checked.
absl::Status CheckSources(hid_t dataset, hid_t list, const std::string& where);

// The type as stored, and as it lies in memory.
hid_t StoredType(ElementType type);
hid_t MemoryType(ElementType type);

}  // namespace delink::hdf5
