// Where a program is: in its source, and in its training.
#pragma once

#include <cstdint>
#include <source_location>

namespace lockstep {

/// A place in the program, for messages. A function whose messages may blame its caller takes one as its last argument,
/// `Here here = Here::current()`.
class Here {
 public:
  /// An unknown place.
  constexpr Here() = default;

  /// A line of a file. With line 0, `file` is a name that the program gives the place itself, as "the residual". The
  /// text must live as long as the program.
  constexpr Here(const char* file, std::uint32_t line) noexcept : file_{file}, line_{line} {}

  /// The place of the call, also where it is a default argument.
  static constexpr Here current(std::source_location at = std::source_location::current()) noexcept {
    return at.line() == 0 ? Here{} : Here{at.file_name(), at.line()};
  }

  constexpr const char* file_name() const noexcept { return file_; }
  constexpr std::uint32_t line() const noexcept { return line_; }

 private:
  const char* file_ = "";
  std::uint32_t line_ = 0;
};

namespace detail {

/// What a user calls an outermost run: Strategy::RunKind.
enum class RunKind : std::uint8_t {
  step,
  evaluation,  ///< of the model after a step
  setup,       ///< before the first step: reads data, makes the model
  sample,      ///< a text that the model writes; its step is the one before, or 0 if that is not known
  prediction,  ///< without training
};

}  // namespace detail
}  // namespace lockstep
