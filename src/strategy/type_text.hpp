// Demangled names of types, for messages.
#pragma once

#include <string>
#include <typeinfo>

namespace lockstep::detail {

/// "lockstep::Mirrored<double>".
std::string type_text(const std::type_info& type);

}  // namespace lockstep::detail
