#include "apps/lockstep-bench/processor_peak.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "apps/lockstep-bench/timing.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::bench {

std::string_view name_of(VectorWidth width) {
  switch (width) {
    case VectorWidth::none: return "unknown";
    case VectorWidth::avx2: return "AVX2";
    case VectorWidth::avx512: return "AVX-512";
  }
  return "unknown";
}

#if defined(__x86_64__)

namespace {

// Enough to hide the latency of an instruction: at most 5 cycles, in each of which a core begins two.
constexpr int sums = 12;  // as the loops below are unrolled
constexpr int rounds = 100000;
constexpr double flops = 2;  // a multiplication and an addition

/// Returns a value that depends on all sums, so that they are computed.
__attribute__((target("avx2,fma"))) float fuse_avx2() {
  const __m256 factor = _mm256_set1_ps(0.5F), term = _mm256_set1_ps(1.0F);
  __m256 sum[sums];
  for (__m256& each : sum) each = term;
  for (int round = 0; round < rounds; ++round)
#pragma GCC unroll 12  // so that they stay in registers
    for (__m256& each : sum) each = _mm256_fmadd_ps(each, factor, term);
  for (int i = 1; i < sums; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  return _mm256_cvtss_f32(sum[0]);
}

__attribute__((target("avx512f"))) float fuse_avx512() {
  const __m512 factor = _mm512_set1_ps(0.5F), term = _mm512_set1_ps(1.0F);
  __m512 sum[sums];
  for (__m512& each : sum) each = term;
  for (int round = 0; round < rounds; ++round)
#pragma GCC unroll 12
    for (__m512& each : sum) each = _mm512_fmadd_ps(each, factor, term);
  for (int i = 1; i < sums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return _mm512_cvtss_f32(sum[0]);
}

/// The best of several, in floating-point operations per second.
template <class Fuse>
double best_rate(int lanes, Fuse&& fuse) {
  constexpr int tries = 20;
  double least = 0;
  volatile float kept = 0;
  for (int i = 0; i < tries; ++i) {
    const double time = processor_microseconds(CLOCK_THREAD_CPUTIME_ID, [&] { kept = fuse(); });
    if (i == 0 || time < least) least = time;
  }
  (void)kept;
  return flops * lanes * sums * rounds / least * 1e6;
}

}  // namespace

VectorWidth vector_width() {
  const char* const set = std::getenv("DNNL_MAX_CPU_ISA");
  const std::string_view limit = set ? set : "";
  if (limit == "SSE41" || limit == "AVX") return VectorWidth::none;
  if (__builtin_cpu_supports("avx512f") && !limit.starts_with("AVX2")) return VectorWidth::avx512;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? VectorWidth::avx2 : VectorWidth::none;
}

double processor_peak(VectorWidth width) {
  switch (width) {
    case VectorWidth::none: return 0;
    case VectorWidth::avx2: return best_rate(8, fuse_avx2);
    case VectorWidth::avx512: return best_rate(16, fuse_avx512);
  }
  return 0;
}

#else

VectorWidth vector_width() {
  return VectorWidth::none;
}

double processor_peak(VectorWidth) {
  return 0;
}

#endif

}  // namespace lockstep::bench
