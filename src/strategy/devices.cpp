// The names of devices: a table made when the job starts and read locally from then on.
#include <algorithm>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "strategy/defaults.hpp"
#include "strategy/strategy_core.hpp"

namespace lockstep {
namespace {

const std::vector<std::string>& table_of(Strategy& strategy, std::string_view method) {
  if (detail::is_default(strategy))
    throw ContextError{fmt::format("{}() method unsupported by the default strategy", method)};
  return strategy.group().device_names();
}

}  // namespace

std::vector<std::string> StrategyExtended::worker_devices() const {
  return table_of(*strategy_, "worker_devices");
}

std::vector<std::vector<std::string>> StrategyExtended::worker_devices_by_replica() const {
  std::vector<std::vector<std::string>> by_replica;
  for (const std::string& device : table_of(*strategy_, "worker_devices_by_replica")) by_replica.push_back({device});
  return by_replica;
}

std::vector<std::string> StrategyExtended::parameter_devices() const {
  return table_of(*strategy_, "parameter_devices");
}

std::vector<std::string> StrategyExtended::non_slot_devices(const detail::VariableList& variables) const {
  if (!detail::is_default(*strategy_)) return {strategy_->group().device_name()};
  if (variables.size() == 0)
    throw InvalidArgument{"non_slot_devices: the default strategy takes the place of a variable; got none"};
  const Variable& first = *std::ranges::min_element(variables, {}, &Variable::name);
  return {detail::strategy_of(first).group().device_name()};
}

}  // namespace lockstep
