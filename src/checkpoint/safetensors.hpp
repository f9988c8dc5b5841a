// The safetensors format: which tensors a file holds, and where. Pure; file.hpp has the files.
//
//   8 bytes    the length of the header, little-endian
//   header     JSON: {"__metadata__": {…}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …},
//              padded with spaces at its end, so that the data is aligned
//   data       the tensors, little-endian and row-major, without gaps; offsets count from here
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/dtype.hpp>
#include <lockstep/base/shape.hpp>

namespace lockstep::safetensors {

/// One tensor of a file: bytes [begin, end) of the data.
struct Entry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// "f32[2, 3]": how messages describe it.
std::string describe(const Entry& entry);

/// Places the entries one after another: the widest types first, so that each is aligned, and otherwise in their order.
void lay_out(std::vector<Entry>& entries);

/// Everything before the data, including the length. The names must differ. CheckpointError, which names `source`, for
/// a name that is not UTF-8 text or that the format reserves for itself.
std::string header_of(std::span<const Entry> entries, std::string_view source);

/// The size of the header's length field, in bytes.
inline constexpr std::uint64_t length_bytes = 8;

/// The format's own limit on that length.
inline constexpr std::uint64_t longest_header = 100'000'000;

/// The length of the header, from the file's first bytes.
std::uint64_t header_length(std::span<const std::byte, length_bytes> first_bytes);

/// The entries of a header, in the order of their data. The file has `data_bytes` bytes of data. CheckpointError, which
/// names `source` and the entry, for any fault.
std::vector<Entry> parse_header(std::string_view header, std::uint64_t data_bytes, std::string_view source);

}  // namespace lockstep::safetensors
