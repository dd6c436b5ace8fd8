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
  // The first `name` ("libcublasLt.so.13") that one of the folders has; an
  // empty folder stands for wherever the system looks. NotFound says why each
  // place was of no use and ends in `mend`. The library stays open to the end
  // of the process: it may have threads.
  static absl::StatusOr<SharedLibrary> Open(
      const std::string& name, std::span<const std::string> folders,
      const std::string& mend);

  // Sets *function, whose type the caller has from the library's own header.
  // NotFound where the library has no such symbol.
  template <typename Function>
  absl::Status Find(const char* symbol, Function* function) const {
    void* address = nullptr;
    absl::Status status = FindAddress(symbol, &address);
    *function = reinterpret_cast<Function>(address);
    return status;
  }
  // The folder that it was found in, as given.
  const std::string& folder() const { return folder_; }
  // For dlsym, where others look for symbols.
  void* handle() const { return handle_; }

 private:
  SharedLibrary(std::string name, std::string folder, void* handle)
      : name_(std::move(name)), folder_(std::move(folder)), handle_(handle) {}
  absl::Status FindAddress(const char* symbol, void** address) const;

  std::string name_, folder_;
  void* handle_;
};

// Where Delink keeps what can be made again,
// ${XDG_CACHE_HOME:-~/.cache}/delink; empty where there is no home.
std::string CacheFolder();

// Where libraries of CUDA are looked for: under $DELINK_CUDA_ROOT and
// $CUDAToolkit_ROOT, where the system looks, and where tools/bootstrap.sh
// --cuda puts them.
std::vector<std::string> CudaLibraryFolders();

// A library of CUDA 13, looked for there.
absl::StatusOr<SharedLibrary> OpenCudaLibrary(const std::string& name);

// The compiler that cuDNN looks for by its bare name, and beside it what the
// compiler looks for so: libnvrtc-builtins, whose name has its minor version.
// Who needs what is not there will say so.
void OpenNvrtc();

}  // namespace delink::cuda
