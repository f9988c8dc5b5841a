#include "apps/lockstep-run/placement.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/base/error.hpp>

namespace lockstep::run {
namespace {

using Json = nlohmann::json;

/// "node1" of "node1:2222".
std::string host_of(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

}  // namespace

Placement::Placement(const ClusterSpec& spec) : ranks_of_task_{spec.replicas_per_task()} {
  for (const Task& task : spec.tasks()) {
    const std::string& address = spec.address(task);
    std::string host = host_of(address);
    // What a spec may have and Open MPI's hostfiles may not.
    if (host.find_first_of("[_") != std::string::npos)
      throw ConfigError{
          fmt::format("{}: {} is at {}; expected an IPv4 address, or a name of letters, digits, '.' and '-', as mpirun "
                      "takes no other",
                      spec.source(), to_string(task), address)};
    tasks_.push_back({task.type == "chief", address, std::move(host)});
  }
  if (spec.has_evaluator()) evaluator_ = spec.address({"evaluator", 0});
}

std::vector<Host> Placement::hosts() const {
  std::vector<Host> hosts;
  for (const PlacedTask& task : tasks_) {
    const auto known = std::ranges::find(hosts, task.host, &Host::name);
    if (known == hosts.end())
      hosts.push_back({task.host, ranks_of_task_});
    else
      known->slots += ranks_of_task_;
  }
  return hosts;
}

Placement Placement::on(std::span<const Host> hosts, int ranks) const {
  Placement some = *this;
  std::erase_if(some.tasks_, [&](const PlacedTask& task) {
    return std::ranges::find(hosts, task.host, &Host::name) == hosts.end();
  });
  const auto count = static_cast<std::size_t>(ranks / ranks_of_task_);
  some.tasks_.erase(some.tasks_.begin() + static_cast<std::ptrdiff_t>(std::min(count, some.tasks_.size())),
                    some.tasks_.end());
  return some;
}

std::vector<std::string> Placement::hosts_of_ranks() const {
  std::vector<std::string> names;
  for (const PlacedTask& task : tasks_) names.insert(names.end(), static_cast<std::size_t>(ranks_of_task_), task.host);
  return names;
}

std::string Placement::host_lines() const {
  std::string lines;
  for (const std::string& host : hosts_of_ranks()) lines += host + "\n";
  return lines;
}

std::string Placement::tf_config() const {
  Json cluster = Json::object();
  for (const PlacedTask& task : tasks_) cluster[task.is_chief ? "chief" : "worker"].push_back(task.address);
  if (evaluator_) cluster["evaluator"].push_back(*evaluator_);
  return Json{{"cluster", std::move(cluster)}, {"replicas_per_task", ranks_of_task_}}.dump();
}

}  // namespace lockstep::run
