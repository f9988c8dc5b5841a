#include "core/cluster/cluster_spec.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/decimal.hpp"
#include "core/cluster/address.hpp"
#include "core/cluster/spec_json.hpp"

namespace lockstep {
namespace {

using spec_json::error_at;
using spec_json::Json;

using Addresses = std::vector<std::string>;

constexpr std::array types{"chief", "worker", "evaluator"};  // of tasks

/// "cluster.worker[2]": the key of a task's address.
std::string key_of(const Task& task) {
  return fmt::format("cluster.{}[{}]", task.type, task.index);
}

void require_known_keys(const Json& root, std::string_view source) {
  constexpr std::array known{"cluster", "replicas_per_task", "environment", "rpc_layer", "session_master", "task"};
  for (const auto& [key, value] : root.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw ConfigError{
          fmt::format("{}: unknown key {}; expected cluster, replicas_per_task, environment, rpc_layer, "
                      "session_master or task",
                      source, shown(key))};
}

void require_known_jobs(const Json& cluster, std::string_view source) {
  for (const auto& [type, job] : cluster.items()) {
    if (type == "ps")
      throw error_at(source, "cluster.ps",
                     "parameter servers have no part here, since every replica keeps all variables; expected "
                     "chief, worker or evaluator");
    if (std::ranges::find(types, type) == types.end())
      throw error_at(source, "cluster",
                     fmt::format("unknown job type {}; expected chief, worker or evaluator", shown(type)));
  }
}

std::string text_of_address(const Json& entry, const std::string& key, std::string_view source) {
  if (!entry.is_string() || !normalised_address(entry.get_ref<const std::string&>()))
    throw error_at(source, key, fmt::format("expected host:port with a port from 1 to 65535, got {}", shown(entry)));
  return entry.get<std::string>();
}

/// The number that `text` spells in plain decimal, if it does.
std::optional<int> index_from(std::string_view text) {
  int index = 0;
  return parse_decimal(text, index) && index >= 0 && std::to_string(index) == text ? std::optional{index}
                                                                                   : std::nullopt;
}

Addresses read_sparse_job(const Json& job, const std::string& type, std::string_view source) {
  // The object has its keys in the order of the text.
  std::map<int, const Json*> by_index;
  for (const auto& [key, entry] : job.items()) {
    const std::optional<int> index = index_from(key);
    if (!index)
      throw error_at(source, "cluster." + type,
                     fmt::format("expected task indices 0, 1, 2, ... as keys, got {}", shown(key)));
    by_index.emplace(*index, &entry);
  }
  Addresses addresses;
  addresses.reserve(by_index.size());
  for (const auto& [index, entry] : by_index) {
    const int next = static_cast<int>(addresses.size());
    if (index != next)
      throw error_at(source, "cluster." + type,
                     fmt::format("has task {} but no task {}; expected its {} tasks to be numbered from 0 "
                                 "without gaps",
                                 index, next, by_index.size()));
    addresses.push_back(text_of_address(*entry, key_of({type, index}), source));
  }
  return addresses;
}

Addresses read_job(const Json& cluster, const std::string& type, std::string_view source) {
  const auto job = cluster.find(type);
  if (job == cluster.end()) return {};
  if (job->is_object()) return read_sparse_job(*job, type, source);
  if (!job->is_array())
    throw error_at(source, "cluster." + type,
                   fmt::format(R"(expected a list of addresses like ["host:2222"], got {})", shown(*job)));
  Addresses addresses;
  addresses.reserve(job->size());
  for (const Json& entry : *job)
    addresses.push_back(text_of_address(entry, key_of({type, static_cast<int>(addresses.size())}), source));
  return addresses;
}

int read_replicas_per_task(const Json& root, std::string_view source) {
  constexpr std::string_view key = "replicas_per_task";
  const auto value = root.find(key);
  if (value == root.end()) return 1;
  // The parser calls an integer unsigned if and only if it has no minus sign.
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() == 0)
    throw error_at(source, key, fmt::format("expected a positive integer, got {}", shown(*value)));
  constexpr int most = std::numeric_limits<int>::max();
  if (value->get<std::uint64_t>() > most)
    throw error_at(source, key, fmt::format("expected at most {}, got {}", most, shown(*value)));
  return value->get<int>();
}

}  // namespace

std::string to_string(const Task& task) {
  return fmt::format("{}:{}", task.type, task.index);
}

ClusterSpec ClusterSpec::parse(std::string_view json, std::string_view source) {
  const Json root = spec_json::parse_object(json, source);
  require_known_keys(root, source);
  const auto cluster = root.find("cluster");
  if (cluster == root.end())
    throw ConfigError{
        fmt::format(R"({}: the key "cluster" is missing; expected one like {{"worker": ["host:2222"]}})", source)};
  if (!cluster->is_object())
    throw error_at(source, "cluster",
                   fmt::format(R"(expected an object like {{"worker": ["host:2222"]}}, got {})", shown(*cluster)));
  require_known_jobs(*cluster, source);

  ClusterSpec spec;
  spec.source_ = source;
  for (const char* const type : types) spec.jobs_[type] = read_job(*cluster, type, source);
  for (const char* const type : {"chief", "evaluator"})
    if (const std::size_t count = spec.job(type).size(); count > 1)
      throw error_at(source, fmt::format("cluster.{}", type),
                     fmt::format("names {} {}s; expected at most one", count, type));
  // No two tasks listen at the same place, however it is spelt.
  std::map<std::string, Task> owners;
  for (const char* const type : types)
    for (const std::string& address : spec.job(type)) {
      const Task task{type, static_cast<int>(&address - spec.job(type).data())};
      const auto [other, is_new] = owners.emplace(normalised_address(address).value_or(address), task);
      if (!is_new)
        throw error_at(source, key_of(task),
                       fmt::format("{} and {} have the same address {}; expected one of its own for each task",
                                   to_string(other->second), to_string(task), shown(address)));
    }
  if (spec.num_tasks() == 0)
    throw error_at(source, "cluster", "names no chief and no worker; expected at least one of them");

  spec.replicas_per_task_ = read_replicas_per_task(root, source);
  if (spec.replicas_per_task_ > std::numeric_limits<int>::max() / spec.num_tasks())
    throw error_at(source, "replicas_per_task",
                   fmt::format("{} replicas in each of {} tasks are more ranks than can be counted; expected at "
                               "most {} in all",
                               spec.replicas_per_task_, spec.num_tasks(), std::numeric_limits<int>::max()));
  return spec;
}

ClusterSpec ClusterSpec::from_file(const std::filesystem::path& file) {
  return parse(read_cluster_spec(file), file.string());
}

ClusterSpec ClusterSpec::one_task_per_rank(int ranks) {
  if (ranks < 1) throw InvalidArgument{fmt::format("a job of {} ranks: expected at least 1", ranks)};
  ClusterSpec spec;
  spec.source_ = "one task per rank";
  Addresses& workers = spec.jobs_["worker"];
  workers.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) workers.push_back(fmt::format("localhost:{}", rank + 1));
  return spec;
}

