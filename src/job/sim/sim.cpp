#include <exception>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>

#include "core/base/loaded_part.hpp"
#include "job/sim/job.hpp"
#include "job/sim/virtual_time.hpp"

namespace lockstep::sim {
namespace {

thread_local const Current* current = nullptr;

const Current& require_current(const char* function) {
  if (!current) throw ContextError{fmt::format("sim::{} is for the ranks of sim::run; this thread is none", function)};
  return *current;
}

/// Whether an exception is taking the rank out of the job: a destructor that waited could throw a second one.
bool is_leaving(const Current& rank) {
  return std::uncaught_exceptions() > 0 && rank.job.is_leaving(rank.rank);
}

}  // namespace

Current::Current(Job& its_job, int its_rank) : job{its_job}, rank{its_rank} {
  current = this;
}
Current::~Current() {
  current = nullptr;
}

void run(Options options, std::function<void(Strategy&, int rank)> body) {
  require_parts_of_this_version();
  Job{std::move(options), std::move(body)}.run();
}

void run_on(Network& network, Options options, std::function<void(Strategy&, int rank)> body) {
  options.longest_latency = Time{0};
  Job{std::move(options), std::move(body), &network}.run();
}

void yield() {
  if (current && !is_leaving(*current)) current->job.point(current->rank, "yield");
}

void sleep(Time length) {
  const Current& rank = require_current("sleep");
  if (!is_leaving(rank)) rank.job.sleep(rank.rank, length);
}

Time now() {
  return require_current("now").job.now();
}

std::uint64_t points() {
  const Current& rank = require_current("points");
  return rank.job.points(rank.rank);
}

}  // namespace lockstep::sim
