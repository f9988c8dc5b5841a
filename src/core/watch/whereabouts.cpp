#include "core/watch/whereabouts.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/core/base/log.hpp>

#include "core/base/memory_use.hpp"
#include "core/base/open_line.hpp"
#include "core/base/stream.hpp"
#include "core/control/job_time.hpp"
#include "core/watch/stack_text.hpp"
#include "core/watch/watch_notes.hpp"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr auto between_measurements = 1s;
// A main thread that computes, or waits, takes a signal at once.
constexpr auto time_to_record = 1s;

// Of the watchdog, which has more to do.
constexpr StreamPatience patience_with_lines{.idle = 2s};

void print_lines(std::string text) {
  if (end_open_line()) text.insert(0, 1, '\n');
  (void)write_text(STDERR_FILENO, text, patience_with_lines);
}

}  // namespace

Whereabouts::Whereabouts(PhaseTable& table, const WatchedJob& job, KeptSignals::Keep signals)
    : table_{table},
      job_{job},
      heeds_signals_{signals != KeptSignals::Keep::none},
      stays_(static_cast<std::size_t>(table.rows())) {
  if (heeds_signals_) measure_memory();
}

void Whereabouts::measure_memory() {
  const auto now = Clock::now();
  if (measured_at_ && now - *measured_at_ < between_measurements) return;
  measured_at_ = now;
  table_.set_memory(memory_in_use());
}

void Whereabouts::look(Observation& seen) {
  if (heeds_signals_) measure_memory();
  go_on_telling();
  go_on_with_stack();
  seen.asked = heeds_signals_ && question_has_come();
  seen.questions = table_.questions();
  if (const auto notes = watch_notes(); !notes)
    seen.stacks.clear();
  else if (seen.stacks.native() != notes->stacks.native())
    seen.stacks = notes->stacks;
  // While this process was stopped, it saw nothing.
  watched_ += std::min<Seconds>(seen.took, JobTime::longest_look);
  for (const int row : seen.fresh) {
    const auto index = static_cast<std::size_t>(row);
    stays_[index].look(seen.rows[index], now());
  }
}

Stay::Time Whereabouts::now() const {
  return Stay::Time{static_cast<std::uint32_t>(Seconds{watched_} / Stay::Time{1})};
}

void Whereabouts::act(const Judgement& judged, const Observation& seen) {
  if (judged.asks) table_.ask();
  if (judged.answers && table_.answer()) tell(seen);
  if (judged.takes_stack) take_stack();
}

void Whereabouts::tell(const Observation& seen) {
  std::vector<Whereabout> ranks;
  for (std::size_t row = 0; row < stays_.size(); ++row)
    ranks.push_back({.seen = seen.read(static_cast<int>(row)),
                     .ended = seen.rows[row].process == Observation::Process::ended,
                     .there = stays_[row].there(now()),
                     .silent = stays_[row].silent(now())});
  const Seconds heartbeats_come = std::max<Seconds>(1s, 3.0 * static_cast<double>(job_.ticks_a_round()) * job_.tick);
  auto text = where_table(job_.names.all(), ranks, heartbeats_come, std::chrono::system_clock::now());
  to_print_ = text;
  if (watch_notes()) to_keep_ = std::move(text);
  go_on_telling();
}

/// What is still under way may be an earlier table, or never end.
void Whereabouts::go_on_telling() {
  if (to_print_ && printer_.start([text = *to_print_] { print_lines(text); })) to_print_.reset();
  if (!to_keep_) return;
  const bool has_begun = table_keeper_.start([text = *to_keep_, notes = watch_notes()] {
    if (notes) try {
        notes->write(notes->table, text);
      } catch (const std::exception& error) {
        log::warning(error.what());
      }
  });
  if (has_begun) to_keep_.reset();
}

void Whereabouts::take_stack() {
  // Without a folder there is no place for it.
  if (!heeds_signals_ || main_thread() == 0 || !watch_notes()) return;
  taken_ = TakenStack{.meetings = table_.read(table_.row()).meetings, .asked_at = Clock::now()};
  if (!ask_for_stack()) keep_stack({}, "not asked for its stack, as SIGUSR2 is the program's");
}

void Whereabouts::go_on_with_stack() {
  if (!taken_) return;
  if (taken_->is_asked) {
    if (const auto stack = recorded_stack())
      keep_stack(stack, {});
    else if (Clock::now() - taken_->asked_at > time_to_record)
      keep_stack({}, "asked for its stack, and does not answer");
  } else if (!stack_keeper_.is_busy()) {
    if (*taken_->kept) table_.set_stack_kept(taken_->meetings);
    taken_.reset();
  }
}

void Whereabouts::keep_stack(const std::optional<RawStack>& stack, const std::string& why_none) {
  taken_->is_asked = false;
  const auto row = table_.row();
  const std::string head = fmt::format("{}, process {}, {}\nit {}\n", job_.names[row], ::getpid(),
                                       utc_text(std::chrono::system_clock::now()), describe(table_.read(row)));
  stack_keeper_.start([=, notes = watch_notes(), kept = taken_->kept, thread = main_thread()] {
    if (notes) try {
        const std::string main = stack ? describe(*stack) : fmt::format("{}\n", why_none);
        notes->write(stack_file(notes->stacks, row),
                     fmt::format("{}\nmain thread {}, {}\n{}\nother threads\n{}", head, thread, describe_thread(thread),
                                 main, describe_threads(thread)));
        *kept = true;
      } catch (const std::exception&) {  // the verdict does without
      }
  });
}

}  // namespace lockstep
