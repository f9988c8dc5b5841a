// One fault at any moment of a job, its start and its end too: LOCKSTEP_RANDOM_FAULTS of them, which scripts/test
// --extended sets, half of them on one host and half on two. Each is a seed's choice; LOCKSTEP_RANDOM_FAULTS_SEED plays
// one again.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "faults/running_job.hpp"
#include "support/hosts.hpp"
#include "support/run_tests.hpp"
#include "support/this_mpi.hpp"

using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

constexpr double stall_timeout = 2;

int from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

enum class Kind { kill, stop, cut };

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kill: return "kill -9";
    case Kind::stop: return "kill -STOP";
    case Kind::cut: return "cable out";
  }
  return "?";
}

struct Plan {
  Kind kind;
  int hosts;
  int ranks_each;
  int victim;                       ///< rank; of a cut the host's lowest
  std::chrono::microseconds delay;  ///< since the victim's process is there
  bool without_end;                 ///< else the job is over after about a second

  std::string text() const {
    return fmt::format("{} of rank {} of {} on {} host(s), {:.3f} s after its start, in a job {} end", name_of(kind),
                       victim, hosts * ranks_each, hosts, std::chrono::duration<double>{delay}.count(),
                       without_end ? "without" : "with an");
  }
};

Plan plan_of(int seed, int hosts) {
  std::mt19937 random{static_cast<std::mt19937::result_type>(seed)};
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  Plan plan{};
  plan.hosts = hosts;
  plan.kind = static_cast<Kind>(below(plan.hosts > 1 ? 3 : 2));
  plan.ranks_each = plan.hosts > 1 ? 1 + below(2) : 2 + 2 * below(2);
  plan.victim = plan.kind == Kind::cut ? plan.ranks_each : below(plan.hosts * plan.ranks_each);
  plan.delay = std::chrono::microseconds{below(2'500'000)};
  plan.without_end = below(2) == 0;
  return plan;
}

/// What came of a fault.
struct Fate {
  enum class What {
    named,      ///< one line, of the right rank
    unnamed,    ///< the job ended, and nobody could say why: MPI was starting or ending
    no_effect,  ///< the job was over, or as good as over
    wrong,
  };
  What what;
  double after_timeout = 0;  ///< seconds
};

const char* name_of(Fate::What what) {
  switch (what) {
    case Fate::What::named: return "named";
    case Fate::What::unnamed: return "unnamed";
    case Fate::What::no_effect: return "no effect";
    case Fate::What::wrong: return "wrong";
  }
  return "?";
}

void strike(const Plan& plan, RunningJob& job, const std::optional<Hosts>& hosts, bool& struck) {
  std::optional<pid_t> process;
  while (!process && !job.is_over()) process = job.find(plan.victim);
  std::this_thread::sleep_for(plan.delay);
  job.suffer([&] {
    process = job.find(plan.victim);
    struck = process.has_value();
    if (!struck) return;
    if (plan.kind == Kind::cut)
      hosts->cut(1);
    else
      (void)::kill(*process, plan.kind == Kind::kill ? SIGKILL : SIGSTOP);
  });
}

