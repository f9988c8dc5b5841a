// The most that a core can compute.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::bench {

/// The vector instructions that the kernels may use on this processor.
enum class VectorWidth : std::uint8_t { none, avx2, avx512 };

/// LOCAL. The widest of the processor, unless DNNL_MAX_CPU_ISA forbids it, as it does to oneDNN. `none` on processors
/// that are not x86.
VectorWidth vector_width();

/// "AVX2", "AVX-512", "unknown".
std::string_view name_of(VectorWidth width);

/// LOCAL. Floating-point operations per second of one core in f32, by fused multiplications and additions in registers,
/// which is the most that a product could reach. Computes for about 20 ms. 0 for `none`.
double processor_peak(VectorWidth width);

}  // namespace lockstep::bench
