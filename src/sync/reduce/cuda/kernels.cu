// One thread per element, in strides of the grid. Compiled without fused operations, like everything else, so the sums
// have the same bits as on the host.
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/device/cuda/elements.hpp"
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "sync/reduce/cuda/launch.hpp"

namespace lockstep::detail::cuda {
namespace {

/// How an element enters a sum, and how a result becomes an element again. 16-bit floats go through float and are
/// rounded to nearest, ties to even, as on the host.
template <class T>
struct Number {
  using Sum = T;
  __device__ static T wide(T x) { return x; }
  __device__ static T rounded(T x) { return x; }
  __device__ static T plus(T a, T b) {
    if constexpr (std::is_integral_v<T>) {  // wraps around
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};

template <>
struct Number<Half> : Number<float> {
  __device__ static float wide(Half x) { return __half2float(__ushort_as_half(x.bits)); }
  __device__ static Half rounded(float x) {
    Half made;
    made.bits = __half_as_ushort(__float2half_rn(x));
    return made;
  }
};

template <>
struct Number<BFloat16> : Number<float> {
  __device__ static float wide(BFloat16 x) { return __bfloat162float(__ushort_as_bfloat16(x.bits)); }
  __device__ static BFloat16 rounded(float x) {
    BFloat16 made;
    made.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    return made;
  }
};

template <class T>
using Sum = typename Number<T>::Sum;

/// The next bit. Words are not indexed, since that would take them to memory.
__device__ bool next_bit(Additions& additions) {
  std::uint64_t* const words = additions.words;
  const bool bit = words[0] & 1;
  words[0] = words[0] >> 1 | words[1] << 63;
  words[1] = words[1] >> 1 | words[2] << 63;
  words[2] = words[2] >> 1 | words[3] << 63;
  words[3] >>= 1;
  return bit;
}

/// The parts come in order. Without `additions`, equal runs join as a binary counter carries, and what is left joins
/// from the right: the tree of fixed_order_sum. There cannot be more parts than 32 levels hold.
template <class T>
__device__ Sum<T> tree(const T* pieces, std::int64_t piece_stride, int parts, Additions additions, std::int64_t i) {
  using N = Number<T>;
  const bool is_given = additions.words[0] != 0;
  Sum<T> run[32];
  int top = 0;
  for (int part = 0; part < parts; ++part) {
    Sum<T> value = N::wide(pieces[part * piece_stride + i]);
    for (int carry = part; is_given ? next_bit(additions) : carry & 1; carry >>= 1) value = N::plus(run[--top], value);
    run[top++] = value;
  }
  Sum<T> sum = run[--top];
  while (top > 0) sum = N::plus(run[--top], sum);
  return sum;
}

template <class T>
__device__ Sum<T> quotient(Sum<T> value, int divisor) {
  return divisor == 1 ? value : static_cast<Sum<T>>(value / static_cast<Sum<T>>(divisor));
}

template <class T>
__global__ void tree_sum_kernel(const T* pieces, std::int64_t piece_stride, int parts, Additions additions, int divisor,
                                T* sum, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride())
    sum[i] = Number<T>::rounded(quotient<T>(tree(pieces, piece_stride, parts, additions, i), divisor));
}

template <class T>
__global__ void add_kernel(T* sum, const T* x, std::int64_t count) {
  using N = Number<T>;
  for (std::int64_t i = first_index(); i < count; i += stride())
    sum[i] = N::rounded(N::plus(N::wide(sum[i]), N::wide(x[i])));
}

template <class T>
__global__ void divide_kernel(T* values, int divisor, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride())
    values[i] = Number<T>::rounded(quotient<T>(Number<T>::wide(values[i]), divisor));
}

}  // namespace

template <class T>
cudaError_t launch_tree_sum(const T* pieces, std::int64_t piece_stride, int parts, const Additions& additions,
                            int divisor, T* sum, std::int64_t count, cudaStream_t stream) {
  return launch(tree_sum_kernel<T>, blocks_for(count, threads), threads, stream, pieces, piece_stride, parts, additions,
                divisor, sum, count);
}

template <class T>
cudaError_t launch_add(T* sum, const T* x, std::int64_t count, cudaStream_t stream) {
  return launch(add_kernel<T>, blocks_for(count, threads), threads, stream, sum, x, count);
}

template <class T>
cudaError_t launch_divide(T* values, int divisor, std::int64_t count, cudaStream_t stream) {
  return launch(divide_kernel<T>, blocks_for(count, threads), threads, stream, values, divisor, count);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                                 \
  template cudaError_t launch_tree_sum<T>(const T*, std::int64_t, int, const Additions&, int, T*, std::int64_t, \
                                          cudaStream_t);                                                        \
  template cudaError_t launch_add<T>(T*, const T*, std::int64_t, cudaStream_t);                                 \
  template cudaError_t launch_divide<T>(T*, int, std::int64_t, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(Half)
LOCKSTEP_INSTANTIATE(BFloat16)
LOCKSTEP_INSTANTIATE(std::int32_t)
LOCKSTEP_INSTANTIATE(std::int64_t)
LOCKSTEP_INSTANTIATE(std::uint8_t)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::detail::cuda
