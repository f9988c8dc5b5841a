#include "base/exit_code.hpp"

namespace lockstep {

ExitCode exit_code_of(const std::exception& error) {
  if (dynamic_cast<const ConfigError*>(&error)) return ExitCode::user_input;
  if (dynamic_cast<const MismatchError*>(&error)) return ExitCode::mismatch;
  if (const auto* peer = dynamic_cast<const PeerError*>(&error)) {
    // A peer's bad input is the user's input, wherever it was found. Any other failure of a peer is `peer_failed` here.
    return peer->cause() == ExitCode::user_input ? ExitCode::user_input : ExitCode::peer_failed;
  }
  if (dynamic_cast<const StallError*>(&error)) return ExitCode::stall;
  if (dynamic_cast<const AttestationError*>(&error)) return ExitCode::replicas_differ;
  if (dynamic_cast<const CheckpointError*>(&error)) return ExitCode::checkpoint;
  if (dynamic_cast<const DivergenceError*>(&error)) return ExitCode::diverged;
  if (dynamic_cast<const StoppedError*>(&error)) return ExitCode::stopped;
  return ExitCode::failure;
}

ExitCode exit_code_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return exit_code_of(error);
  } catch (...) {
    return ExitCode::failure;
  }
}

}  // namespace lockstep
