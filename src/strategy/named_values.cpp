#include <cstdlib>
#include <memory>
#include <vector>

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/named_values.hpp>

namespace lockstep {
namespace {

/// "lockstep::Mirrored<double>", as in the source.
std::string text_of(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name{abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                    std::free};
  return status == 0 ? name.get() : type.name();
}

}  // namespace

void NamedValues::refuse(std::string_view name, const std::type_info& wanted) const {
  std::vector<std::string> all;
  for (const auto& [each, value] : values_) all.push_back(fmt::format("'{}' ({})", each, text_of(value.type())));
  const std::string there_is = all.empty() ? "nothing" : fmt::format("{}", fmt::join(all, ", "));
  throw InvalidArgument{fmt::format("there is no '{}' ({}); there is {}", name, text_of(wanted), there_is)};
}

}  // namespace lockstep
