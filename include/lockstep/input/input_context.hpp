// What an input function is told about its place among the input pipelines of the job.
#pragma once

#include <cstdint>

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

 private:
  InputPipeline pipeline_;
};

}  // namespace lockstep
