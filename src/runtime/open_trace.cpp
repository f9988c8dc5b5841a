// The trace of a rank, if the job keeps one.
#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "base/host_name.hpp"
#include "cluster/cluster_spec.hpp"
#include "control/clock_offset.hpp"
#include "runtime/runtime_parts.hpp"

namespace lockstep {

void Runtime::Impl::open_trace() {
  if (options.trace_folder.empty()) return;
  const bool several_nodes = std::ranges::any_of(node.of_rank, [](int first) { return first != 0; });
  const ClockOffset clock = several_nodes ? find_clock_offset(channel()) : ClockOffset{};
  together("opening the trace", [&] {
    std::error_code ignored;  // the file says what is wrong
    std::filesystem::create_directories(options.trace_folder, ignored);
    const int rank = group->rank();
    spans.emplace(trace::Ring::Options{.file = options.trace_folder / fmt::format("rank-{}.ring", rank),
                                       .rank = rank,
                                       .ranks = group->size(),
                                       .task = to_string(ranks->task_of(rank)),
                                       .host = host_name(),
                                       .device = device->name()});
    spans->set_clock(clock.offset, clock.error);
  });
}

}  // namespace lockstep
