// Locks on whole files that belong to the open file: threads that each open a
// file hold separate locks. The system releases a lock when its holder dies,
// however it dies.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace delink {

// 0, or errno: EAGAIN or EACCES if another holds the lock, anything else if the
// file system has no locks.
inline int TryLockWhole(int file) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(file, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

inline bool HeldBySomebody(int file) {
  struct flock lock = {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace delink
