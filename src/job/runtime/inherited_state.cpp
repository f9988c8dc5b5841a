#include "job/runtime/inherited_state.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <sched.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/excerpt.hpp"
#include "core/base/floating_point_modes.hpp"
#include "core/base/foreign_json.hpp"
#include "core/cluster/counted.hpp"

extern char** environ;

namespace lockstep {
namespace {

/// Whether a variable changes how libraries compute, how fast, or from which memory, but not on which cores.
bool is_of_library(std::string_view name) {
  constexpr std::array<std::string_view, 3> cores{"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES"};
  constexpr std::array<std::string_view, 9> families{"OMP_",    "GOMP_",     "KMP_",  "MKL_",   "DNNL_",
                                                     "ONEDNN_", "OPENBLAS_", "BLIS_", "MALLOC_"};
  constexpr std::array<std::string_view, 4> others{"ATEN_CPU_CAPABILITY", "GLIBC_TUNABLES", "LD_PRELOAD",
                                                   "NVIDIA_TF32_OVERRIDE"};
  if (std::ranges::find(cores, name) != cores.end()) return false;
  const auto begins_name = [name](std::string_view family) { return name.starts_with(family); };
  return std::ranges::any_of(families, begins_name) || std::ranges::find(others, name) != others.end();
}

void add_variables(std::map<std::string, std::string>& values) {
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text{*entry};
    const std::size_t equals = text.find('=');
    if (equals != text.npos && is_of_library(text.substr(0, equals)))
      values[std::string{text.substr(0, equals)}] = text.substr(equals + 1);
  }
}

void add_limits(std::map<std::string, std::string>& values) {
  struct Limit {
    decltype(RLIMIT_CPU) resource;
    const char* name;
    const char* unit;
  };
  // Hosts often differ in others, such as that of open files, which are named where they are reached.
  constexpr std::array<Limit, 4> limits{{{RLIMIT_CPU, "limit of CPU time (ulimit -t)", " s"},
                                         {RLIMIT_FSIZE, "limit of a file's size (ulimit -f)", " bytes"},
                                         {RLIMIT_AS, "limit of memory (ulimit -v)", " bytes"},
                                         {RLIMIT_DATA, "limit of data (ulimit -d)", " bytes"}}};
  for (const Limit& each : limits)
    if (rlimit limit = {}; ::getrlimit(each.resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      values[each.name] = fmt::format("{}{}", limit.rlim_cur, each.unit);
}

void add_scheduling(std::map<std::string, std::string>& values) {
  errno = 0;
  if (const int nice = ::getpriority(PRIO_PROCESS, 0); errno == 0 && nice != 0) values["nice"] = fmt::to_string(nice);
  const char* const name = [policy = ::sched_getscheduler(0)]() -> const char* {
    switch (policy & ~SCHED_RESET_ON_FORK) {
      case SCHED_BATCH: return "batch";
      case SCHED_IDLE: return "idle";
      case SCHED_FIFO: return "fifo";
      case SCHED_RR: return "round robin";
      default: return nullptr;
    }
  }();
  if (name) values["scheduling class"] = name;
  if (::prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1) values["transparent huge pages"] = "disabled";
}

std::vector<int> own_cores() {
  std::vector<int> cores;
  cpu_set_t bound;
  if (::sched_getaffinity(0, sizeof bound, &bound) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &bound)) cores.push_back(core);
  return cores;
}

/// "OMP_NUM_THREADS is 4 there, and not set here"
std::vector<std::string> differences(const InheritedState& there, const InheritedState& here) {
  std::set<std::string> names;
  for (const InheritedState* each : {&there, &here})
    for (const auto& [name, value] : each->values) names.insert(name);
  const auto text_of = [](const InheritedState& state, const std::string& name) {
    const auto found = state.values.find(name);
    return found == state.values.end() ? std::string{"not set"} : excerpt(found->second);
  };
  std::vector<std::string> all;
  for (const std::string& name : names)
    if (const std::string its = text_of(there, name), own = text_of(here, name); its != own)
      all.push_back(fmt::format("{} is {} there, and {} here", name, its, own));
  return all;
}

/// Of the ranks of a node that share fewer cores than they are.
std::optional<std::string> crowded_node(std::span<const InheritedState> states, std::span<const int> nodes,
                                        std::span<const std::string> names) {
  for (std::size_t first = 0; first < states.size(); ++first) {
    if (states[first].binding.empty()) continue;
    std::set<int> cores;
    std::size_t ranks = 0;
    for (std::size_t rank = 0; rank < states.size(); ++rank) {
      if (nodes[rank] != nodes[first]) continue;
      ++ranks;
      cores.insert(states[rank].cores.begin(), states[rank].cores.end());
    }
    // Without any, the system has not said which there are.
    if (!cores.empty() && ranks > cores.size())
      return fmt::format(
          "{} and {} of its node share {}: {} binds the first thread of every process to a core; expected "
          "OMP_PROC_BIND=false",
          names[first], counted(static_cast<std::int64_t>(ranks - 1), "other rank"),
          counted(static_cast<std::int64_t>(cores.size()), "core"), states[first].binding);
  }
  return std::nullopt;
}

}  // namespace

std::string openmp_binding() {
  const char* const bind = std::getenv("OMP_PROC_BIND");
  if (bind && ::strcasecmp(bind, "false") == 0) return {};
  if (bind) return fmt::format("OMP_PROC_BIND={}", excerpt(bind));
  for (const char* name : {"GOMP_CPU_AFFINITY", "OMP_PLACES"})
    if (const char* const value = std::getenv(name)) return fmt::format("{}={}", name, excerpt(value));
  return {};
}

InheritedState inherited_state() {
  InheritedState state;
  add_variables(state.values);
  add_limits(state.values);
  add_scheduling(state.values);
  sigset_t blocked;
  state.blocks_sigterm = ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked) == 0 && ::sigismember(&blocked, SIGTERM) == 1;
  state.floating_point_modes = changed_floating_point_modes();
  state.binding = openmp_binding();
  state.cores = own_cores();
  return state;
}

