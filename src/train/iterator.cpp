#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/train/iterator.hpp>

namespace lockstep::detail {

InputContext input_context_of(Strategy& strategy) {
  const int replicas = strategy.num_replicas_in_sync();
  return InputContext{{.num_input_pipelines = replicas,
                       .input_pipeline_id = strategy.group().rank(),
                       .num_replicas_in_sync = replicas}};
}

void require_supported(InputReplicationMode mode) {
  if (mode != InputReplicationMode::per_worker)
    throw InvalidArgument{fmt::format("Input replication mode not supported: {}", static_cast<int>(mode))};
}

void refuse_source(std::string_view maker) {
  throw InvalidArgument{fmt::format("{} must return a source of batches", maker)};
}

}  // namespace lockstep::detail
