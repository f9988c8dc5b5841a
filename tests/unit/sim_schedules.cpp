// Random programs with one random mischief under random schedules: every rank that is still there gets the same typed
// error, which names the culprit, and where nothing went wrong every sum is exact.
//
// LOCKSTEP_SIM_SCHEDULES says how many (200), LOCKSTEP_SIM_BASE where their seeds begin (0), and LOCKSTEP_SIM_SEED
// plays one again and prints what happens in it.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/control/exceptions.hpp"
#include "sim_program.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// What must come of a mischief.
enum class Ending { fine, own_failure, mismatch, gone, stopped, late };

Ending ending_of(Mischief mischief) {
  switch (mischief) {
    case Mischief::none:
    case Mischief::local_error: return Ending::fine;
    case Mischief::throw_before:
    case Mischief::throw_inside:
    case Mischief::throw_after:
    case Mischief::throw_long:
    case Mischief::throw_outside: return Ending::own_failure;
    case Mischief::early_return:
    case Mischief::early_exit:
    case Mischief::extra:
    case Mischief::skip:
    case Mischief::swap:
    case Mischief::differ:
    case Mischief::extra_run:
    case Mischief::skip_run: return Ending::mismatch;
    case Mischief::late: return Ending::late;
    case Mischief::die: return Ending::gone;
    case Mischief::stop: return Ending::stopped;
  }
  return Ending::fine;
}

template <class E>
bool is(const std::exception_ptr& exception) {
  try {
    if (exception) std::rethrow_exception(exception);
  } catch (const E&) {
    return true;
  } catch (...) {
  }
  return false;
}

bool is_of(Ending ending, const std::exception_ptr& exception) {
  switch (ending) {
    case Ending::fine: return exception == nullptr;
    case Ending::own_failure:
    case Ending::gone: return is<PeerError>(exception);
    case Ending::mismatch: return is<MismatchError>(exception);
    case Ending::stopped:
    case Ending::late: return is<StallError>(exception);
  }
  return false;
}

std::string_view said_of_culprit(Ending ending) {
  switch (ending) {
    case Ending::fine:
    case Ending::mismatch: break;
    case Ending::own_failure: return "failed: ";
    case Ending::gone: return "is gone: its process ended; it was ";
    case Ending::stopped: return "has stopped: no sign of life for 30 s; it was ";
    case Ending::late: return "is late: ";
  }
  return "";
}

std::string text_of(const std::exception_ptr& exception) {
  return exception ? message_of(exception) : "nothing";
}

/// With two culprits, what is found first depends on the schedule: but everyone is told of something.
std::vector<std::string> problems_of_two(const Program& program, const Played& played) {
  std::vector<std::string> problems = played.problems;
  for (int rank = 0; rank < program.ranks; ++rank) {
    const auto& exception = played.of_rank[static_cast<std::size_t>(rank)];
    const bool may_be_lost = rank == program.lost || (rank == program.culprit && program.faults.size() > 1);
    if (!may_be_lost && !played.ended[static_cast<std::size_t>(rank)])
      problems.push_back(fmt::format("replica {} has no end", rank));
    if (exception && !is<Error>(exception) && !is<Oops>(exception))
      problems.push_back(fmt::format("replica {} got {}", rank, text_of(exception)));
  }
  return problems;
}

/// What is wrong with how it was played; empty for nothing.
std::vector<std::string> problems_of(const Program& program, const Played& played) {
  if (program.lost >= 0) return problems_of_two(program, played);
  std::vector<std::string> problems = played.problems;
  Ending ending = ending_of(program.mischief);
  const bool by_fault = ending == Ending::gone || ending == Ending::stopped;
  // A rank that had nothing left to do, or was gone when nobody needed it any more.
  const bool unharmed = std::ranges::all_of(played.of_rank, [](const auto& exception) { return !exception; });
  if (by_fault && unharmed && !played.thrown) ending = Ending::fine;

  const std::string begin =
      fmt::format("replica {} (worker:{}, host sim) {}", program.culprit, program.culprit, said_of_culprit(ending));
  std::set<std::string> texts;
  for (int rank = 0; rank < program.ranks; ++rank) {
    const auto& exception = played.of_rank[static_cast<std::size_t>(rank)];
    if (rank == program.culprit && by_fault) continue;
    if (rank == program.culprit && ending == Ending::own_failure) {
      if (!is<Oops>(exception)) problems.push_back("the culprit got another exception: " + text_of(exception));
      continue;
    }
    // It had returned when the others were told, or came out of the job before the culprit was missed.
    if (!exception && ((rank == program.culprit && program.mischief == Mischief::early_exit) || by_fault)) continue;
    if (!is_of(ending, exception)) problems.push_back(fmt::format("replica {} got {}", rank, text_of(exception)));
    if (exception) texts.insert(message_of(exception));
  }
  if (texts.size() > 1) problems.push_back(fmt::format("{} different verdicts", texts.size()));
  for (const std::string& text : texts)
    if (!text.starts_with(begin)) problems.push_back(fmt::format("expected '{}...', got '{}'", begin, text));

  const bool job_ends = by_fault || ending == Ending::late || program.mischief == Mischief::early_exit ||
                        program.mischief == Mischief::throw_outside;
  if (job_ends != (played.thrown != nullptr) && ending != Ending::fine)
    problems.push_back("run threw " + text_of(played.thrown));
  const bool recovers = ending != Ending::fine && !job_ends;
  if (std::ranges::any_of(played.recovered, [&](bool recovered) { return recovered != recovers; }))
    problems.push_back("the ranks are not in step afterwards");
  return problems;
}

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE("whatever one rank does under whatever schedule, all ranks get the same verdict on it") {
  if (std::getenv("LOCKSTEP_SIM_SEED")) {
    const Program program = make_program(number_of("LOCKSTEP_SIM_SEED", 0));
    std::cout << describe(program) << '\n';
    const Played played = play(program, [](std::string_view line) { std::cout << line << '\n'; });
    for (const std::string& problem : problems_of(program, played)) FAIL_CHECK(problem);
    return;
  }
  const std::uint64_t base = number_of("LOCKSTEP_SIM_BASE", 0), count = number_of("LOCKSTEP_SIM_SCHEDULES", 200);
  std::set<Mischief> felt, failed;
  for (std::uint64_t seed = base; seed < base + count && failed.size() < 3; ++seed) {
    const Program program = make_program(seed);
    const Played played = play(program);
    const auto problems = problems_of(program, played);
    const bool told = std::ranges::any_of(played.of_rank, [](const auto& exception) { return exception != nullptr; });
    if (told && program.lost < 0) felt.insert(program.mischief);
    if (problems.empty()) continue;
    failed.insert(program.mischief);
    FAIL_CHECK(fmt::format("{}: {} (LOCKSTEP_SIM_SEED={} shows it again)", describe(program), problems.front(), seed));
  }
  CHECK(failed.empty());
  // All of them but none and local_error.
  if (failed.empty() && count >= 200) CHECK(felt.size() == mischiefs - 2);
}
