// Patches of images, as rows of a matrix that a product takes: one thread per element, in strides of the grid. The way
// back gathers: a thread adds up what the patches have for its element, so the order of a sum is fixed and no two
// threads write to one place.
#include "core/device/cuda/elements.hpp"
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/stored.hpp"
#include "models/ops/cuda/image_launch.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;
using namespace lockstep::detail::cuda;

template <class T>
__global__ void im2col_kernel(Patches of, const T* x, T* patches, std::int64_t count) {
  // The positions of the kernel in one row of it are adjacent in an image too.
  const std::int64_t run = of.kernel_width * of.channels;
  for (std::int64_t i = first_index(); i < count; i += stride()) {
    const std::int64_t run_index = i / run;
    const std::int64_t patch = run_index / of.kernel_height, in_kernel = run_index % of.kernel_height;
    const std::int64_t row = patch / of.columns, column = patch % of.columns;
    const std::int64_t image = row / of.rows, from = row % of.rows + in_kernel;
    patches[i] = x[((image * of.height + from) * of.width + column) * of.channels + i % run];
  }
}

template <class T>
__global__ void col2im_kernel(Patches of, const detail::computed_t<T>* d_patches, T* dx, std::int64_t count) {
  const std::int64_t kernel = of.kernel_height * of.kernel_width;
  for (std::int64_t i = first_index(); i < count; i += stride()) {
    const std::int64_t channel = i % of.channels, position = i / of.channels;
    const std::int64_t column = position % of.width, row = position / of.width % of.height;
    const std::int64_t image = position / of.width / of.height;
    detail::computed_t<T> sum = 0;
    for (std::int64_t down = 0; down < of.kernel_height; ++down) {
      const std::int64_t patch_row = row - down;
      if (patch_row < 0 || patch_row >= of.rows) continue;
      for (std::int64_t right = 0; right < of.kernel_width; ++right) {
        const std::int64_t patch_column = column - right;
        if (patch_column < 0 || patch_column >= of.columns) continue;
        const std::int64_t patch = (image * of.rows + patch_row) * of.columns + patch_column;
        sum += d_patches[(patch * kernel + down * of.kernel_width + right) * of.channels + channel];
      }
    }
    store(dx[i], sum);
  }
}

}  // namespace

template <class T>
cudaError_t launch_im2col(const Patches& of, const T* x, T* patches, cudaStream_t stream) {
  const std::int64_t count = of.images * of.rows * of.columns * of.kernel_height * of.kernel_width * of.channels;
  return launch(im2col_kernel<T>, blocks_for(count, threads), threads, stream, of, x, patches, count);
}

template <class T>
cudaError_t launch_col2im(const Patches& of, const detail::computed_t<T>* d_patches, T* dx, cudaStream_t stream) {
  const std::int64_t count = of.images * of.height * of.width * of.channels;
  return launch(col2im_kernel<T>, blocks_for(count, threads), threads, stream, of, d_patches, dx, count);
}

#define LOCKSTEP_INSTANTIATE(T)                                                      \
  template cudaError_t launch_im2col<T>(const Patches&, const T*, T*, cudaStream_t); \
  template cudaError_t launch_col2im<T>(const Patches&, const detail::computed_t<T>*, T*, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(BFloat16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
