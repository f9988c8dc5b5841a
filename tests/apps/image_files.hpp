// A data set of images, as small as a test wants it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "support/job.hpp"

namespace lockstep::test {

inline const std::string train_images = "train-images-idx3-ubyte";
inline const std::string train_labels = "train-labels-idx1-ubyte";
inline const std::string test_images = "t10k-images-idx3-ubyte";
inline const std::string test_labels = "t10k-labels-idx1-ubyte";

inline std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

/// An IDX file of images, each unlike the others.
inline std::string images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  std::string pixels(std::size_t{count} * rows * columns, '\0');
  std::uint32_t state = 1;
  for (char& pixel : pixels) pixel = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return big_endian(0x803) + big_endian(count) + big_endian(rows) + big_endian(columns) + pixels;
}

/// An IDX file of labels from 0 to 9.
inline std::string labels(std::uint32_t count) {
  std::string classes(count, '\0');
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<char>(i % 10);
  return big_endian(0x801) + big_endian(count) + classes;
}

/// A folder of `train` and `test` images of rows x columns, as long as it lives.
class ImageFiles {
 public:
  struct Size {
    std::uint32_t train, test, rows, columns;
  };

  explicit ImageFiles(const Size& size) {
    write(train_images, images(size.train, size.rows, size.columns));
    write(train_labels, labels(size.train));
    write(test_images, images(size.test, size.rows, size.columns));
    write(test_labels, labels(size.test));
  }

  void write(const std::string& name, const std::string& contents) const { folder_.write(name, contents); }
  void remove(const std::string& name) const { std::filesystem::remove(folder_.path() / name); }
  std::string path() const { return folder_.path(); }

 private:
  TemporaryDirectory folder_;
};

}  // namespace lockstep::test
