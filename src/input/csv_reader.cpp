#include "input/csv_reader.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

namespace lockstep {
namespace {

constexpr std::size_t longest_record = 64 << 20;

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

template <class Number>
bool parse(std::string_view field, Number& number) {
  if (field.starts_with('+') && !field.starts_with("+-")) field.remove_prefix(1);
  const char* const end = field.data() + field.size();
  const auto [parsed, error] = std::from_chars(field.data(), end, number);
  return error == std::errc{} && parsed == end;
}

}  // namespace

void CsvReader::fail_at(std::int64_t line, std::string_view what) const {
  throw ConfigError{fmt::format("{}:{}: {}", file_.path().string(), line, what)};
}

int CsvReader::get() {
  if (taken_ == filled_) {
    filled_ = file_.read(buffer_);
    taken_ = 0;
    if (filled_ == 0) return -1;
  }
  ++position_;
  return buffer_[taken_++];
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
    if (byte == '\n') {
      ++lines_;
      if (!quoted) break;
      fail("has a line break inside quotes, or a quote without an end; expected a record on one line");
    }
    if (byte == 0) fail("has a zero byte; expected text in UTF-8");
    if (byte == '"') quoted = !quoted;
    if (record_.size() == longest_record)
      fail(fmt::format("is longer than {} bytes; expected a line of CSV", longest_record));
    record_ += static_cast<char>(byte);
  }
  if (record_.ends_with('\r')) record_.pop_back();
  return position_ > offset_;
}

bool CsvReader::next() {
  if (!read_record()) return false;
  if (position_ > 0 && offset_ == 0 && record_.starts_with("\xef\xbb\xbf")) record_.erase(0, 3);  // a byte order mark
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

bool split_fields(std::string_view record, std::vector<std::string>& fields) {
  std::size_t count = 0;
  const auto add = [&]() -> std::string& {
    if (count == fields.size()) fields.emplace_back();
    fields[count].clear();
    return fields[count++];
  };
  for (std::size_t at = 0; at <= record.size(); ++at) {
    std::string& field = add();
    while (at < record.size() && is_blank(record[at])) ++at;
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
      while (at < record.size() && is_blank(record[at])) ++at;
      if (at < record.size() && record[at] != ',') return false;
    } else {
      const std::size_t end = std::min(record.find(',', at), record.size());
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

std::string_view finite_number_text(DType dtype) {
  return dtype == DType::f64 ? "a finite number" : "a finite number of 32 bits";
}

}  // namespace lockstep
