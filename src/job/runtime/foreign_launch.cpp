// A launcher of another MPI than this program's. It starts processes that do not know of each other.
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <mpi.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/awake_clock.hpp"
#include "core/base/open_line.hpp"
#include "core/cluster/launch.hpp"
#include "core/comm/mpi/mpi_handle.hpp"
#include "core/comm/mpi/mpi_library.hpp"
#include "core/watch/report_claim.hpp"
#include "job/runtime/launcher.hpp"
#include "job/runtime/mpi_session.hpp"
#include "job/runtime/siblings.hpp"

namespace lockstep {
namespace {

/// Many launchers end a job as soon as one of its processes has failed, and only one of them prints the line. Those
/// cannot talk to each other: so the others stay until that one has ended, or would have had time to.
void let_first_speak(const std::string& variable_of_first) {
  constexpr std::chrono::seconds patience{3};
  const auto start = AwakeClock::now();
  bool seen = false;
  while (AwakeClock::now() - start < patience) {
    const bool is_here = has_sibling_with(variable_of_first);
    if (seen && !is_here) return;
    seen = is_here;
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
}

}  // namespace

void refuse_foreign_launch() {
  const auto variable = [](const char* name) { return std::getenv(name); };
  const std::string library = mpi_library();
  const bool started = MpiSession::has_been_started();
  if (!started && !cannot_start(variable, library)) return;
  int ranks = 0;
  if (started) check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
  auto launch = find_foreign_launch(variable, nearest_launcher(), ranks);
  // In a shell of srun's on a terminal.
  if (!launch && !started) launch = Launch{.kind = LauncherKind::slurm};
  if (!launch) return;
  if (launch->is_first) {
    print_last_line(fmt::format("lockstep: error: {}", describe_foreign_launch(*launch, ranks, library)),
                    static_cast<int>(Error::ExitCode::user_input));
    std::this_thread::sleep_for(until_claim_is_seen);
  } else {
    (void)claim_report(nullptr, std::nullopt);  // else the watch would say that the first one has ended
    let_first_speak(launch->variable_of_first);
  }
  if (started) MpiSession::finalize();
  std::_Exit(static_cast<int>(Error::ExitCode::user_input));
}

}  // namespace lockstep
