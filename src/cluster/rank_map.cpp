#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/cluster/rank_map.hpp>

#include "cluster/counted.hpp"

namespace lockstep {
namespace {

/// "1 chief + 2 workers with 4 replicas each make 12 ranks (the evaluator is none)".
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
  if (spec.has_evaluator()) text += " (the evaluator is none)";
  return text;
}

}  // namespace

RankMap::RankMap(ClusterSpec spec, int world_size) : spec_{std::move(spec)}, tasks_{spec_.tasks()} {
  if (spec_.world_size() != world_size)
    throw ConfigError{fmt::format("{}: {}, but the job has {}; expected mpirun -n {}", spec_.source(),
                                  ranks_named_by(spec_), world_size, spec_.world_size())};
}

void RankMap::require_rank(int rank) const {
  if (rank < 0 || rank >= size())
    throw InvalidArgument{fmt::format("there is no rank {} in a job of {}", rank, counted(size(), "rank"))};
}

const Task& RankMap::task_of(int rank) const {
  require_rank(rank);
  return tasks_[static_cast<std::size_t>(rank / spec_.replicas_per_task())];
}

int RankMap::replica_in_task(int rank) const {
  require_rank(rank);
  return rank % spec_.replicas_per_task();
}

int RankMap::rank_of(const Task& task, int replica) const {
  const auto found = std::find(tasks_.begin(), tasks_.end(), task);
  if (found == tasks_.end()) throw InvalidArgument{fmt::format("{} has no ranks in this job", to_string(task))};
  if (replica < 0 || replica >= spec_.replicas_per_task())
    throw InvalidArgument{fmt::format("there is no replica {} in {}, which has {}", replica, to_string(task),
                                      counted(spec_.replicas_per_task(), "replica"))};
  return static_cast<int>(found - tasks_.begin()) * spec_.replicas_per_task() + replica;
}

std::string RankMap::device_name(int rank, BoundKind kind) const {
  const Task& task = task_of(rank);
  const std::string prefix = fmt::format("/job:{}/task:{}/device:", task.type, task.index);
  switch (kind) {
    case BoundKind::cpu: return prefix + "CPU:0";
    case BoundKind::cuda: return prefix + fmt::format("GPU:{}", replica_in_task(rank));
  }
  throw InvalidArgument{"a device kind that is none"};
}

std::string RankMap::describe_replica(int rank, std::string_view host) const {
  return fmt::format("replica {} ({}, host {})", rank, to_string(task_of(rank)), host);
}

void RankMap::require_tasks_on_one_node(std::span<const std::string> host_of_rank) const {
  if (host_of_rank.size() != static_cast<std::size_t>(size()))
    throw InvalidArgument{fmt::format("{} hosts for {}", host_of_rank.size(), counted(size(), "rank"))};
  for (int rank = 0; rank < size(); ++rank) {
    const int first = rank - replica_in_task(rank);
    const std::string& here = host_of_rank[static_cast<std::size_t>(rank)];
    const std::string& there = host_of_rank[static_cast<std::size_t>(first)];
    if (here != there)
      throw ConfigError{
          fmt::format("{}: {} is spread over two hosts, rank {} on {} and rank {} on {}; expected all {} of a task "
                      "on one host",
                      spec_.source(), to_string(task_of(rank)), first, there, rank, here,
                      counted(spec_.replicas_per_task(), "replica"))};
  }
}

}  // namespace lockstep
