#include "sim_program.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>

namespace lockstep::test {
namespace {

using Kind = Operation::Kind;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_{seed, RandomStream::Purpose::simulation, 1} {}

  int below(std::size_t bound) { return static_cast<int>(random_.below(bound, next_++)); }

  template <class T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(below(choices.size()))];
  }

 private:
  RandomStream random_;
  std::uint64_t next_ = 0;
};

/// Where mischief can be done.
struct Places {
  std::vector<int> all, in_runs, merges, before_another_kind, can_differ;
};

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : draw_{seed} { program_.seed = seed; }

  Program make() {
    program_.ranks = 8 + draw_.below(57);
    for (int steps = 1 + draw_.below(3); steps > 0; --steps) {
      Step step{.runs = draw_.below(4) > 0};
      step.operations = operations(step.runs, 0);
      program_.steps.push_back(std::move(step));
    }
    program_.mischief = static_cast<Mischief>(draw_.below(mischiefs));
    program_.culprit = draw_.below(static_cast<std::size_t>(program_.ranks));
    program_.twist = draw_.below(12);
    if (draw_.below(3) == 0) program_.swallower = another();
    place();
    if (draw_.below(8) == 0) {
      program_.lost = another();
      program_.faults.push_back({.rank = program_.lost, .time = std::chrono::microseconds{draw_.below(1500)}});
    }
    return program_;
  }

 private:
  /// A rank that is not the culprit.
  int another() {
    const auto others = static_cast<std::size_t>(program_.ranks - 1);
    return (program_.culprit + 1 + draw_.below(others)) % program_.ranks;
  }

  std::vector<Operation> operations(bool in_run, int depth) {
    static const std::vector<Kind> in_runs{Kind::merge,  Kind::merge_reduce, Kind::reduce_to_one,    Kind::broadcast,
                                           Kind::nested, Kind::all_reduce,   Kind::all_reduce_async, Kind::assign};
    static const std::vector<Kind> outside{Kind::reduce, Kind::same_on_all, Kind::create, Kind::rebroadcast,
                                           Kind::input};
    std::vector<Operation> made;
    for (int left = 1 + draw_.below(depth == 0 ? 4 : 2); left > 0; --left) {
      Operation operation{.kind = draw_.one_of(in_run ? in_runs : outside)};
      if (operation.kind == Kind::nested && depth == 2) operation.kind = Kind::merge;
      operation.id = next_id_++;
      operation.dtype = draw_.one_of(std::vector{DType::f32, DType::f64, DType::i32, DType::i64});
      operation.count = draw_.one_of(std::vector<std::int64_t>{0, 1, 3, 100, 1500});
      operation.root = draw_.below(static_cast<std::size_t>(program_.ranks));
      if (operation.kind == Kind::nested) operation.inner = operations(true, depth + 1);
      note(operation, in_run);
      if (!made.empty() && made.back().kind != operation.kind) places_.before_another_kind.push_back(made.back().id);
      made.push_back(std::move(operation));
    }
    return made;
  }

  void note(const Operation& operation, bool in_run) {
    const auto is = [&](std::initializer_list<Kind> kinds) {
      return std::ranges::find(kinds, operation.kind) != kinds.end();
    };
    places_.all.push_back(operation.id);
    if (in_run) places_.in_runs.push_back(operation.id);
    if (is({Kind::merge, Kind::merge_reduce, Kind::reduce_to_one, Kind::broadcast, Kind::nested}))
      places_.merges.push_back(operation.id);
    if (!is({Kind::assign, Kind::nested, Kind::rebroadcast})) places_.can_differ.push_back(operation.id);
  }

  void place() {
    switch (program_.mischief) {
      case Mischief::none: return;
      case Mischief::die:
      case Mischief::stop: return add_fault();
      case Mischief::local_error:
      case Mischief::extra:
      case Mischief::skip:
      case Mischief::late: return at_one_of(places_.all);
      case Mischief::throw_before:
      case Mischief::throw_after:
      case Mischief::throw_long:
      case Mischief::early_return: return at_one_of(places_.in_runs);
      case Mischief::throw_inside: return at_one_of(places_.merges);
      case Mischief::swap: return at_one_of(places_.before_another_kind);
      case Mischief::differ: return at_one_of(places_.can_differ);
      case Mischief::throw_outside:
      case Mischief::early_exit:
      case Mischief::extra_run: return at_one_of(steps([](const Step&) { return true; }));
      case Mischief::skip_run: return at_one_of(steps([](const Step& step) { return step.runs; }));
    }
  }

  template <class Wanted>
  std::vector<int> steps(Wanted&& wanted) const {
    std::vector<int> found;
    for (std::size_t i = 0; i < program_.steps.size(); ++i)
      if (wanted(program_.steps[i])) found.push_back(static_cast<int>(i));
    return found;
  }

  void at_one_of(const std::vector<int>& places) {
    if (places.empty()) {
      program_.mischief = Mischief::none;
    } else {
      program_.place = draw_.one_of(places);
    }
  }

  void add_fault() {
    sim::Options::Fault fault{
        .kind = program_.mischief == Mischief::die ? sim::Options::Fault::Kind::die : sim::Options::Fault::Kind::stop,
        .rank = program_.culprit};
    if (draw_.below(2) == 0) {
      fault.point = static_cast<std::uint64_t>(draw_.below(60));
    } else {
      fault.time = std::chrono::microseconds{draw_.below(1500)};
    }
    program_.faults.push_back(fault);
  }

  Draw draw_;
  Program program_;
  Places places_;
  int next_id_ = 0;
};

constexpr std::array<std::string_view, mischiefs> mischief_names{
    "none",          "local_error",  "throw_before", "throw_inside", "throw_after", "throw_long",
    "throw_outside", "early_return", "early_exit",   "extra",        "skip",        "swap",
    "differ",        "extra_run",    "skip_run",     "late",         "die",         "stop"};

}  // namespace

Program make_program(std::uint64_t seed) {
  return Maker{seed}.make();
}

std::string describe(const Program& program) {
  std::string text = fmt::format("{} ranks, replica {}: {}", program.ranks, program.culprit,
                                 mischief_names[static_cast<std::size_t>(program.mischief)]);
  if (program.place >= 0) text += fmt::format(" at {}", program.place);
  if (program.swallower >= 0) text += fmt::format("; replica {} swallows", program.swallower);
  if (program.lost >= 0) text += fmt::format("; replica {} dies", program.lost);
  return text;
}

}  // namespace lockstep::test
