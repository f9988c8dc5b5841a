// What an input function learns about its place among the input pipelines of the job.
#pragma once

#include <cstdint>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/order/range.hpp>

namespace lockstep {

class LOCKSTEP_API InputContext {
 public:
  /// There is one input pipeline per rank: as many as ranks, and the id is the rank. The defaults describe a program
  /// without a strategy. InvalidArgument unless the numbers are positive and the id is in [0, num_input_pipelines).
  InputContext(int num_input_pipelines, int input_pipeline_id, int num_replicas_in_sync);
  InputContext() : InputContext{1, 0, 1} {}

  int num_input_pipelines() const { return num_input_pipelines_; }
  int input_pipeline_id() const { return input_pipeline_id_; }
  int num_replicas_in_sync() const { return num_replicas_in_sync_; }

  /// The number of rows that each replica takes of a global batch. InvalidArgument if it is not a whole number, or the
  /// global batch is not positive.
  std::int64_t per_replica_batch_size(std::int64_t global_batch_size) const;

  /// The rows of a global batch that belong to replica `input_pipeline_id()`. Replicas take consecutive pieces of
  /// `per_replica_batch_size(global_batch_size)` rows. If a last batch has fewer `rows` than `global_batch_size`, the
  /// first replicas take whole pieces and the others take what is left, or nothing. InvalidArgument if `rows` is
  /// negative or more than `global_batch_size`.
  Range piece_of_batch(std::int64_t rows, std::int64_t global_batch_size) const;

 private:
  int num_input_pipelines_, input_pipeline_id_, num_replicas_in_sync_;
};

}  // namespace lockstep
