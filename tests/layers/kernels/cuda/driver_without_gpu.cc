// Stands for libcuda.so.1 where there is no driver: cuDNN wants one to be there
// before it makes plans for a device that it has been told of, and gives it
// what it has compiled. There is no device, and nothing can be run.
namespace {
constexpr int kSuccess = 0, kNoDevice = 100;

int Give(void** to) {
  static int something;
  *to = &something;
  return kSuccess;
}
}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the driver's names
extern "C" {

int cuInit(unsigned) { return kNoDevice; }
int cuDeviceGetCount(int* count) {
  *count = 1;  // else nothing is compiled
  return kSuccess;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuGetErrorName(int, const char** text) {
  *text = "no driver";
  return kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "there is no driver on this machine";
  return kSuccess;
}
int cuLibraryLoadData(void** library) { return Give(library); }
int cuLibraryGetKernel(void** kernel) { return Give(kernel); }
int cuLibraryUnload(void*) { return kSuccess; }

// What else it looks for and does not call.
#define DELINK_NO_DEVICE(function) \
  int function() { return kNoDevice; }
DELINK_NO_DEVICE(cuCtxGetCurrent)
DELINK_NO_DEVICE(cuCtxGetLimit)
DELINK_NO_DEVICE(cuCtxPopCurrent)
DELINK_NO_DEVICE(cuCtxPushCurrent)
DELINK_NO_DEVICE(cuDeviceGet)
DELINK_NO_DEVICE(cuKernelGetAttribute)
DELINK_NO_DEVICE(cuKernelSetAttribute)
DELINK_NO_DEVICE(cuLaunchCooperativeKernel)
DELINK_NO_DEVICE(cuLaunchKernel)
DELINK_NO_DEVICE(cuLaunchKernelEx)
DELINK_NO_DEVICE(cuLibraryLoadFromFile)
DELINK_NO_DEVICE(cuLinkAddData)
DELINK_NO_DEVICE(cuLinkComplete)
DELINK_NO_DEVICE(cuLinkCreate)
DELINK_NO_DEVICE(cuLinkDestroy)
DELINK_NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
DELINK_NO_DEVICE(cuStreamGetCtx)
#undef DELINK_NO_DEVICE

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
