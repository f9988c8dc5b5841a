// Files of labelled samples, in the formats in which people have them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep::test {

/// A record of CIFAR: its labels, and a byte for each number of [channel, row, column].
template <class Pixel>
std::string cifar_record(std::initializer_list<int> labels, Pixel&& pixel) {
  std::string record;
  for (const int label : labels) record += static_cast<char>(label);
  for (int channel = 0; channel < 3; ++channel)
    for (int row = 0; row < 32; ++row)
      for (int column = 0; column < 32; ++column) record += static_cast<char>(pixel(channel, row, column));
  return record;
}

/// An .npy file with a header that may lie.
inline std::string npy(const std::string& header, const std::string& content, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  const std::size_t length = header.size() + 1;
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) file += static_cast<char>(length >> (8 * i));
  return file + header + '\n' + content;
}

inline std::string npy_header(const std::string& type, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': (" + shape + "), }";
}

/// The bytes of numbers, as they are in memory.
template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

/// An array of such numbers: "<f4", "3, 4".
template <class Number>
std::string npy(const std::string& type, const std::string& shape, const std::vector<Number>& numbers) {
  return npy(npy_header(type, shape), bytes_of(numbers));
}

}  // namespace lockstep::test
