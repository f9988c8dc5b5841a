#include "core/values/type_text.hpp"

#include <cstdlib>
#include <memory>

#include <cxxabi.h>

namespace lockstep::detail {

std::string type_text(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name{abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                    std::free};
  return status == 0 ? name.get() : type.name();
}

}  // namespace lockstep::detail
