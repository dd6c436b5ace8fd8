// Annotations for profilers (Nsight Systems, through NVTX): ranges of a
// thread's time, and names of threads and streams. They do nothing without a
// profiler, or in a build without NVTX's headers.
#pragma once

struct CUstream_st;

namespace delink {

// From construction to destruction; ranges of a thread nest.
class ProfileRange {
 public:
  explicit ProfileRange(const char* name);
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
};

// The calling thread.
void NameThread(const char* name);
void NameCudaStream(CUstream_st* stream, const char* name);

}  // namespace delink