Fate play(const Plan& plan) {
  const SharedMemory memory;
  std::optional<Hosts> hosts;
  if (plan.hosts > 1) hosts.emplace(plan.hosts);
  const Launch launch =
      !hosts ? on_this_host(plan.ranks_each) : Launch{[&](const Arguments& arguments, const CommandOptions& options) {
        return run_job_on(*hosts, plan.ranks_each, arguments, options, keepalive());
      }};
  RunningJob job{launch, plan.without_end ? without_end() : Arguments{"--steps", "400"}, memory};
  bool struck = false;
  strike(plan, job, hosts, struck);
  std::chrono::duration<double> after{0};
  const Outcome outcome = job.end(after);
  INFO("exit code " << outcome.exit_code << ", stderr: " << outcome.err);
  CHECK_FALSE(outcome.timed_out);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  // Cut off while MPI starts, a side without mpirun cannot tell that from a slow start, and waits for it.
  const bool trained = outcome.err.find("step 400/400") != std::string::npos;
  const bool cut_in_start = plan.kind == Kind::cut && lines.empty() && !trained;
  // Cut off after its ranks have ended, a daemon of mpirun's stays until TCP gives its last message up.
  const bool cut_at_end = plan.kind == Kind::cut && lines.empty() && trained;
  CHECK(processes_left(outcome.marker, cut_in_start ? 32s : 10s, cut_at_end ? Which::ranks : Which::all) ==
        std::vector<std::string>{});
  kill_processes(outcome.marker);
  CHECK(memory.left() == std::set<std::string>{});
  // Whether a node that says nothing yet is slow or out of reach takes longer to tell while MPI starts.
  const bool unsure = !lines.empty() && lines.front().find(" waited ") != std::string::npos;
  const std::chrono::duration<double> promised{stall_timeout + 5 + (unsure ? 22 : 0)};
  CHECK(after < on_this_machine(promised));
  CHECK(lines.size() <= (plan.hosts > 1 && !ends_with_any_rank ? 2 : 1));
  Fate fate{Fate::What::wrong, after.count() - stall_timeout};
  if (lines.empty()) {
    const bool over = outcome.exit_code == 0;
    CHECK((over || (struck && plan.kind != Kind::stop)));
    fate.what = over ? Fate::What::no_effect : Fate::What::unnamed;
  } else if (lines.front().starts_with(fmt::format("lockstep: replica {} ", plan.victim))) {
    fate.what = Fate::What::named;
  } else if (unsure) {
    fate.what = Fate::What::unnamed;
  }
  CHECK(fate.what != Fate::What::wrong);
  return fate;
}

void print_table(const std::map<Kind, std::vector<Fate>>& fates) {
  fmt::print("{:<12}{:>7}{:>7}{:>9}{:>11}{:>7}{:>20}{:>13}\n", "fault", "count", "named", "unnamed", "no effect",
             "wrong", "end - timeout (s)", "largest (s)");
  for (const auto& [kind, all] : fates) {
    const auto count = [&](Fate::What what) {
      return std::count_if(all.begin(), all.end(), [&](const Fate& fate) { return fate.what == what; });
    };
    std::vector<double> times;
    for (const Fate& fate : all)
      if (fate.what != Fate::What::no_effect) times.push_back(fate.after_timeout);
    std::sort(times.begin(), times.end());
    fmt::print("{:<12}{:>7}{:>7}{:>9}{:>11}{:>7}{:>20.2f}{:>13.2f}\n", name_of(kind), all.size(),
               count(Fate::What::named), count(Fate::What::unnamed), count(Fate::What::no_effect),
               count(Fate::What::wrong), times.empty() ? 0 : times[times.size() / 2], times.empty() ? 0 : times.back());
  }
}

void play_faults(int hosts) {
  const int only = from_environment("LOCKSTEP_RANDOM_FAULTS_SEED", 0);
  const int first = only > 0 ? only : from_environment("LOCKSTEP_RANDOM_FAULTS_BASE", 1);
  const int count = only > 0 ? 1 : (from_environment("LOCKSTEP_RANDOM_FAULTS", 2) + 1) / 2;
  std::map<Kind, std::vector<Fate>> fates;
  int named = 0;
  // A fault may come too late to have an effect, but not always. One that a seed is asked for stands for itself.
  const int most = only > 0 ? 1 : count + 8;
  for (int seed = first; seed < first + count || (named == 0 && seed < first + most); ++seed) {
    const Plan plan = plan_of(seed, hosts);
    INFO("LOCKSTEP_RANDOM_FAULTS_SEED=" << seed << ": " << plan.text());
    const Fate fate = play(plan);
    if (count > 5)
      fmt::print(stderr, "seed {}: {}: {}, {:.2f} s after the timeout\n", seed, plan.text(), name_of(fate.what),
                 fate.after_timeout);
    fates[plan.kind].push_back(fate);
    if (fate.what == Fate::What::named) ++named;
  }
  print_table(fates);
  if (only == 0) CHECK(named > 0);
}

}  // namespace

TEST_CASE("a fault at any moment ends the job in time, and whoever is named is the right one", "[B-45][B-46]") {
  play_faults(1);
}

TEST_CASE("a fault at any moment of a job on two hosts does too, and the right host is named", "[hosts]") {
  if (const auto reason = Hosts::why_not()) return skip("this machine cannot play several hosts: " + *reason);
  play_faults(2);
}
