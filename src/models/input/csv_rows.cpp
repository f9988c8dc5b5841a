#include "models/input/csv_rows.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep {

void CsvRows::push(const CsvReader& reader, const std::vector<double>& numbers, DataMemory& memory) {
  ++count_;
  pushed_begins_.push_back(reader.offset());
  if (!keeps_) return;
  if (memory.take(numbers.size() * sizeof(double))) {
    pushed_.insert(pushed_.end(), numbers.begin(), numbers.end());
    return;
  }
  if (reader.file().packed()) memory.refuse_packed(reader.file());
  keeps_ = false;
  memory.left_bytes += pushed_.size() * sizeof(double);
  pushed_ = {};
}

void CsvRows::finish(const CsvReader& reader) {
  pushed_begins_.push_back(reader.end());
  if (keeps_) {
    numbers_ = std::exchange(pushed_, {});
  } else {
    begins_ = std::exchange(pushed_begins_, {});
    file_ = StoredFile::of(reader.file());
  }
  pushed_begins_ = {};
}

CsvRows::CsvRows(const nlohmann::json& saved, const BlockReader& block)
    : path_{saved.at("path").get<std::string>()},
      columns_{
          saved.at("names").get<std::vector<std::string>>(), saved.at("inputs").get<std::vector<std::size_t>>(), {}},
      count_{saved.at("count").get<std::int64_t>()},
      keeps_{saved.contains("numbers")} {
  if (keeps_) {
    numbers_ = block.array<double>(saved.at("numbers"));
    return;
  }
  begins_ = block.array<std::uint64_t>(saved.at("begins"));
  file_ = StoredFile::restore(saved.at("file"), block);
}

nlohmann::json CsvRows::save(BlockWriter& block) const {
  nlohmann::json saved{{"kind", kind},
                       {"path", path_.string()},
                       {"names", columns_.names},
                       {"inputs", columns_.inputs},
                       {"count", count_}};
  if (keeps_) {
    saved["numbers"] = block.add(numbers_);
  } else {
    saved["begins"] = block.add(begins_);
    saved["file"] = file_->save(block);
  }
  return saved;
}

std::vector<double> CsvRows::read_record(std::int64_t row) const {
  const std::uint64_t begin = begins_[static_cast<std::size_t>(row)], end = begins_[static_cast<std::size_t>(row) + 1];
  std::vector<std::uint8_t> bytes(end - begin);
  file_->read(begin, bytes);
  std::string_view record{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  record = record.substr(0, record.find_first_of("\n\r"));  // comments may follow
  const auto changed = [&] {
    throw ConfigError{
        fmt::format("{}: has changed while it was in use: the record at byte {} is not the one that was "
                    "checked",
                    path_.string(), begin)};
  };
  std::vector<std::string> fields;
  if (!split_fields(record, fields) || fields.size() != columns_.names.size()) changed();
  std::vector<double> numbers(static_cast<std::size_t>(width()));
  parse_numbers(columns_, fields, numbers, [&](std::size_t) { changed(); });
  return numbers;
}

template <class Real>
void CsvRows::copy(std::int64_t row, std::span<Real> to) const {
  if (!keeps_) {
    std::ranges::transform(read_record(row), to.begin(), [](double number) { return static_cast<Real>(number); });
    return;
  }
  const auto begin = numbers_.begin() + row * width();
  std::transform(begin, begin + width(), to.begin(), [](double number) { return static_cast<Real>(number); });
}

template void CsvRows::copy(std::int64_t, std::span<float>) const;
template void CsvRows::copy(std::int64_t, std::span<double>) const;

}  // namespace lockstep
