// A shared library opened at run time, so that one build runs on machines with
// and without it.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink::cuda {

class SharedLibrary {
 public:
  // Opens the first `name` ("libcublasLt.so.13") found in the folders; an empty
  // folder stands for the system's search path. NotFound says why each place
  // failed and ends in `mend`. The library stays open to the end of the
  // process, since it may have threads.
  static absl::StatusOr<SharedLibrary> Open(
      const std::string& name, std::span<const std::string> folders,
      const std::string& mend);

  // Sets *function, whose type is that in the library's own header. NotFound:
  // the library has no such symbol.
  template <typename Function>
  absl::Status Find(const char* symbol, Function* function) const {
    void* address = nullptr;
    absl::Status status = FindAddress(symbol, &address);
    *function = reinterpret_cast<Function>(address);
    return status;
  }
  // The folder that it was found in, as given.
  const std::string& folder() const { return folder_; }
  // For code that looks for symbols by itself, with dlsym.
  void* handle() const { return handle_; }

 private:
  SharedLibrary(std::string name, std::string folder, void* handle)
      : name_(std::move(name)), folder_(std::move(folder)), handle_(handle) {}
  absl::Status FindAddress(const char* symbol, void** address) const;

  std::string name_, folder_;
  void* handle_;
};

// The folder for files that can be made again,
// ${XDG_CACHE_HOME:-~/.cache}/delink; empty if there is no home.
std::string CacheFolder();

// The folders in which to look for CUDA's libraries: those under
// $DELINK_CUDA_ROOT and $CUDAToolkit_ROOT, the system's search path, and the
// folder of tools/bootstrap.sh --cuda.
std::vector<std::string> CudaLibraryFolders();

// Opens a library of CUDA 13 from these folders.
absl::StatusOr<SharedLibrary> OpenCudaLibrary(const std::string& name);

// Opens the compiler that cuDNN looks for by its bare name, and
// libnvrtc-builtins, which the compiler looks for likewise and whose name has
// its minor version. Missing ones are no error here; their users report them.
void OpenNvrtc();

}  // namespace delink::cuda
