// Spans of a program's own work, for the trace of a run.
#pragma once

#include <cstdint>
#include <string_view>

#include <lockstep/core/base/export.hpp>

namespace lockstep::trace {

/// LOCAL, from any thread. A stretch of the program's own work, from its construction to its destruction, as traces
/// show it (RunRecord::Options::trace, lockstep-train --trace):
///
///   const trace::Span reading{"read the next file"};
///
/// Spans of a thread nest like blocks. Keeps the first 40 bytes of `name`. Drops a span in which half a million others
/// begin. Costs two readings of the clock; without a trace, two of a variable.
class [[nodiscard]] LOCKSTEP_API Span {
 public:
  explicit Span(std::string_view name) noexcept;
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span();

 private:
  std::uint64_t number_;  ///< of its record
  std::int64_t begin_;    ///< 0 if there is none
};

}  // namespace lockstep::trace
