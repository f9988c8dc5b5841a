// Places in the program, in words.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/core/base/here.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// The name of the file, without folders, or of a place without a line. Empty if the place is unknown, or in a header
/// of this library or of the standard one, as for a default argument of a constructor that std::make_unique calls. Pass
/// a place there.
std::string_view file_of(const Here& here);

/// `here` as "trainer.cpp:120", or the name of a place without a line; empty if the place is unknown.
LOCKSTEP_PARTS_API std::string site_of(const Here& here);

/// How a message about a call begins: "merge_call (trainer.cpp:120): ".
LOCKSTEP_PARTS_API std::string call_text(std::string_view call, const Here& here);

}  // namespace lockstep
