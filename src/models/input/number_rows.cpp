#include "models/input/number_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep {
namespace {

constexpr std::int64_t piece_bytes = 1 << 20;

std::int64_t element_bytes(RowFormat::Element element) {
  switch (element) {
    case RowFormat::Element::u8: return 1;
    case RowFormat::Element::f32: return 4;
    case RowFormat::Element::f64: return 8;
  }
  return 0;
}

template <class Stored>
Stored stored_number(const std::uint8_t* bytes, std::endian order) {
  std::array<std::uint8_t, sizeof(Stored)> ordered;
  std::copy_n(bytes, sizeof(Stored), ordered.begin());
  if (order != std::endian::native) std::ranges::reverse(ordered);
  return std::bit_cast<Stored>(ordered);
}

/// Calls `number(i)` for each number of a row in the order in which it is stored, and writes them in the order of
/// reading.
template <class Real, class Number>
void place(const RowFormat& format, std::span<Real> to, Number&& number) {
  const auto width = static_cast<std::size_t>(format.width), planes = static_cast<std::size_t>(format.planes);
  if (planes == 1) {
    for (std::size_t i = 0; i < width; ++i) to[i] = number(i);
    return;
  }
  const std::size_t positions = width / planes;
  for (std::size_t plane = 0, i = 0; plane < planes; ++plane)
    for (std::size_t position = 0; position < positions; ++position, ++i) to[position * planes + plane] = number(i);
}

template <class Real>
void decode_row(const RowFormat& format, const std::uint8_t* row, std::span<Real> to) {
  const std::uint8_t* const numbers = row + format.prefix_bytes;
  switch (format.element) {
    case RowFormat::Element::u8:
      return place(format, to, [&](std::size_t i) { return static_cast<Real>(numbers[i]) / Real{255}; });
    case RowFormat::Element::f32:
      return place(format, to, [&](std::size_t i) {
        return static_cast<Real>(stored_number<float>(numbers + 4 * i, format.order));
      });
    case RowFormat::Element::f64:
      return place(format, to, [&](std::size_t i) {
        return static_cast<Real>(stored_number<double>(numbers + 8 * i, format.order));
      });
  }
}

}  // namespace

bool DataMemory::take(std::uint64_t bytes) {
  if (bytes > left_bytes) return false;
  left_bytes -= bytes;
  return true;
}

void DataMemory::refuse_packed(const FileBytes& file) const {
  file.fail(
      fmt::format("does not fit into the {} bytes of memory that are left of --data-memory when it is unpacked (gzip); "
                  "expected an unpacked file, or a larger --data-memory",
                  left_bytes));
}

std::int64_t RowFormat::bytes() const {
  return prefix_bytes + width * element_bytes(element);
}

void StoredRows::append(FileBytes& file, const AnnouncedContent& content, DataMemory& memory, const Inspect& inspect) {
  if (memory.take(content.bytes)) return keep(file, read_content(file, content), inspect);
  if (file.packed()) memory.refuse_packed(file);
  const std::int64_t row_bytes = format_.bytes();
  std::int64_t first = 0;
  read_content(file, content,
               static_cast<std::uint64_t>(std::max<std::int64_t>(1, piece_bytes / row_bytes) * row_bytes),
               [&](std::span<const std::uint8_t> bytes) {
                 require_finite(file, first, bytes);
                 inspect(first, bytes);
                 first += std::ssize(bytes) / row_bytes;
               });
  pieces_.push_back({.end = count() + first, .file = StoredFile::of(file), .offset = content.header_bytes});
}

void StoredRows::append(const FileBytes& file, std::vector<std::uint8_t> content, DataMemory& memory,
                        const Inspect& inspect) {
  (void)memory.take(content.size());
  keep(file, std::move(content), inspect);
}

void StoredRows::keep(const FileBytes& file, std::vector<std::uint8_t> content, const Inspect& inspect) {
  require_finite(file, 0, content);
  inspect(0, content);
  const std::int64_t rows = std::ssize(content) / format_.bytes();
  pieces_.push_back({.end = count() + rows, .memory = std::move(content)});
}

bool StoredRows::in_memory() const {
  return std::ranges::all_of(pieces_, [](const Piece& piece) { return !piece.file; });
}

