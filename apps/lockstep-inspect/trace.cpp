#include "apps/lockstep-inspect/trace.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/trace/ring_file.hpp"
#include "models/record/run_trace.hpp"

namespace lockstep {
namespace {

/// What had not ended, from the outside to the inside: "step 5, forward, dense_1".
std::string doing(const trace::ReadRing& ring) {
  std::string names;
  constexpr trace::Track first_thread = 0;
  for (const trace::ReadSpan& span : ring.spans)
    if (!span.length && (span.track == first_thread || span.track == trace::parts_track))
      names += (names.empty() ? "" : ", ") + span.name;
  return names;
}

}  // namespace

Report inspect_trace(const std::filesystem::path& folder) {
  Report report;
  const Rings rings = read_rings(folder, [&](trace::ReadRing& ring) {
    write_picture(folder, ring);
    const std::string last = doing(ring);
    report.text += fmt::format("rank-{}.json: replica {} ({}, host {}), {} spans{}{}\n", ring.rank, ring.rank,
                               ring.task, ring.host, ring.spans.size(),
                               ring.lost > 0 ? fmt::format(" after {} that are lost", ring.lost) : "",
                               last.empty() ? "" : "; it was in " + last);
    keep_last_steps(ring);
  });
  write_merged_picture(folder, rings.read);
  report.text += "all-ranks.trace: the last steps of all\n";
  for (const std::string& each : rings.unreadable) report.text += each + "\n";
  return report;
}

}  // namespace lockstep
