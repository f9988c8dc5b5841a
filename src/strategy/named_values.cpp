#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/named_values.hpp>

#include "strategy/type_text.hpp"

namespace lockstep {

void NamedValues::refuse(std::string_view name, const std::type_info& wanted) const {
  std::vector<std::string> all;
  for (const auto& [each, value] : values_)
    all.push_back(fmt::format("'{}' ({})", each, detail::type_text(value.type())));
  const std::string there_is = all.empty() ? "nothing" : fmt::format("{}", fmt::join(all, ", "));
  throw InvalidArgument{fmt::format("there is no '{}' ({}); there is {}", name, detail::type_text(wanted), there_is)};
}

}  // namespace lockstep
