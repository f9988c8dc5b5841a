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

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/shape.hpp>

#include "sync/checkpoint/program_state.hpp"

namespace lockstep::safetensors {

/// One tensor of a file: bytes [begin, end) of the data.
struct Entry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  /// Of a type that lockstep does not have, or with more dimensions than its tensors: how the file describes it, such
  /// as "F8_E4M3[2, 3]". Its bytes can be read as u8, and no variable gets them.
  std::string foreign = {};

  /// Whether a variable of this type and shape can have it as its value.
  bool fits(DType type, const Shape& wanted) const { return foreign.empty() && dtype == type && shape == wanted; }
};

/// "f32[2, 3]": how messages describe it.
std::string describe(const Entry& entry);

/// Places the entries one after another: the widest types first, so that each is aligned, and otherwise in their order.
void lay_out(std::vector<Entry>& entries);

/// What a header says.
struct Header {
  std::vector<Entry> entries;
  WeightsMetadata metadata;  ///< without the name of the writer, if that is lockstep
};

/// What begins the header of a file that lockstep wrote, after its length.
inline constexpr std::string_view own_begin = R"({"__metadata__":{"writer":"lockstep")";

/// InvalidArgument unless `metadata` can be written: for a name or text that is not UTF-8, and for the name "writer".
void require_writable(const WeightsMetadata& metadata);

/// Everything before the data, including the length. The names must differ, and the metadata be writable.
/// CheckpointError, which names `source`, for a name that is not UTF-8 text or that the format reserves for itself, and
/// for a header longer than the format allows.
std::string header_of(const Header& header, std::string_view source);

/// The size of the header's length field, in bytes.
inline constexpr std::uint64_t length_bytes = 8;

/// The format's own limit on that length.
inline constexpr std::uint64_t longest_header = 100'000'000;

/// The length of the header, from the file's first bytes.
std::uint64_t header_length(std::span<const std::byte, length_bytes> first_bytes);

/// What `header` says, the entries in the order of their data. The file has `data_bytes` bytes of data. Passes over
/// fields of an entry that the format does not name. CheckpointError, which names `source` and the entry, for any
/// fault.
Header parse_header(std::string_view header, std::uint64_t data_bytes, std::string_view source);

}  // namespace lockstep::safetensors
