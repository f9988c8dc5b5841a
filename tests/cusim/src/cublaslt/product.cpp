#include "cublaslt/product.hpp"

#include <initializer_list>
#include <limits>

namespace cusim::cublaslt {
namespace {

constexpr std::uint64_t largest_extent = std::numeric_limits<std::int32_t>::max();

bool is_order(std::int32_t order) {
  return order >= CUBLASLT_ORDER_COL && order <= CUBLASLT_ORDER_COL32_2R_4R4;
}

cublasStatus_t read_matrix(const Layout& layout, Matrix& matrix) {
  if (layout.rows == 0 || layout.columns == 0 || layout.batch < 1 || !is_order(layout.order))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (layout.order > CUBLASLT_ORDER_ROW || layout.rows > largest_extent || layout.columns > largest_extent)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool row_major = layout.order == CUBLASLT_ORDER_ROW;
  const std::uint64_t run = row_major ? layout.columns : layout.rows;
  if (layout.leading < 0 || static_cast<std::uint64_t>(layout.leading) < run) return CUBLAS_STATUS_INVALID_VALUE;
  if (layout.batch_stride < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  matrix = {.type = static_cast<cudaDataType>(layout.type),
            .row_major = row_major,
            .rows = layout.rows,
            .columns = layout.columns,
            .leading = static_cast<std::size_t>(layout.leading),
            .batch_stride = static_cast<std::size_t>(layout.batch_stride)};
  return CUBLAS_STATUS_SUCCESS;
}

bool is_operation(std::int32_t operation) {
  return operation >= CUBLAS_OP_N && operation <= CUBLAS_OP_C;
}

/// Of a real matrix, the conjugate transpose is the transpose.
bool transposes(std::int32_t operation) {
  return operation != CUBLAS_OP_N;
}

/// cuBLAS's documentation, cublasLtMatmul, the table of types for matrices in regular order.
bool types_are_supported(const Product& product, std::int32_t scale) {
  const cudaDataType in = product.a.type;
  const cudaDataType out = product.d.type;
  if (product.b.type != in || product.c.type != out) return false;
  switch (product.compute) {
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC: return scale == CUDA_R_64F && in == CUDA_R_64F && out == CUDA_R_64F;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      return scale == CUDA_R_32F && ((in == CUDA_R_32F && out == CUDA_R_32F) ||
                                     ((in == CUDA_R_16BF || in == CUDA_R_16F) && (out == in || out == CUDA_R_32F)));
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32: return scale == CUDA_R_32F && in == CUDA_R_32F && out == CUDA_R_32F;
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC: return false;
  }
  return false;
}

cublasStatus_t read_epilogue(const Description& description, Product& product) {
  const std::uint32_t epilogue = description.epilogue;
  switch (epilogue & ~std::uint32_t{CUBLASLT_EPILOGUE_BIAS}) {
    case 0: product.activation = Activation::none; break;
    case CUBLASLT_EPILOGUE_DEFAULT: product.activation = Activation::none; break;
    case CUBLASLT_EPILOGUE_RELU: product.activation = Activation::relu; break;
    case CUBLASLT_EPILOGUE_GELU: product.activation = Activation::gelu; break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool bias = (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  if (epilogue == 0 || (bias && (epilogue & CUBLASLT_EPILOGUE_DEFAULT))) return CUBLAS_STATUS_INVALID_VALUE;
  product.adds_bias = bias && description.bias;
  product.bias_batch_stride = static_cast<std::size_t>(description.bias_batch_stride);
  if (!bias && product.activation == Activation::none) return CUBLAS_STATUS_SUCCESS;
  const bool own_type = description.bias_type != -1 && description.bias_type != product.d.type;
  if (product.d.row_major || (bias && (own_type || description.bias_batch_stride < 0)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // The documentation does not promise epilogues in f64. With half of the seeds there are none.
  const bool f64_has_epilogues = mix(settings().seed, 64) % 2 == 0;
  return in_f64(product) && !f64_has_epilogues ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

bool same_extents(const Matrix& left, const Matrix& right) {
  return left.rows == right.rows && left.columns == right.columns && left.row_major == right.row_major;
}

}  // namespace

std::size_t bytes_of(cudaDataType type) {
  if (type == CUDA_R_64F) return 8;
  if (type == CUDA_R_32F) return 4;
  return type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 1;
}

bool in_f64(const Product& product) {
  return product.compute == CUBLAS_COMPUTE_64F || product.compute == CUBLAS_COMPUTE_64F_PEDANTIC;
}

cublasStatus_t read_product(const Description& description, const Layout& a, const Layout& b, const Layout& c,
                            const Layout& d, Product& product) {
  product = {};
  const auto read = [](const Layout& layout, Matrix& matrix) { return read_matrix(layout, matrix); };
  for (const auto status : {read(a, product.a), read(b, product.b), read(c, product.c), read(d, product.d)})
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (!is_operation(description.transpose_a) || !is_operation(description.transpose_b))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (description.transpose_c != CUBLAS_OP_N || description.pointer_mode != CUBLASLT_POINTER_MODE_HOST)
    return CUBLAS_STATUS_NOT_SUPPORTED;

  product.transpose_a = transposes(description.transpose_a);
  product.transpose_b = transposes(description.transpose_b);
  product.compute = static_cast<cublasComputeType_t>(description.compute);
  product.m = product.transpose_a ? product.a.columns : product.a.rows;
  product.k = product.transpose_a ? product.a.rows : product.a.columns;
  product.n = product.transpose_b ? product.b.rows : product.b.columns;
  product.batch = static_cast<std::size_t>(d.batch);
  const std::size_t k_of_b = product.transpose_b ? product.b.columns : product.b.rows;
  if (k_of_b != product.k || product.d.rows != product.m || product.d.columns != product.n ||
      !same_extents(product.c, product.d))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (a.batch != d.batch || b.batch != d.batch || c.batch != d.batch) return CUBLAS_STATUS_INVALID_VALUE;
  if (!types_are_supported(product, description.scale)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return read_epilogue(description, product);
}

std::uint64_t key_of(const Product& product) {
  std::uint64_t key = 0;
  const auto add = [&key](std::initializer_list<std::uint64_t> numbers) {
    for (const std::uint64_t number : numbers) key = mix(key, number);
  };
  add({product.m, product.n, product.k, product.batch, product.transpose_a, product.transpose_b,
       static_cast<std::uint64_t>(product.compute), product.adds_bias, static_cast<std::uint64_t>(product.activation),
       product.adds_bias ? product.bias_batch_stride : 0});
  for (const Matrix* const matrix : {&product.a, &product.b, &product.c, &product.d})
    add({static_cast<std::uint64_t>(matrix->type), matrix->row_major, matrix->leading, matrix->batch_stride});
  return key;
}

}  // namespace cusim::cublaslt
