// Locks on whole files that belong to the open file: threads that open a file
// each hold their own, and the system gives a lock up when its holder dies,
// however it dies.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace delink {

// 0, or errno: EAGAIN or EACCES where somebody else holds it; anything else
// where the file system has no locks.
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
