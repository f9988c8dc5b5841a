#include "models/fit/frozen_variables.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/excerpt.hpp"

namespace lockstep {

std::vector<std::string> frozen_by(std::span<const std::string> patterns, std::span<const Variable> variables) {
  if (patterns.empty()) return {};
  std::vector<std::string> names;
  for (const Variable& variable : variables) names.emplace_back(variable.name());
  const auto matches = [](const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  for (const std::string& pattern : patterns)
    if (std::ranges::none_of(names, [&](const std::string& name) { return matches(pattern, name); }))
      throw ConfigError{fmt::format("--freeze {}: matches no variable; expected a pattern for some of {}",
                                    excerpt(pattern), excerpt(fmt::format("{}", fmt::join(names, ", "))))};
  std::vector<std::string> frozen;
  for (const std::string& name : names)
    if (std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(pattern, name); }))
      frozen.push_back(name);
  if (frozen.size() == names.size())
    throw ConfigError{fmt::format("--freeze {}: freezes every variable; expected one or more that are trained",
                                  excerpt(fmt::format("{}", fmt::join(patterns, " --freeze "))))};
  return frozen;
}

bool is_frozen(std::span<const std::string> frozen, std::string_view name) {
  return std::ranges::find(frozen, name) != frozen.end();
}

std::vector<Variable> updated_variables(std::span<const Variable> variables, std::span<const std::string> frozen) {
  for (const std::string& name : frozen)
    if (std::ranges::find(variables, name, &Variable::name) == variables.end())
      throw InvalidArgument{fmt::format("frozen variable '{}': the model has none of this name", name)};
  std::vector<Variable> updated;
  std::ranges::copy_if(variables, std::back_inserter(updated),
                       [&](const Variable& variable) { return !is_frozen(frozen, variable.name()); });
  if (updated.empty()) throw InvalidArgument{"every variable of the model is frozen; expected one or more to train"};
  return updated;
}

}  // namespace lockstep
