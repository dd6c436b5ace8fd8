// What the sources of this folder share: the mutex, identifiers that close
// themselves, and the library's error stack as a Status. Not for others.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "framework/hdf5/hdf5.h"

namespace delink::hdf5 {

// Every public call opens one first: it holds the library's mutex and silences
// the library's own printing.
class Session {
 public:
  Session();

 private:
  std::lock_guard<std::mutex> lock_;
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

// How files are opened: with locks where the file system has any. Without them
// the sources of virtual datasets, which the library opens its own way, could
// not be opened a second time and would silently read as zeros.
Handle AccessList();

// The properties of a new link: missing groups are created.
Handle ParentsList();

Handle SimpleSpace(const Shape& shape);

struct Rectangle;

// Selects a rectangle of a dataspace; false on failure.
bool Select(hid_t space, const Rectangle& r);

// Whether every source of the virtual dataset `dataset` can be opened and is
// long enough, and together they are all of it: the library reads what is not
// there as zeros.
absl::Status CheckSources(hid_t dataset, const std::string& where);

// The type as stored, and as it lies in memory.
hid_t StoredType(ElementType type);
hid_t MemoryType(ElementType type);

}  // namespace delink::hdf5
