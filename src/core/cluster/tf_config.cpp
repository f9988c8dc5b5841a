#include "core/cluster/tf_config.hpp"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/decimal.hpp"
#include "core/cluster/spec_json.hpp"

namespace lockstep {
namespace {

using spec_json::error_at;
using spec_json::Json;

std::string read_type(const Json& task, std::string_view source) {
  const auto type = task.find("type");
  if (type == task.end())
    throw error_at(source, "task", R"("type" is missing; expected one like {"type": "worker", "index": 0})");
  if (type->is_string()) {
    const auto& name = type->get_ref<const std::string&>();
    if (name == "chief" || name == "worker" || name == "evaluator") return name;
  }
  throw error_at(source, "task.type",
                 fmt::format("expected \"chief\", \"worker\" or \"evaluator\", got {}", shown(*type)));
}

int read_index(const Json& task, std::string_view source) {
  const auto index = task.find("index");
  if (index == task.end())
    throw error_at(source, "task", R"("index" is missing; expected one like {"type": "worker", "index": 0})");
  // TensorFlow converts the index, so launchers may write it as text.
  const std::string digits = index->is_string()            ? index->get<std::string>()
                             : index->is_number_unsigned() ? index->dump()
                                                           : std::string{};
  int value = 0;
  if (!parse_decimal(digits, value) || value < 0)
    throw error_at(source, "task.index",
                   fmt::format("expected the number of a task, 0 or more, got {}", shown(*index)));
  return value;
}

std::optional<Task> read_task(const Json& root, const ClusterSpec& cluster, std::string_view source) {
  const auto found = root.find("task");
  if (found == root.end()) return std::nullopt;
  if (!found->is_object())
    throw error_at(source, "task",
                   fmt::format(R"(expected an object like {{"type": "worker", "index": 0}}, got {})", shown(*found)));
  if (found->empty()) return std::nullopt;
  Task task{read_type(*found, source), read_index(*found, source)};
  if (!cluster.contains(task))
    throw error_at(
        source, "task",
        fmt::format("{} is not in the cluster; expected one of the tasks under \"cluster\"", to_string(task)));
  return task;
}

}  // namespace

TfConfig parse_tf_config(std::string_view json, std::string_view source) {
  ClusterSpec cluster = ClusterSpec::parse(json, source);
  std::optional<Task> task = read_task(spec_json::parse_object(json, source), cluster, source);
  return {std::move(cluster), std::move(task)};
}

void require_tasks_match_ranks(std::span<const std::optional<Task>> task_of_rank, const RankMap& ranks) {
  if (task_of_rank.size() != static_cast<std::size_t>(ranks.size()))
    throw InvalidArgument{fmt::format("{} tasks for {} ranks", task_of_rank.size(), ranks.size())};
  const bool same_everywhere =
      std::adjacent_find(task_of_rank.begin(), task_of_rank.end(), std::not_equal_to<>{}) == task_of_rank.end();
  if (same_everywhere) return;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::optional<Task>& task = task_of_rank[static_cast<std::size_t>(rank)];
    if (task && *task != ranks.task_of(rank))
      throw error_at(ranks.spec().source(), "task",
                     fmt::format("rank {} was given {}; expected {}, or the same task on all ranks", rank,
                                 to_string(*task), to_string(ranks.task_of(rank))));
  }
}

}  // namespace lockstep