void StoredRows::require_finite(const FileBytes& file, std::int64_t first, std::span<const std::uint8_t> rows) const {
  if (format_.element == RowFormat::Element::u8) return;
  const auto check = [&]<class Real>(std::vector<Real> numbers) {
    const auto row_bytes = static_cast<std::size_t>(format_.bytes());
    for (std::size_t begin = 0; begin < rows.size(); begin += row_bytes, ++first) {
      decode_row<Real>(format_, rows.data() + begin, numbers);
      const auto wrong = std::ranges::find_if(numbers, [](Real number) { return !std::isfinite(number); });
      if (wrong == numbers.end()) continue;
      const auto at = wrong - numbers.begin();
      std::vector<double> stored(numbers.size());
      decode_row<double>(format_, rows.data() + begin, stored);
      const bool fits_f64 = std::isfinite(stored[static_cast<std::size_t>(at)]);
      file.fail(fmt::format("number {} of row {} (both counted from 0) is {}{}; expected a finite number{}{}{}", at,
                            first, *wrong, others_text<Real>(rows.subspan(begin)),
                            sizeof(Real) == 4 ? " of 32 bits" : "", fits_f64 ? ", or --dtype f64" : "",
                            fits_f64 ? "" : hint_));
    }
  };
  const auto width = static_cast<std::size_t>(format_.width);
  dtype_ == DType::f64 ? check(std::vector<double>(width)) : check(std::vector<float>(width));
}

template <class Real>
std::string StoredRows::others_text(std::span<const std::uint8_t> rows) const {
  std::vector<Real> numbers(static_cast<std::size_t>(format_.width));
  const auto row_bytes = static_cast<std::size_t>(format_.bytes());
  std::int64_t wrong_numbers = 0, wrong_rows = 0;
  for (std::size_t begin = 0; begin < rows.size(); begin += row_bytes) {
    decode_row<Real>(format_, rows.data() + begin, numbers);
    const auto wrong = std::ranges::count_if(numbers, [](Real number) { return !std::isfinite(number); });
    wrong_numbers += wrong;
    wrong_rows += wrong > 0 ? 1 : 0;
  }
  if (wrong_numbers < 2) return {};
  return fmt::format(", with {} more in {} of the {} rows from there on", wrong_numbers - 1, wrong_rows,
                     rows.size() / row_bytes);
}

template <class Real>
void StoredRows::decode(std::int64_t row, std::span<Real> to) const {
  const auto piece = std::ranges::upper_bound(pieces_, row, {}, &Piece::end);
  const std::int64_t begin = piece == pieces_.begin() ? 0 : std::prev(piece)->end;
  const auto offset = static_cast<std::size_t>((row - begin) * format_.bytes());
  if (!piece->file) return decode_row(format_, piece->memory.data() + offset, to);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(format_.bytes()));
  piece->file->read(piece->offset + offset, bytes);
  decode_row(format_, bytes.data(), to);
}

StoredRows::StoredRows(const nlohmann::json& saved, const BlockReader& block)
    : format_{saved.at("format").get<RowFormat>()}, dtype_{saved.at("dtype").get<DType>()} {
  for (const nlohmann::json& piece : saved.at("pieces")) {
    Piece& made = pieces_.emplace_back();
    made.end = piece.at("end").get<std::int64_t>();
    if (piece.contains("memory"))
      made.memory = block.array<std::uint8_t>(piece.at("memory"));
    else
      made.file = StoredFile::restore(piece.at("file"), block);
    made.offset = piece.at("offset").get<std::uint64_t>();
  }
}

void StoredRows::require_unchanged() const {
  for (const Piece& piece : pieces_)
    if (piece.file) piece.file->require_unchanged();
}

nlohmann::json StoredRows::save(BlockWriter& block) const {
  nlohmann::json saved{{"kind", "stored"}, {"format", format_}, {"dtype", dtype_}};
  for (const Piece& piece : pieces_) {
    nlohmann::json& added = saved["pieces"].emplace_back();
    added = {{"end", piece.end}, {"offset", piece.offset}};
    if (piece.file)
      added["file"] = piece.file->save(block);
    else
      added["memory"] = block.add(piece.memory);
  }
  return saved;
}

void StoredRows::read(std::int64_t row, std::span<float> to) const {
  decode(row, to);
}

void StoredRows::read(std::int64_t row, std::span<double> to) const {
  decode(row, to);
}

}  // namespace lockstep
