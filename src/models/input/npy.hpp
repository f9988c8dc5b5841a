// Headers of .npy files. Source of the format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/core/base/shape.hpp>

#include "models/input/file_bytes.hpp"

namespace lockstep {

/// An array of numbers in C order.
struct NpyHeader {
  char kind = 'u';         ///< u, i or f: unsigned, signed or floating-point numbers
  std::int64_t bytes = 1;  ///< of a number
  std::endian order = std::endian::native;
  Shape shape;
  std::uint64_t header_bytes = 0;

  /// "f4", as NumPy calls the type.
  std::string type() const { return kind + std::to_string(bytes); }
};

/// Reads the header, up to the first number. Keys that say nothing of the numbers are passed by. ConfigError for a
/// file without one, and for arrays that are not of numbers, are in Fortran order, or hold no numbers, or 2^40 bytes or
/// more.
NpyHeader read_npy_header(FileBytes& file);

/// Whether `first`, the first bytes of a file, begin an .npy file.
bool begins_npy_file(std::span<const std::uint8_t> first);

}  // namespace lockstep
