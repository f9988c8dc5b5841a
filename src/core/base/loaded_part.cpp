#include "core/base/loaded_part.hpp"

#include <algorithm>
#include <mutex>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/excerpt.hpp"

namespace lockstep {
namespace {

// A program may load libraries on any thread.
struct LoadedParts {
  std::mutex mutex;
  std::vector<const LoadedPart*> parts;
};

LoadedParts& loaded() {
  static LoadedParts parts;
  return parts;
}

}  // namespace

LoadedPart::LoadedPart(const char* file, const char* version) : file_{file}, version_{version} {
  LoadedParts& all = loaded();
  const std::lock_guard lock{all.mutex};
  all.parts.push_back(this);
}

LoadedPart::~LoadedPart() {
  LoadedParts& all = loaded();
  const std::lock_guard lock{all.mutex};
  std::erase(all.parts, this);
}

void require_parts_of_this_version() {
  LoadedParts& all = loaded();
  const std::lock_guard lock{all.mutex};
  for (const LoadedPart* const part : all.parts)
    if (part->version_ != std::string_view{LOCKSTEP_VERSION})
      throw ConfigError{
          fmt::format("{} belongs to lockstep {}, and liblockstep.so to lockstep {}; expected both from "
                      "one installation",
                      part->file_, excerpt(part->version_), LOCKSTEP_VERSION)};
}

}  // namespace lockstep
