// From exceptions to exit codes.
#pragma once

#include <exception>

#include <lockstep/core/base/error.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// Whether the user's options or files caused a failure, so that no rank is to blame for it.
constexpr bool is_about_input(Error::ExitCode code) {
  return code == Error::ExitCode::user_input || code == Error::ExitCode::checkpoint;
}

/// The exit code for `error`; `Error::ExitCode::failure` for types without a code of their own. A PeerError gives
/// `user_input` if that is its cause, otherwise `peer_failed`.
Error::ExitCode exit_code_of(const std::exception& error);
/// `exception` must not be null.
LOCKSTEP_PARTS_API Error::ExitCode exit_code_of(const std::exception_ptr& exception);

}  // namespace lockstep
