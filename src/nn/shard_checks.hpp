// What models ask of the shards they are given.
#pragma once

#include <cstdint>
#include <string_view>

#include <lockstep/input/batch.hpp>

namespace lockstep::nn {

/// InvalidArgument unless `shard` has inputs [rows, features] of `dtype`, a label a row, and no more samples than rows.
/// `model` is what the message calls the model: "an mlp".
void require_shard(const SampleBatch& shard, std::string_view model, DType dtype, std::int64_t features);

/// The first `rows` of a view or tensor [capacity, ...].
TensorView first_rows(const TensorView& view, std::int64_t rows);

}  // namespace lockstep::nn
