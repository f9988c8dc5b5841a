// Which rows of a file are its test set, and views of some rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/models/input/schema.hpp>

#include "models/input/number_rows.hpp"
#include "models/input/saved_rows.hpp"

namespace lockstep {

/// The rows of a file without files of their own for the test.
struct SplitRows {
  std::vector<std::int64_t> train, test;
};

/// Splits `count` rows. By hash, whether a row is for the test depends on its number and the fraction alone.
SplitRows split_rows(std::int64_t count, DataSchema::Split split, double test_fraction);

/// Some of the rows of others.
class SelectedRows final : public NumberRows {
 public:
  static constexpr const char* kind = "selected";

  SelectedRows(std::shared_ptr<const NumberRows> rows, FixedArray<std::int64_t> selected)
      : rows_{std::move(rows)}, selected_{std::move(selected)} {}

  std::int64_t count() const override { return static_cast<std::int64_t>(selected_.size()); }
  std::int64_t width() const override { return rows_->width(); }
  bool in_memory() const override { return rows_->in_memory(); }
  void read(std::int64_t row, std::span<float> to) const override { rows_->read(of(row), to); }
  void read(std::int64_t row, std::span<double> to) const override { rows_->read(of(row), to); }
  void require_unchanged() const override { rows_->require_unchanged(); }
  nlohmann::json save(BlockWriter& block) const override {
    return {{"kind", kind}, {"of", save_rows(rows_, block)}, {"selected", block.add(selected_)}};
  }

 private:
  std::int64_t of(std::int64_t row) const { return selected_[static_cast<std::size_t>(row)]; }

  std::shared_ptr<const NumberRows> rows_;
  FixedArray<std::int64_t> selected_;
};

}  // namespace lockstep
