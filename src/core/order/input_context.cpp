#include <algorithm>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/order/input_context.hpp>

namespace lockstep {
namespace {

void require_positive(const char* name, std::int64_t number) {
  if (number < 1) throw InvalidArgument{fmt::format("`{}` is {}; expected 1 or more", name, number)};
}

}  // namespace

InputContext::InputContext(int num_input_pipelines, int input_pipeline_id, int num_replicas_in_sync)
    : num_input_pipelines_{num_input_pipelines},
      input_pipeline_id_{input_pipeline_id},
      num_replicas_in_sync_{num_replicas_in_sync} {
  require_positive("num_input_pipelines", num_input_pipelines);
  require_positive("num_replicas_in_sync", num_replicas_in_sync);
  if (input_pipeline_id < 0 || input_pipeline_id >= num_input_pipelines)
    throw InvalidArgument{fmt::format("`input_pipeline_id` is {}; expected one in [0, {}) (`num_input_pipelines`)",
                                      input_pipeline_id, num_input_pipelines)};
}

std::int64_t InputContext::per_replica_batch_size(std::int64_t global_batch_size) const {
  require_positive("global_batch_size", global_batch_size);
  if (global_batch_size % num_replicas_in_sync_ != 0)
    throw InvalidArgument{fmt::format("The `global_batch_size` {} is not divisible by `num_replicas_in_sync` {}",
                                      global_batch_size, num_replicas_in_sync_)};
  return global_batch_size / num_replicas_in_sync_;
}

Range InputContext::piece_of_batch(std::int64_t rows, std::int64_t global_batch_size) const {
  const std::int64_t each = per_replica_batch_size(global_batch_size);
  if (rows < 0 || rows > global_batch_size)
    throw InvalidArgument{
        fmt::format("a batch of {} rows; expected 0 to {} (`global_batch_size`)", rows, global_batch_size)};
  const std::int64_t first = std::min(rows, input_pipeline_id_ * each);
  return {first, std::min(rows, first + each)};
}

}  // namespace lockstep
