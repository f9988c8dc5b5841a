// Checks of models' shards, and views of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/nn/model.hpp>

namespace lockstep::nn {

/// The form of shards that a model takes.
struct ShardForm {
  std::string_view model;    ///< the model's name in messages: "an mlp"
  DType dtype;               ///< of the inputs [rows, columns]
  std::int64_t columns;      ///< of the inputs
  Shape labels_of_row = {};  ///< shape of a row's labels; one label if it has no dimensions
  DType labels_dtype = DType::i32;
};

/// InvalidArgument unless `shard` has that form and no more samples than rows.
void require_shard(const SampleBatch& shard, const ShardForm& form);

/// InvalidArgument unless there is at least one shard, and one place for each.
void require_places(const SampleBatch::Group& shards, std::span<const Model::ShardPlace> places);

/// `rows` rows of a view [capacity, ...], from row `first` on.
TensorView rows_from(const TensorView& view, std::int64_t first, std::int64_t rows);

/// The first `rows` rows.
TensorView first_rows(const TensorView& view, std::int64_t rows);

/// The elements of a view of f32 or f64, on any device.
std::vector<double> to_doubles(const TensorView& view);

}  // namespace lockstep::nn
