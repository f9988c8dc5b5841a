// Labelled images from IDX files, the format of MNIST and its kin: a big-endian header, then bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep {

/// Images of one size, a byte a pixel, and a label for each.
struct ImageSet {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  /// Image after image, each row by row.
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;

  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }

  /// Pixels of one image.
  std::int64_t features() const { return rows * columns; }
};

struct ImageData {
  ImageSet train;
  ImageSet test;
};

/// Reads `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
/// `t10k-labels-idx1-ubyte` from `directory`; where one is not there, the same name with `.gz`. Packed (gzip)
/// content is known by its first bytes, not by its name. Whatever is wrong with them, down to a label outside
/// [0, classes), is a ConfigError of one line that names the file and what was expected. Memory grows with
/// what a file holds, not with what it claims.
ImageData load_image_data(const std::filesystem::path& directory, std::int64_t classes);

/// A digest of sizes, pixels and labels: equal on two ranks when they loaded the same data, packed or not.
std::uint64_t digest(const ImageData& data);

}  // namespace lockstep
