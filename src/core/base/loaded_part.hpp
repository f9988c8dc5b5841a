// Libraries of lockstep that a program loads beside liblockstep.so. They know it from inside, and the loader accepts
// any that belong to the same major version.
#pragma once

#include "core/base/parts.hpp"

namespace lockstep {

/// One of them. It has such an object, which lives from when it is loaded to when it is unloaded. The texts must
/// outlive it.
class LOCKSTEP_PARTS_API LoadedPart {
 public:
  LoadedPart(const char* file, const char* version);
  LoadedPart(const LoadedPart&) = delete;
  LoadedPart& operator=(const LoadedPart&) = delete;
  ~LoadedPart();

 private:
  const char* file_;
  const char* version_;
  friend void require_parts_of_this_version();
};

/// ConfigError if one of them belongs to another version.
void require_parts_of_this_version();

}  // namespace lockstep
