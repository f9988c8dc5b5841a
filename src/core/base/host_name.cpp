#include "core/base/host_name.hpp"

#include <unistd.h>

#include "core/base/lower_case.hpp"

namespace lockstep {

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

bool same_host_name(std::string_view one, std::string_view other) {
  return lower_case(one) == lower_case(other);
}

}  // namespace lockstep
