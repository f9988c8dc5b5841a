#include "core/cluster/rank_map.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/excerpt.hpp"
#include "core/base/host_name.hpp"
#include "core/cluster/counted.hpp"

namespace lockstep {
namespace {

/// "1 chief + 2 workers with 4 replicas each make 12 ranks (the evaluator is not a rank)".
std::string ranks_named_by(const ClusterSpec& spec) {
  std::string text = spec.has_chief() ? "1 chief" : "";
  if (spec.num_workers() > 0) {
    if (!text.empty()) text += " + ";
    text += counted(spec.num_workers(), "worker");
  }
  const bool one_task = spec.num_tasks() == 1;
  if (spec.replicas_per_task() > 1)
    text += fmt::format(" with {} replicas{}", spec.replicas_per_task(), one_task ? "" : " each");
  text += fmt::format(" {} {}", one_task ? "makes" : "make", counted(spec.world_size(), "rank"));
  if (spec.has_evaluator()) text += " (the evaluator is not a rank)";
  return text;
}

/// Whether both name one node: in full, or one of them without its domain.
bool same_node(std::string_view a, std::string_view b) {
  const auto label = [](std::string_view name) { return name.substr(0, name.find('.')); };
  return same_host_name(a, b) || (same_host_name(label(a), label(b)) && (a == label(a) || b == label(b)));
}

}  // namespace

RankMap::RankMap(ClusterSpec spec, int world_size) : spec_{std::move(spec)} {
  if (spec_.world_size() != world_size)
    throw ConfigError{fmt::format("{}: {}, but the job has {}; expected mpirun -n {}", spec_.source(),
                                  ranks_named_by(spec_), world_size, spec_.world_size())};
}

void RankMap::require_rank(int rank) const {
  if (rank < 0 || rank >= size())
    throw InvalidArgument{fmt::format("there is no rank {} in a job of {}", rank, counted(size(), "rank"))};
}

Task RankMap::task_of(int rank) const {
  require_rank(rank);
  return spec_.task(rank / spec_.replicas_per_task());
}

int RankMap::replica_in_task(int rank) const {
  require_rank(rank);
  return rank % spec_.replicas_per_task();
}

std::string RankMap::device_name(int rank, DeviceKind kind, std::optional<int> number) const {
  const Task task = task_of(rank);
  const std::string prefix = fmt::format("/job:{}/task:{}/device:", task.type, task.index);
  switch (kind) {
    case DeviceKind::cpu: return prefix + "CPU:0";
    case DeviceKind::cuda: return prefix + fmt::format("GPU:{}", number.value_or(replica_in_task(rank)));
  }
  throw InvalidArgument{"unknown kind of device"};
}

std::string RankMap::describe_replica(int rank, std::string_view host, std::optional<int> world_rank) const {
  const std::string world = world_rank ? fmt::format("world rank {}, ", *world_rank) : std::string{};
  return fmt::format("replica {} ({}, {}host {})", rank, to_string(task_of(rank)), world, host);
}

void RankMap::require_tasks_on_one_node(std::span<const std::string> host_of_rank) const {
  if (host_of_rank.size() != static_cast<std::size_t>(size()))
    throw InvalidArgument{fmt::format("{} hosts for {}", host_of_rank.size(), counted(size(), "rank"))};
  for (int rank = 0; rank < size(); ++rank) {
    const int first = rank - replica_in_task(rank);
    const std::string& here = host_of_rank[static_cast<std::size_t>(rank)];
    const std::string& there = host_of_rank[static_cast<std::size_t>(first)];
    if (here != there)
      throw ConfigError{fmt::format(
          "{}: {} is spread over several hosts, such as rank {} on {} and rank {} on {}; expected all {} of a task "
          "on one host",
          spec_.source(), to_string(task_of(rank)), first, there, rank, here,
          counted(spec_.replicas_per_task(), "replica"))};
  }
}

std::string RankMap::named_node(int rank) const {
  const std::string& address = spec_.address(task_of(rank));
  return address.substr(0, address.rfind(':'));
}

bool RankMap::runs_where_named(int rank, std::span<const std::string> host_of_rank) const {
  return same_node(named_node(rank), host_of_rank[static_cast<std::size_t>(rank)]);
}

void RankMap::require_tasks_where_named(std::span<const std::string> host_of_rank) const {
  for (int rank = 0; rank < size(); rank += spec_.replicas_per_task()) {
    const std::string named = named_node(rank);
    if (runs_where_named(rank, host_of_rank) ||
        std::ranges::none_of(host_of_rank, [&](const std::string& host) { return same_node(named, host); }))
      continue;
    throw ConfigError{fmt::format(
        "{}: {} is named to be on {}, but mpirun started it on {}; expected a hostfile in the "
        "order of the spec",
        spec_.source(), to_string(task_of(rank)), excerpt(named), host_of_rank[static_cast<std::size_t>(rank)])};
  }
}

std::string RankMap::doubt_about_nodes(std::span<const std::string> host_of_rank) const {
  for (int rank = 0; rank < size(); rank += spec_.replicas_per_task()) {
    if (runs_where_named(rank, host_of_rank)) continue;
    const std::string& host = host_of_rank[static_cast<std::size_t>(rank)];
    for (int other = 0; other < size(); other += spec_.replicas_per_task())
      if (same_node(named_node(other), host))
        return fmt::format(
            "{}: {} is named to be on {}, but runs on {}, the node of {}; expected a hostfile in the "
            "order of the spec, unless {} is another name of that node",
            spec_.source(), to_string(task_of(rank)), excerpt(named_node(rank)), host, to_string(task_of(other)),
            excerpt(named_node(rank)));
  }
  return {};
}

}  // namespace lockstep
