// How sentences name replicas.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::detail {

/// "2" of "replica 2 (worker:1, host b)": the job's number, also in a group.
inline std::string_view number_of(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_of("0123456789"), name.size()));
  return name.substr(0, name.find_first_not_of("0123456789"));
}

/// "2, 3", where `names[r]` is the name of rank r.
inline std::string numbers_of(std::span<const int> ranks, std::span<const std::string> names) {
  std::vector<std::string_view> numbers;
  for (const int rank : ranks) numbers.push_back(number_of(names[static_cast<std::size_t>(rank)]));
  return fmt::format("{}", fmt::join(numbers, ", "));
}

/// "replica 1 (worker:0, host b) and replicas 2, 3": the first by its full name. `names[r]` is the name of rank r.
inline std::string named_by_first(std::span<const int> replicas, std::span<const std::string> names) {
  const auto others = replicas.subspan(1);
  std::string text = names[static_cast<std::size_t>(replicas.front())];
  if (!others.empty())
    text += fmt::format(" and replica{} {}", others.size() > 1 ? "s" : "", numbers_of(others, names));
  return text;
}

}  // namespace lockstep::detail
