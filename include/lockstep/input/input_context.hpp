// What an input function is told about its place among the input pipelines of the job.
#pragma once

#include <cstdint>

#include <lockstep/input/range.hpp>

namespace lockstep {

/// One input pipeline a rank: the number of pipelines is the number of ranks, the id is the rank. The
/// defaults are those of a program without a strategy.
struct InputPipeline {
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;
};

class InputContext {
 public:
  /// InvalidArgument unless both numbers are positive and the id is in [0, num_input_pipelines).
  explicit InputContext(InputPipeline pipeline = {});

  int num_input_pipelines() const { return pipeline_.num_input_pipelines; }
  int input_pipeline_id() const { return pipeline_.input_pipeline_id; }
  int num_replicas_in_sync() const { return pipeline_.num_replicas_in_sync; }

  /// What each replica takes of a global batch. InvalidArgument where that is not a whole number, or the
  /// global batch is not positive.
  std::int64_t per_replica_batch_size(std::int64_t global_batch_size) const;

  /// Which rows of a global batch are those of replica `input_pipeline_id()`. Replicas take consecutive pieces of
  /// `per_replica_batch_size(global_batch_size)` rows; of a last batch with fewer `rows` than `global_batch_size` the
  /// first replicas take theirs, and others what is left, or nothing. InvalidArgument for more rows than that.
  Range piece_of_batch(std::int64_t rows, std::int64_t global_batch_size) const;

 private:
  InputPipeline pipeline_;
};

}  // namespace lockstep
