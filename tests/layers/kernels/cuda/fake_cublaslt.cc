#include "tests/layers/kernels/cuda/fake_cublaslt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/ref/ref.h"
#include "tests/testing/simt/simt.h"

namespace delink::testing {
namespace {

FakeCublasLt& Fake() { return FakeCublasLt::Instance(); }

// What the opaque structs hold here.
struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t ld;
};
struct Desc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_32F;
  void* aux = nullptr;
  int64_t aux_ld = 0;

  bool HasAux() const { return (epilogue & kAux) != 0; }
  bool HasBias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  static constexpr int kAux = 128;
};
struct Preference {
  uint64_t workspace = 0;
};

template <typename Value, typename Opaque>
cublasStatus_t Make(Opaque** made, const Value& value) {
  static_assert(sizeof(Value) <= sizeof(Opaque));
  *made = new Opaque;
  std::memcpy(static_cast<void*>(*made), &value, sizeof(value));
  ++Fake().live;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename Opaque>
cublasStatus_t Destroy(Opaque* made) {
  delete made;
  --Fake().live;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename Value>
Value& In(void* opaque) {
  return *static_cast<Value*>(opaque);
}

const char* StatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "some failure";
}
size_t Version() { return 130099; }

cublasStatus_t Create(cublasLtHandle_t* handle) {
  static int kHandle = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&kHandle);
  ++Fake().live;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t DestroyHandle(cublasLtHandle_t) {
  --Fake().live;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t DescCreate(cublasLtMatmulDesc_t* desc,
                          cublasComputeType_t compute, cudaDataType_t scale) {
  return Make(desc, Desc{.compute = compute, .scale = scale});
}
cublasStatus_t DescSet(cublasLtMatmulDesc_t opaque,
                       cublasLtMatmulDescAttributes_t attribute,
                       const void* value, size_t size) {
  Desc& desc = In<Desc>(opaque);
  const auto set = [&](auto& member) {
    if (size != sizeof(member)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&member, value, size);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(desc.a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(desc.b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(desc.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(desc.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(desc.bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(desc.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(desc.aux_ld);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t LayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                            uint64_t rows, uint64_t columns, int64_t ld) {
  // Column-major: a column's elements lie side by side.
  if (ld < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  return Make(layout, Layout{type, rows, columns, ld});
}

cublasStatus_t PreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return Make(preference, Preference{});
}
cublasStatus_t PreferenceSet(cublasLtMatmulPreference_t opaque,
                             cublasLtMatmulPreferenceAttributes_t attribute,
                             const void* value, size_t size) {
  const bool wide = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (size != (wide ? sizeof(uint64_t) : sizeof(uint32_t))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  uint32_t number = 0;
  std::memcpy(&number, value, sizeof(number));
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      std::memcpy(&In<Preference>(opaque).workspace, value, size);
      break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      Fake().reduction_schemes = number;
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      Fake().alignments[0] = number;
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      Fake().alignments[1] = number;
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      Fake().alignments[2] = number;
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      Fake().alignments[3] = number;
      break;
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         cublasLtMatmulPreference_t preference, int asked,
                         cublasLtMatmulHeuristicResult_t results[],
                         int* count) {
  ++Fake().proposals_asked;
  *count = std::min(asked, Fake().algorithms);
  for (int i = 0; i < *count; ++i) {
    results[i] = {};
    results[i].algo.data[0] = static_cast<uint64_t>(i);
    results[i].state = CUBLAS_STATUS_SUCCESS;
    results[i].workspaceSize = Fake().want_workspace.contains(i)
                                   ? In<Preference>(preference).workspace + 1
                                   : 0;
  }
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : Fake().refusal;
}

cublasStatus_t CheckAlgorithm(cublasLtHandle_t, cublasLtMatmulDesc_t,
                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t* algorithm,
                              cublasLtMatmulHeuristicResult_t* result) {
  result->workspaceSize = 0;
  return Fake().not_of_this_device.contains(
             static_cast<int>(algorithm->data[0]))
             ? CUBLAS_STATUS_NOT_SUPPORTED
             : CUBLAS_STATUS_SUCCESS;
}

// D = alpha op(A) op(B) + beta C (+ bias, one for each row), column-major.
struct Call {
  Desc desc;
  Layout a_layout, b_layout, d_layout;
  const void *a, *b;
  void* d;
  double beta;

  static int64_t SizeOf(cudaDataType_t type) {
    return type == CUDA_R_16BF ? 2 : 4;
  }
  static double Read(const void* matrix, cudaDataType_t type, int64_t index) {
    const char* const at =
        static_cast<const char*>(matrix) + index * SizeOf(type);
    simt::CheckRead(at, SizeOf(type));
    return type == CUDA_R_16BF
               ? static_cast<double>(*reinterpret_cast<const BFloat16*>(at))
               : static_cast<double>(*reinterpret_cast<const float*>(at));
  }
  static void Write(void* matrix, cudaDataType_t type, int64_t index,
                    double value) {
    char* const at = static_cast<char*>(matrix) + index * SizeOf(type);
    simt::CheckWrite(at, SizeOf(type));
    if (type == CUDA_R_16BF) {
      *reinterpret_cast<BFloat16*>(at) = BFloat16(static_cast<float>(value));
    } else {
      *reinterpret_cast<float*>(at) = static_cast<float>(value);
    }
  }
  static double Element(const void* matrix, const Layout& layout,
                        bool transpose, int64_t row, int64_t column) {
    const int64_t index =
        transpose ? row * layout.ld + column : column * layout.ld + row;
    return Read(matrix, layout.type, index);
  }

  void Run() const {
    const auto rows = static_cast<int64_t>(d_layout.rows);
    const auto columns = static_cast<int64_t>(d_layout.columns);
    const bool ta = desc.a == CUBLAS_OP_T, tb = desc.b == CUBLAS_OP_T;
    const auto depth =
        static_cast<int64_t>(ta ? a_layout.rows : a_layout.columns);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        double sum = 0;
        for (int64_t l = 0; l < depth; ++l) {
          sum += Element(a, a_layout, ta, row, l) *
                 Element(b, b_layout, tb, l, column);
        }
        const int64_t index = column * d_layout.ld + row;
        if (beta != 0) sum += beta * Read(d, d_layout.type, index);
        if (desc.HasBias()) sum += Read(desc.bias, desc.bias_type, row);
        Write(d, d_layout.type, index, Finish(sum, column * desc.aux_ld + row));
      }
    }
    if (desc.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
      SumColumns(columns, depth, tb);
    }
  }

  // What becomes of a sum, whose element of aux is at `index`. GELU is of the
  // sum as it is, not as aux has it.
  double Finish(double sum, int64_t index) const {
    switch (desc.epilogue) {
      case CUBLASLT_EPILOGUE_GELU_AUX:
      case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        Write(desc.aux, d_layout.type, index, sum);
        return ref::Gelu(sum, GeluForm::kTanh);
      case CUBLASLT_EPILOGUE_DGELU:
        return sum * ref::GeluDerivative(Read(desc.aux, d_layout.type, index),
                                         GeluForm::kTanh);
      default:
        return sum;
    }
  }

  // Of each column of D, the sum of that column of op(B).
  void SumColumns(int64_t columns, int64_t depth, bool transpose) const {
    for (int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (int64_t l = 0; l < depth; ++l) {
        sum += Element(b, b_layout, transpose, l, column);
      }
      Write(const_cast<void*>(desc.bias), desc.bias_type, column, sum);
    }
  }

  bool ValidEpilogue() const {
    if (desc.HasAux() && (desc.aux == nullptr || desc.aux_ld % 8 != 0 ||
                          reinterpret_cast<uintptr_t>(desc.aux) % 16 != 0 ||
                          desc.aux_ld < static_cast<int64_t>(d_layout.rows))) {
      return false;
    }
    switch (desc.epilogue) {
      case CUBLASLT_EPILOGUE_DEFAULT:
      case CUBLASLT_EPILOGUE_GELU_AUX:
        return true;
      case CUBLASLT_EPILOGUE_DGELU:
        return beta == 0;
      case CUBLASLT_EPILOGUE_BIAS:
      case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      case CUBLASLT_EPILOGUE_BGRADB:
        return desc.bias != nullptr && desc.bias_type == d_layout.type;
      default:
        return false;
    }
  }

  // Whether the library would take it.
  bool Valid() const {
    const bool ta = desc.a == CUBLAS_OP_T, tb = desc.b == CUBLAS_OP_T;
    const uint64_t rows = ta ? a_layout.columns : a_layout.rows;
    const uint64_t depth = ta ? a_layout.rows : a_layout.columns;
    const uint64_t depth_b = tb ? b_layout.columns : b_layout.rows;
    const uint64_t columns = tb ? b_layout.rows : b_layout.columns;
    return desc.compute == CUBLAS_COMPUTE_32F && desc.scale == CUDA_R_32F &&
           rows == d_layout.rows && columns == d_layout.columns &&
           depth == depth_b && a_layout.type == b_layout.type &&
           ValidEpilogue();
  }
};

cublasStatus_t Matmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                      const void* alpha, const void* a,
                      cublasLtMatrixLayout_t a_layout, const void* b,
                      cublasLtMatrixLayout_t b_layout, const void* beta,
                      const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                      cublasLtMatrixLayout_t d_layout,
                      const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                      size_t workspace_bytes, cudaStream_t stream) {
  const Call call{.desc = In<Desc>(desc),
                  .a_layout = In<Layout>(a_layout),
                  .b_layout = In<Layout>(b_layout),
                  .d_layout = In<Layout>(d_layout),
                  .a = a,
                  .b = b,
                  .d = d,
                  .beta = *static_cast<const float*>(beta)};
  if (c != d || c_layout != d_layout || workspace == nullptr ||
      workspace_bytes == 0 || *static_cast<const float*>(alpha) != 1 ||
      !call.Valid()) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const int id = static_cast<int>(algorithm->data[0]);
  if (Fake().do_not_run.contains(id)) return Fake().refusal;
  Fake().run.push_back(id);
  const auto at = static_cast<size_t>(id);
  const double seconds = at < Fake().seconds.size() ? Fake().seconds[at] : 0;
  simt::Enqueue(stream, "fake cublasLtMatmul", [call, seconds] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    call.Run();
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

FakeCublasLt& FakeCublasLt::Instance() {
  static FakeCublasLt fake;
  return fake;
}

cuda::CublasLt FakeCublasLt::Fresh() {
  Instance() = {};
  return {.status_string = StatusString,
          .version = Version,
          .create = Create,
          .destroy = DestroyHandle,
          .desc_create = DescCreate,
          .desc_destroy = Destroy<cublasLtMatmulDescOpaque_t>,
          .desc_set = DescSet,
          .layout_create = LayoutCreate,
          .layout_destroy = Destroy<cublasLtMatrixLayoutOpaque_t>,
          .preference_create = PreferenceCreate,
          .preference_destroy = Destroy<cublasLtMatmulPreferenceOpaque_t>,
          .preference_set = PreferenceSet,
          .heuristic = Heuristic,
          .check = CheckAlgorithm,
          .matmul = Matmul};
}

}  // namespace delink::testing