std::string to_text(const InheritedState& state) {
  return OrderedJson{{"values", state.values},
                     {"floating_point_modes", state.floating_point_modes},
                     {"binding", state.binding},
                     {"blocks_sigterm", state.blocks_sigterm},
                     {"cores", state.cores}}
      .dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

InheritedState parse_inherited_state(const std::string& text) {
  const auto json = OrderedJson::parse(text);
  return {.values = json.at("values").get<std::map<std::string, std::string>>(),
          .floating_point_modes = json.at("floating_point_modes").get<std::string>(),
          .binding = json.at("binding").get<std::string>(),
          .blocks_sigterm = json.at("blocks_sigterm").get<bool>(),
          .cores = json.at("cores").get<std::vector<int>>()};
}

std::vector<std::string> doubts_about(std::span<const InheritedState> states, std::span<const int> nodes,
                                      std::span<const std::string> names) {
  std::vector<std::string> doubts;
  const auto changed =
      std::ranges::find_if(states, [](const auto& each) { return !each.floating_point_modes.empty(); });
  if (changed != states.end())
    doubts.push_back(
        fmt::format("in {}, {}: a library compiled with -ffast-math sets this when it is loaded; lockstep "
                    "computes with the modes with which a process starts",
                    names[static_cast<std::size_t>(changed - states.begin())], changed->floating_point_modes));
  const auto blocking = std::ranges::find_if(states, &InheritedState::blocks_sigterm);
  if (blocking != states.end())
    doubts.push_back(
        fmt::format("{} blocks SIGTERM, with which mpirun tells it to end: mpirun kills it instead, and it "
                    "does not say where it was",
                    names[static_cast<std::size_t>(blocking - states.begin())]));
  for (std::size_t rank = 1; rank < states.size(); ++rank)
    if (const auto all = differences(states[rank], states[0]); !all.empty()) {
      doubts.push_back(
          fmt::format("{} was started in a different way than {}: {}; expected the same on every rank (mpirun -x "
                      "NAME passes a variable on)",
                      names[rank], names[0], fmt::join(all, "; ")));
      break;
    }
  if (auto crowded = crowded_node(states, nodes, names)) doubts.push_back(std::move(*crowded));
  return doubts;
}

void require_stack() {
  constexpr rlim_t least = rlim_t{1} << 20, enough = rlim_t{8} << 20;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return;
  const rlim_t given = limit.rlim_cur;
  if (given < enough) {
    limit.rlim_cur = std::min(enough, limit.rlim_max);
    (void)::setrlimit(RLIMIT_STACK, &limit);
  }
  if (limit.rlim_cur < least)
    throw ConfigError{fmt::format("the stack of this process may have {} KiB (ulimit -s); expected at least {} KiB",
                                  limit.rlim_cur >> 10, least >> 10)};
  // glibc takes the size of a thread's stack from the limit at the start of the process.
  pthread_attr_t attributes;
  std::size_t size = 0;
  if (::pthread_getattr_default_np(&attributes) != 0) return;
  if (::pthread_attr_getstacksize(&attributes, &size) == 0 && size < least &&
      ::pthread_attr_setstacksize(&attributes, enough) == 0)
    (void)::pthread_setattr_default_np(&attributes);
  (void)::pthread_attr_destroy(&attributes);
}

}  // namespace lockstep
