// What an input function learns about its place among the input pipelines of the job.
#pragma once

#include <cstdint>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/order/range.hpp>

namespace lockstep {

class LOCKSTEP_API InputContext {
 public:
  /// One input pipeline per rank: there are as many pipelines as ranks, and the id is the rank. The defaults describe a
  /// program without a strategy.
  struct Pipeline {
    int num_input_pipelines = 1;
    int input_pipeline_id = 0;
    int num_replicas_in_sync = 1;
  };

  InputContext() : InputContext{Pipeline{}} {}

  /// InvalidArgument unless both numbers are positive and the id is in [0, num_input_pipelines).
  explicit InputContext(Pipeline pipeline);

  int num_input_pipelines() const { return pipeline_.num_input_pipelines; }
  int input_pipeline_id() const { return pipeline_.input_pipeline_id; }
  int num_replicas_in_sync() const { return pipeline_.num_replicas_in_sync; }

  /// The number of rows that each replica takes of a global batch. InvalidArgument if it is not a whole number, or the
  /// global batch is not positive.
  std::int64_t per_replica_batch_size(std::int64_t global_batch_size) const;

  /// The rows of a global batch that belong to replica `input_pipeline_id()`. Replicas take consecutive pieces of
  /// `per_replica_batch_size(global_batch_size)` rows. If a last batch has fewer `rows` than `global_batch_size`, the
  /// first replicas take whole pieces and the others take what is left, or nothing. InvalidArgument if `rows` is
  /// negative or more than `global_batch_size`.
  Range piece_of_batch(std::int64_t rows, std::int64_t global_batch_size) const;

 private:
  Pipeline pipeline_;
};

}  // namespace lockstep
