// The rows of numbers of a CSV file: all of them in memory, or the places of its records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "models/input/csv_header.hpp"
#include "models/input/csv_reader.hpp"
#include "models/input/number_rows.hpp"

namespace lockstep {

class CsvRows final : public NumberRows {
 public:
  static constexpr const char* kind = "csv";

  CsvRows(std::filesystem::path path, CsvColumns columns) : path_{std::move(path)}, columns_{std::move(columns)} {}
  /// As they were saved.
  CsvRows(const nlohmann::json& saved, const BlockReader& block);

  /// Takes the record that `reader` has read, which holds `numbers`.
  void push(const CsvReader& reader, const std::vector<double>& numbers, DataMemory& memory);
  /// Call it after the last one.
  void finish(const CsvReader& reader);

  bool in_memory() const override { return keeps_; }
  std::int64_t count() const override { return count_; }
  std::int64_t width() const override { return columns_.width(); }
  void read(std::int64_t row, std::span<float> to) const override { copy(row, to); }
  void read(std::int64_t row, std::span<double> to) const override { copy(row, to); }
  void require_unchanged() const override {
    if (file_) file_->require_unchanged();
  }
  nlohmann::json save(BlockWriter& block) const override;

 private:
  template <class Real>
  void copy(std::int64_t row, std::span<Real> to) const;
  std::vector<double> read_record(std::int64_t row) const;

  std::filesystem::path path_;
  CsvColumns columns_;
  std::int64_t count_ = 0;
  bool keeps_ = true;
  std::vector<double> pushed_;  ///< until all are there
  std::vector<std::uint64_t> pushed_begins_;
  FixedArray<double> numbers_;
  FixedArray<std::uint64_t> begins_;             ///< of the records, and the end of the last
  std::shared_ptr<const StoredFile> file_ = {};  ///< if the numbers are not kept
};

/// The numbers of a sample. Calls `wrong(place)` for the first field that is none.
template <class Wrong>
void parse_numbers(const CsvColumns& columns, const std::vector<std::string>& fields, std::vector<double>& numbers,
                   Wrong&& wrong) {
  for (std::size_t input = 0; input < columns.inputs.size(); ++input)
    if (!parse_field(fields[columns.inputs[input]], numbers[input])) wrong(columns.inputs[input]);
}

}  // namespace lockstep
