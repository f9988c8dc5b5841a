// Loops over memory in the widest vectors that the processor of this run has, in a library that is built for any.
#pragma once

namespace lockstep {

#if defined(__x86_64__)

template <class Loop>
[[gnu::target("avx2,prfchw"), gnu::flatten]] void run_with_avx2(const Loop& loop) {
  loop();
}

/// Calls `loop()`, compiled for AVX2 if there is that. For element by element arithmetic, which has the same bits in
/// any width; sums of what other cores wrote get up to a third faster. Prefetches for writing are instructions that
/// processors without them skip.
template <class Loop>
void wide_loop(const Loop& loop) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  has_avx2 ? run_with_avx2(loop) : loop();
}

template <class Loop>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::flatten]] void run_with_avx512(const Loop& loop) {
  loop();
}

/// Calls `loop()`, compiled for AVX-512 if there is that. For what this has instructions for and AVX2 has none, such as
/// conversions to 16 bits and back, and minima and maxima of 64 bits.
template <class Loop>
void widest_loop(const Loop& loop) {
  static const bool has_avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  has_avx512 ? run_with_avx512(loop) : wide_loop(loop);
}

#else

template <class Loop>
void wide_loop(const Loop& loop) {
  loop();
}

template <class Loop>
void widest_loop(const Loop& loop) {
  loop();
}

#endif

}  // namespace lockstep
