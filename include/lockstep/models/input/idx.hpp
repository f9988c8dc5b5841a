// Labelled images from IDX files, the format of MNIST and its relatives: a big-endian header, then bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

struct LOCKSTEP_API ImageData {
  /// Images of one size, one byte per channel of a pixel, with a label for each.
  struct Set {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    /// One image after another, each row by row, and each pixel channel by channel.
    std::vector<std::uint8_t> pixels;
    std::vector<std::uint8_t> labels;
    std::int64_t channels = 1;  ///< 1 for grey images, 3 for red, green and blue

    std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }

    /// The number of bytes of one image.
    std::int64_t features() const { return rows * columns * channels; }
  };

  /// Reads `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`
  /// from `directory`. If one is missing, reads the same name with `.gz`. Recognises packed (gzip) content by its first
  /// bytes, not by its name. Any fault, down to a label outside [0, classes), is a one-line ConfigError that names the
  /// file and what was expected. Memory grows with what a file holds, not with what its header claims.
  static ImageData load(const std::filesystem::path& directory, std::int64_t classes);

  Set train;
  Set test;

  /// A digest of sizes, pixels and labels. It is equal on two ranks that loaded the same data, packed or not.
  std::uint64_t digest() const;
};

}  // namespace lockstep
