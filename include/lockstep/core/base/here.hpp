// Where a program is: in its source, and in its training.
#pragma once

#include <cstdint>
#include <source_location>

namespace lockstep {

/// A place in the program, for messages. A function whose messages may blame its caller takes one as its last argument.
using Here = std::source_location;

namespace detail {

/// What an outermost run is to the user: Strategy::RunKind.
enum class RunKind : std::uint8_t {
  step,
  evaluation,  ///< of the model as it is after a step
  setup,       ///< before the first step: reads data, makes the model
  sample,      ///< a text that the model writes; its step is the one before, or 0 if that is not known
  prediction,  ///< without training
};

}  // namespace detail
}  // namespace lockstep
