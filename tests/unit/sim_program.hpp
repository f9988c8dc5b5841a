// Random programs for simulated jobs: what all ranks do, and what one of them does wrong.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/job/sim/sim.hpp>

#include "job/sim/virtual_time.hpp"

namespace lockstep::test {

/// What the culprit's own exceptions are.
struct Oops : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Operation {
  enum class Kind {
    // In replica context.
    merge,          ///< a merge function that does nothing
    merge_reduce,   ///< one that reduces
    reduce_to_one,  ///< one that reduces to a single replica
    broadcast,      ///< one that broadcasts
    nested,         ///< one that runs `inner`
    all_reduce,
    all_reduce_async,  ///< for which ranks wait at different places
    assign,
    // Outside of every run.
    reduce,
    same_on_all,
    create,
    rebroadcast,
    input,  ///< of one replica, or of none
  };
  Kind kind = Kind::merge;
  int id = 0;  ///< in the order of the program, from 0
  DType dtype = DType::f32;
  std::int64_t count = 1;
  int root = 0;
  std::vector<Operation> inner = {};
};

/// Operations of one run, or outside of any.
struct Step {
  bool runs = true;
  std::vector<Operation> operations = {};
};

enum class Mischief {
  none,
  local_error,   ///< a mistake that is caught where it was made, before anyone hears of it
  throw_before,  ///< an operation, in a run
  throw_inside,  ///< a merge function
  throw_after,
  throw_long,     ///< more text than a tag holds
  throw_outside,  ///< of every run
  early_return,   ///< from a run
  early_exit,     ///< from the job
  extra,          ///< operation
  skip,           ///< an operation
  swap,           ///< two operations
  differ,         ///< in shape, type, operation, root, structure, value or name
  extra_run,
  skip_run,
  late,  ///< for an operation
  die,
  stop,
};
constexpr int mischiefs = 18;

/// Deterministic: a pure function of the seed.
struct Program {
  std::uint64_t seed = 0;
  int ranks = 8;
  std::vector<Step> steps = {};
  Mischief mischief = Mischief::none;
  int culprit = 0;
  int place = -1;      ///< the operation, or the step
  int twist = 0;       ///< how it differs
  int swallower = -1;  ///< another rank, which catches in its runs whatever it can
  int lost = -1;       ///< yet another, which dies in the middle of it; then only that all are told of something counts
  std::vector<sim::Options::Fault> faults = {};
};

Program make_program(std::uint64_t seed);

/// "24 ranks, replica 3: throw_before operation 5": for messages.
std::string describe(const Program& program);

/// What came of it.
struct Played {
  std::vector<std::exception_ptr> of_rank;  ///< the failure that a rank saw first; null for none
  std::vector<bool> ended;                  ///< whether it came to its end, by an exception or without
  std::vector<bool> recovered;              ///< whether it went on in step with all others afterwards
  std::vector<std::string> problems;        ///< wrong sums, and contexts left behind
  std::exception_ptr thrown;                ///< by sim::run
};

Played play(const Program& program, std::function<void(std::string_view)> trace = {});

constexpr sim::Time stall_timeout = std::chrono::seconds{30};

}  // namespace lockstep::test
