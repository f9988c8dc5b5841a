// Records and fields of CSV files (RFC 4180), each record on one line. Lines end with LF, CRLF or CR. A byte order mark
// and Excel's first line "sep=," are passed by.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/dtype.hpp>

#include "models/input/file_bytes.hpp"

namespace lockstep {

/// One record after the other.
class CsvReader {
 public:
  /// ConfigError if the file cannot be opened.
  explicit CsvReader(const std::filesystem::path& path) : file_{path}, buffer_(1 << 16) {}

  /// Reads the next record: false at the end. Empty lines at the end are no records. ConfigError for an empty line
  /// elsewhere, for a zero byte, and for quotes that do not end on their line.
  bool next();

  /// The record without its line break, as it is in the file. Valid until the next call of next().
  std::string_view record() const { return record_; }
  /// Where it begins, and where what follows its line break does.
  std::uint64_t offset() const { return offset_; }
  std::uint64_t end() const { return position_; }
  /// Its line, from 1.
  std::int64_t line() const { return line_; }

  const FileBytes& file() const { return file_; }

  /// ConfigError that begins with "file:line: ", with the line of the record or another.
  [[noreturn]] void fail(std::string_view what) const { fail_at(line_, what); }
  [[noreturn]] void fail_at(std::int64_t line, std::string_view what) const;

 private:
  int get();   ///< the next byte; -1 at the end
  int peek();  ///< the same byte, which stays
  std::string zero_byte_text() const;
  /// Reads one line.
  bool read_record();

  FileBytes file_;
  std::vector<std::uint8_t> buffer_;
  std::size_t taken_ = 0, filled_ = 0;
  std::uint64_t position_ = 0;  ///< of the next byte
  std::int64_t lines_ = 0;      ///< that have been read to their end
  std::string record_;
  std::uint64_t offset_ = 0;
  std::int64_t line_ = 0;
};

/// Cuts a record into `fields`: without blanks around them, and without quotes. False if a quote is followed by
/// something other than the separator.
bool split_fields(std::string_view record, std::vector<std::string>& fields, char separator = ',');

/// All of `field` as a number; false if it is none. A double below the smallest is 0, one above the largest infinite.
bool parse_field(std::string_view field, double& number);
bool parse_field(std::string_view field, std::int64_t& number);

/// Whether a number is finite in `dtype`, f32 or f64; and what is expected in the place of one that is not: "a finite
/// number of 32 bits".
bool is_finite(double number, DType dtype);
std::string_view finite_number_text(double number, DType dtype);

}  // namespace lockstep
