#include "layers/kernels/cuda/open_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace delink::cuda {
namespace {

constexpr char kMend[] =
    "install CUDA 13, or run tools/bootstrap.sh --cuda, or set "
    "DELINK_CUDA_ROOT to CUDA's folder, or LD_LIBRARY_PATH to the library's "
    "folder";

std::string LastError() {
  const char* const error = dlerror();
  return error != nullptr ? error : "no reason given";
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

absl::StatusOr<SharedLibrary> SharedLibrary::Open(
    const std::string& name, std::span<const std::string> folders,
    const std::string& mend) {
  std::string reasons;
  for (const std::string& folder : folders) {
    const std::string path =
        folder.empty() ? name : absl::StrCat(folder, "/", name);
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return SharedLibrary(name, folder, handle);
    absl::StrAppend(&reasons, "\n  ", LastError());
  }
  return absl::NotFoundError(
      absl::StrCat(name, " cannot be opened:", reasons, "\n", mend));
}

absl::Status SharedLibrary::FindAddress(const char* symbol,
                                        void** address) const {
  *address = dlsym(handle_, symbol);
  if (*address != nullptr) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      name_, folder_.empty() ? "" : " in ", folder_, " has no ", symbol,
      ": it has another version than this program was built for; ", kMend));
}

std::string CacheFolder() {
  const std::string caches = Environment("XDG_CACHE_HOME");
  if (!caches.empty()) return caches + "/delink";
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.cache/delink";
}

std::vector<std::string> CudaLibraryFolders() {
  std::vector<std::string> folders;
  const auto add = [&](const std::string& root) {
    folders.push_back(root + "/lib64");
    folders.push_back(root + "/lib");
  };
  for (const char* const name : {"DELINK_CUDA_ROOT", "CUDAToolkit_ROOT"}) {
    const std::string root = Environment(name);
    if (!root.empty()) add(root);
  }
  folders.push_back("");
  const std::string cache = CacheFolder();
  if (!cache.empty()) add(cache + "/cuda-13");
  return folders;
}

absl::StatusOr<SharedLibrary> OpenCudaLibrary(const std::string& name) {
  return SharedLibrary::Open(name, CudaLibraryFolders(), kMend);
}

void OpenNvrtc() {
  const auto compiler = OpenCudaLibrary("libnvrtc.so.13");
  // If the system has found the compiler, it finds these too.
  if (!compiler.ok() || compiler->folder().empty()) return;
  const std::filesystem::path folder = compiler->folder();
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("libnvrtc-builtins.so.13.")) continue;
    const std::string folders[] = {folder};
    (void)SharedLibrary::Open(name, folders, kMend);
  }
}

}  // namespace delink::cuda
