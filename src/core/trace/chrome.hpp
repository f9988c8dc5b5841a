// Traces in the format of Chrome's trace viewer, which Perfetto and Holistic Trace Analysis read too.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>

#include "core/base/parts.hpp"
#include "core/trace/ring_file.hpp"

namespace lockstep::trace {

/// Steps of a run, both included.
struct Steps {
  std::uint32_t first = 0;
  std::uint32_t last = std::numeric_limits<std::uint32_t>::max();
};

/// The last `count` steps, or fewer where a ring has lost the spans of earlier ones.
LOCKSTEP_PARTS_API Steps last_steps(std::span<const ReadRing> rings, std::uint32_t count);

/// How a file of them begins.
inline constexpr std::string_view chrome_begin = "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\n";

/// Passes the spans of `steps` on to `write`, piece by piece, as one JSON object. A rank is a process there, its
/// threads and tracks are threads, and times are microseconds of the clock of rank 0's host. The trace of one rank has
/// "distributedInfo", as PyTorch's have.
///
/// The format: "Trace Event Format", Duvanenko and others, Google, 2016.
LOCKSTEP_PARTS_API void write_chrome(std::span<const ReadRing> rings, const Steps& steps,
                                     const std::function<void(std::string_view)>& write);

}  // namespace lockstep::trace
