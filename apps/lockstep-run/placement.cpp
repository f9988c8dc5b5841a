#include "apps/lockstep-run/placement.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/error.hpp>

namespace lockstep::run {
namespace {

using Json = nlohmann::json;

/// "node1" of "node1:2222", and "fd00::1" of "[fd00::1]:2222".
std::string host_of(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

Placement::Placement(const ClusterSpec& spec) : ranks_of_task_{spec.replicas_per_task()} {
  for (const Task& task : spec.tasks()) {
    const std::string& address = spec.address(task);
    if (address.starts_with('-'))
      throw ConfigError{
          fmt::format("{}: {}: expected the name of a host, which begins with no '-'", spec.source(), to_string(task))};
    tasks_.push_back({task.type == "chief", address, host_of(address)});
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

std::string Placement::host_lines() const {
  std::string lines;
  for (const PlacedTask& task : tasks_)
    for (int replica = 0; replica < ranks_of_task_; ++replica) lines += task.host + "\n";
  return lines;
}

std::string Placement::tf_config() const {
  Json cluster = Json::object();
  for (const PlacedTask& task : tasks_) cluster[task.is_chief ? "chief" : "worker"].push_back(task.address);
  if (evaluator_) cluster["evaluator"].push_back(*evaluator_);
  return Json{{"cluster", std::move(cluster)}, {"replicas_per_task", ranks_of_task_}}.dump();
}

std::string quoted_for_shell(const std::string& text) {
  const auto is_plain = [](unsigned char letter) {
    return std::isalnum(letter) || std::string_view{"-_./:=,+@%"}.find(static_cast<char>(letter)) != std::string::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  std::string quoted = "'";
  for (const char letter : text) {
    if (letter == '\'')
      quoted += "'\\''";
    else
      quoted += letter;
  }
  return quoted + "'";
}

}  // namespace lockstep::run
