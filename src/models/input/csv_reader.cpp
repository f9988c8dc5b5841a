#include "models/input/csv_reader.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/decimal.hpp"
#include "models/input/conversion.hpp"

namespace lockstep {
namespace {

constexpr std::size_t longest_record = 64 << 20;

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

template <class Number>
bool parse(std::string_view field, Number& number) {
  if (field.starts_with('+') && !field.starts_with("+-")) field.remove_prefix(1);
  return parse_decimal(field, number);
}

}  // namespace

void CsvReader::fail_at(std::int64_t line, std::string_view what) const {
  throw ConfigError{fmt::format("{}:{}: {}", file_.path().string(), line, what)};
}

int CsvReader::peek() {
  if (taken_ == filled_) {
    filled_ = file_.read(buffer_);
    taken_ = 0;
    if (filled_ == 0) return -1;
  }
  return buffer_[taken_];
}

int CsvReader::get() {
  const int byte = peek();
  if (byte < 0) return byte;
  ++position_;
  ++taken_;
  return byte;
}

/// For a record that has the zero byte after what has been read of it.
std::string CsvReader::zero_byte_text() const {
  const bool is_utf_16 = record_.size() == 1 || record_.starts_with("\xff\xfe") || record_.starts_with("\xfe\xff");
  if (!is_utf_16 || line_ > 1) return "has a zero byte; expected text in UTF-8";
  return fmt::format("has a zero byte, as UTF-16 has; expected text in UTF-8: {}",
                     filtered(file_, "iconv -f UTF-16 -t UTF-8", "-utf-8.csv"));
}

bool CsvReader::read_record() {
  record_.clear();
  offset_ = position_;
  line_ = lines_ + 1;
  bool quoted = false;
  for (int byte = get();; byte = get()) {
    if (byte < 0) {
      if (quoted) fail("a quoted field has no end");
      break;
    }
    if (byte == '\n' || byte == '\r') {
      ++lines_;
      if (byte == '\r' && peek() == '\n') (void)get();
      if (!quoted) break;
      fail("has a line break inside quotes, or a quote without an end; expected a record on one line");
    }
    if (byte == 0) fail(zero_byte_text());
    if (byte == '"') quoted = !quoted;
    if (record_.size() == longest_record)
      fail(fmt::format("is longer than {} bytes; expected a line of CSV", longest_record));
    record_ += static_cast<char>(byte);
  }
  return position_ > offset_;
}

bool CsvReader::next() {
  if (!read_record()) return false;
  if (position_ > 0 && offset_ == 0 && record_.starts_with("\xef\xbb\xbf")) record_.erase(0, 3);  // a byte order mark
  if (offset_ == 0 && record_ == "sep=,") return next();  // as Excel writes it, before the header
  if (!record_.empty()) return true;
  // Only empty lines may follow.
  const std::int64_t empty = line_;
  while (read_record())
    if (!record_.empty()) {
      line_ = empty;
      fail("is empty; expected a record, or nothing but empty lines up to the end");
    }
  return false;
}

bool split_fields(std::string_view record, std::vector<std::string>& fields, char separator) {
  std::size_t count = 0;
  const auto add = [&]() -> std::string& {
    if (count == fields.size()) fields.emplace_back();
    fields[count].clear();
    return fields[count++];
  };
  for (std::size_t at = 0; at <= record.size(); ++at) {
    std::string& field = add();
    while (at < record.size() && is_blank(record[at]) && record[at] != separator) ++at;
    if (at < record.size() && record[at] == '"') {
      for (++at; at < record.size(); ++at) {
        if (record[at] != '"')
          field += record[at];
        else if (at + 1 < record.size() && record[at + 1] == '"')
          field += record[++at];
        else
          break;
      }
      if (at == record.size()) return false;
      ++at;
      while (at < record.size() && is_blank(record[at]) && record[at] != separator) ++at;
      if (at < record.size() && record[at] != separator) return false;
    } else {
      const std::size_t end = std::min(record.find(separator, at), record.size());
      field = record.substr(at, end - at);
      while (!field.empty() && is_blank(field.back())) field.pop_back();
      at = end;
    }
  }
  fields.resize(count);
  return true;
}

bool parse_field(std::string_view field, double& number) {
  return parse(field, number);
}

bool parse_field(std::string_view field, std::int64_t& number) {
  return parse(field, number);
}

bool is_finite(double number, DType dtype) {
  return dtype == DType::f64 ? std::isfinite(number) : std::isfinite(static_cast<float>(number));
}

std::string_view finite_number_text(double number, DType dtype) {
  if (dtype == DType::f64) return "a finite number";
  return std::isfinite(number) ? "a finite number of 32 bits, or --dtype f64" : "a finite number of 32 bits";
}

}  // namespace lockstep
