// What models ask of the shards they are given.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <lockstep/input/batch.hpp>
#include <lockstep/nn/model.hpp>

namespace lockstep::nn {

/// What a model takes.
struct ShardForm {
  std::string_view model;    ///< what messages call it: "an mlp"
  DType dtype;               ///< of the inputs [rows, columns]
  std::int64_t columns;      ///< of the inputs
  Shape labels_of_row = {};  ///< the shape of a row's labels: one label where it has no dimensions
};

/// InvalidArgument unless `shard` is of that form and has no more samples than rows.
void require_shard(const SampleBatch& shard, const ShardForm& form);

/// InvalidArgument unless there are shards, and a place for each.
void require_places(const BatchGroup& shards, std::span<const ShardPlace> places);

/// `rows` rows of a view [capacity, ...], from row `first` on.
TensorView rows_from(const TensorView& view, std::int64_t first, std::int64_t rows);

/// The first of them.
TensorView first_rows(const TensorView& view, std::int64_t rows);

}  // namespace lockstep::nn
