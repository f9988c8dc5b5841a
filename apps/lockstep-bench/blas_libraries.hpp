// The BLAS libraries of this machine. lockstep itself does not use them: lockstep-bench compares with them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::bench {

/// What BlasLibrary::name() may be.
inline constexpr const char* blas_names[] = {"openblas", "blis", "mkl"};

class BlasLibrary {
 public:
  std::string_view name() const { return name_; }

  /// c = op(a) · op(b) + keep * c for f32 in row-major order, where op(a) is [m, k]: on one thread.
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, ops::Kernels::Transpose transpose_a,
                const float* b, ops::Kernels::Transpose transpose_b, float keep, float* c) const;

 private:
  friend std::vector<BlasLibrary> blas_libraries();

  // As cblas.h declares it, with integers of 32 bits.
  using Sgemm = void(int order, int transpose_a, int transpose_b, int m, int n, int k, float scale, const float* a,
                     int a_stride, const float* b, int b_stride, float keep, float* c, int c_stride);

  BlasLibrary(std::string_view name, Sgemm* sgemm) : name_{name}, sgemm_{sgemm} {}

  std::string_view name_;
  Sgemm* sgemm_;
};

/// LOCAL. Those of blas_names that the dynamic linker finds, in that order. They stay open until the process ends,
/// because they have threads.
std::vector<BlasLibrary> blas_libraries();

}  // namespace lockstep::bench
