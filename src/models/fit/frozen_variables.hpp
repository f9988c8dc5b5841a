// Variables that no step updates.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/sync/strategy/variable.hpp>

namespace lockstep {

/// The names of those variables that one of `patterns` matches, in their order: globs as the shell has them, whose `*`
/// matches slashes too. ConfigError, which lists the names, for a pattern that matches none, and if no variable is
/// left.
std::vector<std::string> frozen_by(std::span<const std::string> patterns, std::span<const Variable> variables);

bool is_frozen(std::span<const std::string> frozen, std::string_view name);

/// The variables that steps update. InvalidArgument for a name in `frozen` that none has, and if none is left.
std::vector<Variable> updated_variables(std::span<const Variable> variables, std::span<const std::string> frozen);

}  // namespace lockstep
