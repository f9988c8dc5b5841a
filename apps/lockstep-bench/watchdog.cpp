#include "apps/lockstep-bench/watchdog.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/timing.hpp"
#include "core/control/phase_table.hpp"
#include "core/control/tag.hpp"

namespace lockstep::bench {
namespace {

/// Nanoseconds per call of each: the medians over several turns of many calls. They take turns, so that other load on
/// the machine affects all of them.
template <class... Bodies>
std::array<double, sizeof...(Bodies)> nanoseconds_of(Bodies... bodies) {
  constexpr int calls = 100000, turns = 21;
  std::array<std::vector<double>, sizeof...(Bodies)> times;
  const auto time = [](auto& body) {
    return 1e3 / calls * microseconds([&] {
             for (int call = 0; call < calls; ++call) body(call);
           });
  };
  for (int turn = 0; turn < turns; ++turn) {
    auto of_body = times.begin();
    (of_body++->push_back(time(bodies)), ...);
  }
  std::array<double, sizeof...(Bodies)> medians;
  std::ranges::transform(times, medians.begin(), median);
  return medians;
}

/// The CPU time of this rank's watchdog over `seconds` of sleep, in percent of a core.
double percent_of_a_core(const Runtime& runtime, std::int64_t seconds) {
  const auto before = runtime.watchdog_cpu_time();
  const double passed = microseconds([&] { std::this_thread::sleep_for(std::chrono::seconds{seconds}); });
  const std::chrono::duration<double, std::micro> used = runtime.watchdog_cpu_time() - before;
  return 100 * used.count() / passed;
}

}  // namespace

std::string bench_watchdog(Runtime& runtime, const WatchdogOptions& options, const AddRow& add) {
  MpiBaseline mpi;
  // A table like the job's own, which this must not write to.
  PhaseTable table{SharedMemory::create(PhaseTable::bytes_for(1)), 1, 0};
  std::atomic<std::uint32_t> word{0};
  Tag tag;
  tag.set_site(Here::current());
  const auto [store, meeting, atomic] =
      nanoseconds_of([&](int call) { table.enter(call % 2 ? Phase::computing : Phase::alone); },
                     [&](int call) {
                       table.enter_meeting(static_cast<std::uint64_t>(call), tag);
                       table.leave_meeting();
                     },
                     [&](int call) { word.store(static_cast<std::uint32_t>(call), std::memory_order_release); });
  mpi.barrier();
  const double cpu = percent_of_a_core(runtime, options.seconds);
  const std::vector<double> of_all = mpi.largest({store, meeting, atomic, cpu, cpu > 0 ? 0.0 : 1.0});
  add({{"store", "ns", of_all[0]},
       {"meeting", "ns", of_all[1]},
       {"atomic", "ns", of_all[2]},
       {"ratio", "store/atomic", of_all[0] / of_all[2]},
       {"seconds", "s", options.seconds},
       {"cpu", "% of a core", of_all[3]}});
  return of_all[4] == 0 ? std::string{} : "watchdog: a rank has none; expected one on each";
}

}  // namespace lockstep::bench