std::vector<Task> ClusterSpec::tasks() const {
  std::vector<Task> tasks;
  for (int number = 0; number < num_tasks(); ++number) tasks.push_back(task(number));
  return tasks;
}

Task ClusterSpec::task(int number) const {
  const int chiefs = has_chief() ? 1 : 0;
  return number < chiefs ? Task{"chief", 0} : Task{"worker", number - chiefs};
}

const std::vector<std::string>& ClusterSpec::job(std::string_view type) const {
  static const Addresses none;
  const auto found = jobs_.find(type);
  return found == jobs_.end() ? none : found->second;
}

bool ClusterSpec::contains(const Task& task) const {
  return task.index >= 0 && static_cast<std::size_t>(task.index) < job(task.type).size();
}

const std::string& ClusterSpec::address(const Task& task) const {
  if (!contains(task)) throw InvalidArgument{fmt::format("{}: there is no task {}", source_, to_string(task))};
  return job(task.type)[static_cast<std::size_t>(task.index)];
}

std::string ClusterSpec::canonical() const {
  nlohmann::json cluster = nlohmann::json::object();  // which sorts its keys
  for (const auto& [type, addresses] : jobs_)
    if (!addresses.empty()) cluster[type] = addresses;
  return nlohmann::json{{"cluster", std::move(cluster)}, {"replicas_per_task", replicas_per_task_}}.dump();
}

}  // namespace lockstep
