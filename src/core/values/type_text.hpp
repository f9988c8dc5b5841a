// Demangled names of types, for messages.
#pragma once

#include <string>
#include <typeinfo>

#include "core/base/parts.hpp"

namespace lockstep::detail {

/// "lockstep::Mirrored<double>".
LOCKSTEP_PARTS_API std::string type_text(const std::type_info& type);

}  // namespace lockstep::detail
