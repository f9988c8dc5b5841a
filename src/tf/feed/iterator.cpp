#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/feed/iterator.hpp>

namespace lockstep::detail {

InputContext input_context_of(Strategy& strategy) {
  const int replicas = strategy.num_replicas_in_sync();
  return InputContext{
      {.num_input_pipelines = replicas, .input_pipeline_id = strategy.rank(), .num_replicas_in_sync = replicas}};
}

void require_supported(InputOptions::ReplicationMode mode) {
  if (mode != InputOptions::ReplicationMode::per_worker)
    throw InvalidArgument{fmt::format("Input replication mode not supported: {}", static_cast<int>(mode))};
}

bool is_by_element(InputOptions::AutoShard shard) {
  switch (shard) {
    case InputOptions::AutoShard::off: return false;
    case InputOptions::AutoShard::by_element:
    case InputOptions::AutoShard::automatic: return true;
    case InputOptions::AutoShard::by_file: break;
  }
  throw InvalidArgument{fmt::format("{}; expected off, by_element or automatic",
                                    shard == InputOptions::AutoShard::by_file
                                        ? "`auto_shard` is by_file, and an input function has no files"
                                        : fmt::format("`auto_shard` is {}", static_cast<int>(shard)))};
}

std::string describe_sharded(const std::string& dataset, InputOptions::AutoShard shard) {
  return dataset + (is_by_element(shard) ? ", sharded by element" : "");
}

void refuse_source(std::string_view maker) {
  throw InvalidArgument{fmt::format("{} must return a source of batches", maker)};
}

}  // namespace lockstep::detail
