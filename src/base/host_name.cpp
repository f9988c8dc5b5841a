#include "base/host_name.hpp"

#include <algorithm>
#include <cctype>

#include <unistd.h>

namespace lockstep {

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

bool same_host_name(std::string_view one, std::string_view other) {
  return std::ranges::equal(one, other,
                            [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace lockstep
