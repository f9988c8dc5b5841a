#include "core/base/exit_code.hpp"

namespace lockstep {

Error::ExitCode exit_code_of(const std::exception& error) {
  if (dynamic_cast<const ConfigError*>(&error)) return Error::ExitCode::user_input;
  if (dynamic_cast<const MismatchError*>(&error)) return Error::ExitCode::mismatch;
  if (const auto* peer = dynamic_cast<const PeerError*>(&error)) {
    // A peer's bad input is the user's input, wherever it was found. Any other failure of a peer is `peer_failed` here.
    return peer->cause() == Error::ExitCode::user_input ? Error::ExitCode::user_input : Error::ExitCode::peer_failed;
  }
  if (dynamic_cast<const StallError*>(&error)) return Error::ExitCode::stall;
  if (dynamic_cast<const DriftError*>(&error)) return Error::ExitCode::replicas_differ;
  if (dynamic_cast<const AuditError*>(&error)) return Error::ExitCode::miscomputed;
  if (dynamic_cast<const CheckpointError*>(&error)) return Error::ExitCode::checkpoint;
  if (dynamic_cast<const DivergenceError*>(&error)) return Error::ExitCode::diverged;
  if (dynamic_cast<const StoppedError*>(&error)) return Error::ExitCode::stopped;
  return Error::ExitCode::failure;
}

Error::ExitCode exit_code_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return exit_code_of(error);
  } catch (...) {
    return Error::ExitCode::failure;
  }
}

}  // namespace lockstep
