// The memory that a GPU's convolutions need for patches: what their kernel covers at each of its positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <lockstep/core/base/dtype.hpp>

#include "core/base/element_type.hpp"
#include "models/ops/image_checks.hpp"

namespace lockstep::ops {

/// A convolution takes as many images at a time as have patches of this many bytes together.
inline constexpr std::size_t patch_bytes = 64 << 20;

struct PatchMemory {
  std::int64_t images;  ///< that a convolution takes at a time
  std::size_t bytes;    ///< of their patches
};

/// For patches of `dtype`. Unless a convolution takes all images at once, it takes a multiple of eight, even if eight
/// exceed `limit`: every run of images then begins at an aligned address in all operands if the first one does.
inline PatchMemory patch_memory(const ConvolutionSizes& sizes, DType dtype, std::size_t limit = patch_bytes) {
  constexpr std::int64_t unit = 8;
  const std::int64_t elements =
      sizes.rows() * sizes.columns() * sizes.kernel_height * sizes.kernel_width * sizes.inputs;
  const std::size_t of_image = static_cast<std::size_t>(elements) * size_of(dtype);
  const auto fitting = static_cast<std::int64_t>(limit / std::max<std::size_t>(of_image, 1));
  const std::int64_t images = std::min(std::max(fitting / unit * unit, unit), sizes.images);
  return {.images = images, .bytes = static_cast<std::size_t>(images) * of_image};
}

}  // namespace lockstep::ops
