#include "apps/lockstep-bench/blas_libraries.hpp"

#include <algorithm>

#include <dlfcn.h>

namespace lockstep::bench {
namespace {

struct Candidate {
  const char* name;
  const char* file;
  const char* set_threads;  ///< a function that takes their number
};

constexpr Candidate candidates[] = {{"openblas", "libopenblas.so.0", "openblas_set_num_threads"},
                                    {"blis", "libblis.so.4", "bli_thread_set_num_threads"},
                                    {"mkl", "libmkl_rt.so.2", "MKL_Set_Num_Threads"},
                                    {"mkl", "libmkl_rt.so.3", "MKL_Set_Num_Threads"}};

// Of cblas.h.
constexpr int row_major = 101, not_transposed = 111, transposed = 112;

}  // namespace

void BlasLibrary::multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                           ops::Kernels::Transpose transpose_a, const float* b, ops::Kernels::Transpose transpose_b,
                           float keep, float* c) const {
  const auto flip_a = transpose_a == ops::Kernels::Transpose::yes, flip_b = transpose_b == ops::Kernels::Transpose::yes;
  const auto narrow = [](std::int64_t extent) { return static_cast<int>(extent); };
  sgemm_(row_major, flip_a ? transposed : not_transposed, flip_b ? transposed : not_transposed, narrow(m), narrow(n),
         narrow(k), 1, a, narrow(flip_a ? m : k), b, narrow(flip_b ? k : n), keep, c, narrow(n));
}

std::vector<BlasLibrary> blas_libraries() {
  std::vector<BlasLibrary> found;
  for (const Candidate& candidate : candidates) {
    // A name has one library, of whichever version comes first.
    if (std::ranges::any_of(found, [&](const BlasLibrary& each) { return each.name() == candidate.name; })) continue;
    void* const library = ::dlopen(candidate.file, RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    const auto sgemm = reinterpret_cast<BlasLibrary::Sgemm*>(::dlsym(library, "cblas_sgemm"));
    if (!sgemm) continue;
    if (void* const set_threads = ::dlsym(library, candidate.set_threads)) {
      // BLIS takes an integer of 64 bits, the others one of 32: a register holds either.
      reinterpret_cast<void (*)(std::int64_t)>(set_threads)(1);
    }
    found.push_back({candidate.name, sgemm});
  }
  return found;
}

}  // namespace lockstep::bench
