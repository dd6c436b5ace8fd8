// cuDNN's C++ front end, which finds the library through `cudnn_dlhandle`. For
// cudnn/ alone: the header takes seconds to compile, and what it throws is
// caught where it is called.
#pragma once

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>
