// How sentences name several replicas.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::detail {

/// "replica 1 (worker:0, host b) and replicas 2, 3": the first by its full name. `names[r]` is the name of replica r.
inline std::string named_by_first(std::span<const int> replicas, std::span<const std::string> names) {
  const auto others = replicas.subspan(1);
  std::string text = names[static_cast<std::size_t>(replicas.front())];
  if (!others.empty()) text += fmt::format(" and replica{} {}", others.size() > 1 ? "s" : "", fmt::join(others, ", "));
  return text;
}

}  // namespace lockstep::detail
