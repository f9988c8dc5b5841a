#include "core/control/meeting_point.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

#include <fmt/format.h>

#include "core/base/exit_code.hpp"
#include "core/base/site.hpp"
#include "core/control/exceptions.hpp"
#include "core/control/job.hpp"
#include "core/control/phase_table.hpp"

namespace lockstep {
namespace {

bool at_one_place(std::span<const Tag> tags) {
  return std::all_of(tags.begin(), tags.end(), [&](const Tag& tag) { return tag.place() == tags.front().place(); });
}

/// Does it at the end of a block, whether that returns or throws.
template <class Act>
struct AtEnd {
  Act act;
  ~AtEnd() { act(); }
};
template <class Act>
AtEnd(Act) -> AtEnd<Act>;

/// Where this thread is while it is apart; otherwise empty.
thread_local std::string_view apart;

}  // namespace

void MeetingPoint::require_not_apart(std::string_view what, const Here& here) {
  if (apart.empty()) return;
  throw ContextError{
      fmt::format("{}{} {}: expected nothing that the ranks do together", what, bracketed(site_of(here)), apart)};
}

MeetingPoint::Apart::Apart(std::string_view where) : before_{std::exchange(apart, where)} {}
MeetingPoint::Apart::~Apart() {
  apart = before_;
}

MeetingPoint::MeetingPoint(std::unique_ptr<ControlChannel> channel, TableOnDemand<std::string> names,
                           PhaseTable* phases, Members members)
    : channel_{std::move(channel)}, names_{std::move(names)}, members_{std::move(members)} {
  set_phases(phases);
}

MeetingPoint::~MeetingPoint() {
  set_phases(nullptr);
}

void MeetingPoint::set_phases(PhaseTable* phases) {
  if (phases_ && members_.key != 0) phases_->close_group(members_.key);
  phases_ = phases;
  if (phases_ && members_.key != 0) phases_->open_group(members_);
}

void MeetingPoint::join(const Here& here, const std::function<std::unique_ptr<ControlChannel>()>& make) {
  Tag tag = make_tag(TagKind::group, 0);
  tag.set_site(here);
  ++waits_;
  const AtEnd leave{[this] { stop_waiting(); }};
  wait_at(tag);
  channel_ = make();
}

Tag MeetingPoint::make_tag(TagKind kind, int strategy) const {
  Tag tag;
  tag.kind = kind;
  tag.depth = static_cast<std::uint8_t>(depth_);
  tag.strategy = static_cast<std::uint16_t>(strategy);
  tag.run = run_;
  tag.sequence = sequence_;
  tag.step = position_.step;
  tag.run_kind = position_.kind;
  tag.where = position_.where;
  return tag;
}

/// Calls in a run are counted in that run, others over the whole job.
std::uint32_t& MeetingPoint::count_of(TagKind kind, bool in_run) {
  return (in_run ? counts_in_run_ : counts_outside_)[static_cast<std::size_t>(kind)];
}

void MeetingPoint::move_to(Position::Where where) {
  position_.where = where;
  position_.since = waits_;
  position_.group = members_.key;
  if (phases_) phases_->move_to(position_);
}

void MeetingPoint::leave_depth() {
  if (--depth_ > 0) return;
  move_to(Position::Where::after_run);
  trace::Ring::end(std::exchange(run_span_, {}));
}

void MeetingPoint::set_place(Tag& tag) const {
  const bool after_call = has_called_since();
  std::memcpy(tag.site, after_call ? last_.site : position_.site, sizeof tag.site);
  if (!after_call) return;
  tag.after = last_.kind;
  tag.count = last_.count;
}

std::string MeetingPoint::place() const {
  Tag tag = make_tag(TagKind::error, 0);
  set_place(tag);
  return place_of_failure(tag);
}

/// Whether the last agreement was a call of the program, made since this rank came to its position.
bool MeetingPoint::has_called_since() const {
  return waits_ > position_.since && is_call(last_.kind);
}

Tag MeetingPoint::next_tag(TagKind kind, int strategy, const Here& here, std::string_view text) {
  require_not_apart("an agreement", here);
  if (failure_ && depth_ > 0) std::rethrow_exception(failure_->exception);
  make_open_sum();
  settle_();
  settle_started();
  Tag tag = make_tag(kind, strategy);
  tag.set_site(here);
  require_not_covered(tag);
  tag.sequence = ++sequence_;
  tag.count = ++count_of(kind, depth_ > 0);
  tag.set_text(text);
  return tag;
}

void MeetingPoint::agree(TagKind kind, int strategy, const Here& here, std::string_view text,
                         const Comparison& comparison) {
  Tag tag = next_tag(kind, strategy, here, text);
  tag.compared = comparison.digest;
  tag.use_of_site = comparison.site;
  (void)meet(tag, nullptr, {}, comparison.diagnose);
}

Answers MeetingPoint::agree_any(TagKind kind, int strategy, const Here& here, std::string_view text, Answers mine) {
  return meet(next_tag(kind, strategy, here, text), nullptr, mine);
}

std::vector<std::int64_t> MeetingPoint::first_brought(std::span<const std::int64_t> mine) {
  std::vector<std::int64_t> numbers;
  ++meetings_;
  meet_after_last([&] {
    // Lower ranks make larger words, whatever the lengths.
    const auto place = static_cast<std::uint64_t>(size() - rank());
    const auto largest = channel_->max({mine.empty() ? 0 : place << 32 | mine.size(), 0}).front();
    if (largest == 0) return;
    const int root = size() - static_cast<int>(largest >> 32);
    numbers.resize(largest & 0xffff'ffff);
    if (root == rank()) numbers.assign(mine.begin(), mine.end());
    channel_->broadcast(std::as_writable_bytes(std::span{numbers}), root);
  });
  return numbers;
}

bool MeetingPoint::all_equal(std::uint64_t digest) {
  std::array<std::uint64_t, 2> largest{};
  ++meetings_;
  meet_after_last([&] { largest = channel_->max({digest, ~digest}); });
  return largest[0] == ~largest[1];
}

std::vector<std::int64_t> MeetingPoint::gather(std::span<const std::int64_t> mine) {
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(size()));
  meet_after_last([&] { channel_->all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span{all})); });
  return all;
}

/// Another wait for the others, at the place of the last agreement.
template <class Exchange>
void MeetingPoint::meet_after_last(Exchange&& exchange) {
  ++waits_;
  const BusyClock::Waiting waiting;
  wait_at(last_);
  exchange();
  stop_waiting();
}

/// As the wait that was counted last.
void MeetingPoint::wait_at(const Tag& tag) {
  is_waiting_ = true;
  waits_at_ = came_to_ = waits_.load();
  if (!phases_) return;
  // What all ranks wait for ends with the next agreement of all.
  works_alone_ = members_.key != 0 && phases_->phase() == Phase::alone;
  phases_->enter_meeting(waits_, tag, members_.key);
}

void MeetingPoint::stop_waiting() {
  is_waiting_ = false;
  if (!phases_) return;
  phases_->leave_meeting(members_.key);
  if (works_alone_) phases_->enter(Phase::alone);
}

/// Ranks that came to an agreement from different places continue from the same counts, to agree again.
void MeetingPoint::realign(std::span<const Tag> tags) {
  for (const Tag& each : tags) {
    run_ = std::max(run_, each.run);
    sequence_ = std::max(sequence_, each.sequence);
    std::uint32_t& count = count_of(each.kind, each.depth > 0);
    count = std::max(count, each.count);
  }
}

void MeetingPoint::fail(std::exception_ptr exception, const std::optional<Here>& in) {
  if (!apart.empty()) std::rethrow_exception(exception);
  if (failure_ && depth_ > 0) std::rethrow_exception(failure_->exception);
  if (depth_ > 0 && started_.known(exception)) std::rethrow_exception(exception);  // the others have it too
  if (region_) std::rethrow_exception(exception);  // it leaves the computation, whose end announces it
  make_open_sum();
  settle_();
  settle_started();
  ++sequence_;
  Tag tag = make_tag(TagKind::error, 0);
  // Left out of the comparison: two ranks that fail have both failed, wherever they are.
  tag.depth = 0;
  tag.cause = exit_code_of(exception);
  tag.set_text(message_of(exception));
  in ? tag.set_site(*in) : set_place(tag);
  if (is_of_program(exception)) tag.use_of_site = Tag::Site::told;
  meet(tag, exception);
  std::rethrow_exception(exception);
}

void MeetingPoint::require_not_covered(const Tag& tag) {
  if (!region_) return;
  Tag named = tag;
  named.count = count_of(tag.kind, depth_ > 0) + 1;
  const ContextError error{
      fmt::format("{} in the middle of a computation that the ranks have agreed on ({}): expected no other agreement "
                  "before its end",
                  describe(named), last_.site_text())};
  if (!region_->refused_) region_->refused_ = std::make_exception_ptr(error);
  throw error;
}

AgreedRegion::AgreedRegion(MeetingPoint& meeting) : meeting_{meeting} {
  sum_.kind = TagKind::sum;
  std::memcpy(sum_.site, meeting.last_.site, sizeof sum_.site);
  meeting.region_ = this;
  // From here on the rank computes: its place is no longer behind the call that agreed on it.
  meeting.move_to(meeting.position_.where);
}

AgreedRegion::~AgreedRegion() {
  meeting_.region_ = nullptr;
  meeting_.sum_ = nullptr;  // an exception may have left it
  // What failed is the computation, not what comes after the call that agreed on it.
  if (std::uncaught_exceptions() > exceptions_) meeting_.move_to(meeting_.position_.where);
}

void AgreedRegion::require_no_agreement() const {
  if (refused_) std::rethrow_exception(refused_);
}

void MeetingPoint::enter_sum(const Tag& sum) {
  number_of_sum_ = ++waits_;
  sum_ = &sum;
  wait_at(sum);
}

void MeetingPoint::leave_sum() {
  sum_ = nullptr;
  stop_waiting();
}

void MeetingPoint::make_open_sum() {
  if (!job_) return make_own_open_sum();
  for (MeetingPoint* const each : job_->meetings()) each->make_own_open_sum();
}

void MeetingPoint::make_own_open_sum() {
  const auto sum = std::exchange(open_, nullptr);
  if (!sum) return;
  Tag tag;
  tag.kind = TagKind::open_sum;
  std::memcpy(tag.site, last_.site, sizeof tag.site);
  const AtEnd leave{[this] { leave_sum(); }};
  const BusyClock::Waiting waiting;
  enter_sum(tag);
  sum();
}

MeetingPoint::LaterWait MeetingPoint::count_later_wait() {
  return {++waits_, sum_ ? *sum_ : last_};
}

void MeetingPoint::wait_for_device(const LaterWait* others) {
  BusyClock::wait_for_device(others ? BusyClock::DeviceWait::others : BusyClock::DeviceWait::own);
  // Who works alone has said so, and is not waited for meanwhile.
  if (!phases_ || phases_->phase() == Phase::alone) return;
  others ? phases_->enter_meeting(others->number, others->tag, members_.key) : phases_->enter(Phase::device);
}

void MeetingPoint::leave_device() {
  BusyClock::wait_for_device(BusyClock::DeviceWait::none);
  if (!phases_ || phases_->phase() == Phase::alone) return;
  sum_ ? phases_->enter_meeting(number_of_sum_, *sum_, members_.key) : phases_->enter(Phase::computing);
}

std::uint64_t MeetingPoint::progress() const {
  return phases_ ? phases_->progress() : 0;
}

MeetingPoint::Alone::Alone(PhaseTable* phases) : phases_{phases} {
  if (phases_) phases_->enter(Phase::alone);
}

MeetingPoint::Alone::~Alone() {
  if (phases_) phases_->enter(Phase::computing);
}

void MeetingPoint::enter_run(const Here& here) {
  require_not_apart("a run", here);
  if (depth_++ > 0) return;
  failure_.reset();
  ++run_;
  sequence_ = 0;
  counts_in_run_ = {};
  std::tie(position_.step, position_.kind) = named_.value_or(std::pair{run_ + steps_before_, detail::RunKind::step});
  if (here.line() != site_.line() || here.file_name() != site_.file_name()) {
    // A run costs less than writing its place as text.
    Tag tag;
    tag.set_site(here);
    std::memcpy(position_.site, tag.site, sizeof tag.site);
    site_ = here;
  }
  move_to(Position::Where::in_run);
  if (!trace::Ring::is_on()) return;
  trace::Ring::set_step(position_.step);
  const bool is_step = position_.kind == detail::RunKind::step;
  run_span_ =
      trace::Ring::begin(is_step ? trace::Kind::step : trace::Kind::run, name_of_run(position_.kind, position_.step));
}

void MeetingPoint::name_phase(std::string_view name) {
  keep_text(name, position_.site);
  site_ = {};  // the next run writes its own
  move_to(Position::Where::in_phase);
}

void MeetingPoint::leave_run(int strategy, const Here& here, std::string_view result, const Comparison& comparison) {
  const AtEnd leave{[this] { leave_depth(); }};
  Tag tag = next_tag(TagKind::close, strategy, here, result);
  tag.compared = comparison.digest;
  if (meet(tag, nullptr, {wants_stop()}, comparison.diagnose).front()) stop_requested_ = true;
}

void MeetingPoint::leave_failed_run(std::exception_ptr exception) {
  const AtEnd leave{[this] { leave_depth(); }};
  fail(std::move(exception));
}

/// Ranks come to the end of the job from different places, by different paths.
void MeetingPoint::begin_to_leave() {
  depth_ = 0;
  run_ = 0;
  sequence_ = 0;
  count_of(TagKind::leave, false) = 0;
}

bool MeetingPoint::leave_job(const Here& here, bool with_verdict) {
  begin_to_leave();
  return agree_any(TagKind::leave, 0, here, {}, {with_verdict}).front();
}

void MeetingPoint::exit_job(const Here& here, std::string_view what, Error::ExitCode code) {
  Tag place = make_tag(TagKind::error, 0);
  set_place(place);
  const std::string told = fmt::format("{}{}", what, told_place(place, false));
  begin_to_leave();
  Tag tag = next_tag(TagKind::leave, 0, here, told);
  tag.cause = code;
  (void)meet(tag, std::make_exception_ptr(Error{told}));
}

Answers MeetingPoint::meet(const Tag& tag, std::exception_ptr own, Answers mine, const Diagnosis& diagnose) {
  failure_.reset();
  started_.forget_last();
  if (job_) job_->forget_last_left();
  ++meetings_;
  ++waits_;
  last_ = tag;
  const std::uint64_t digest = tag.digest();
  const BusyClock::Waiting waiting;
  const trace::Within span{trace::Kind::wait, [&] { return describe(tag); }};
  wait_at(tag);
  constexpr std::uint64_t lowest = 1;
  const auto largest = largest_of({digest | std::uint64_t{mine[0]}, (~digest & ~lowest) | std::uint64_t{mine[1]}});
  stop_waiting();
  const bool agreed = (largest[0] & ~lowest) == ~(largest[1] | lowest);
  const Answers answers{(largest[0] & lowest) != 0, (largest[1] & lowest) != 0};
  if (agreed && !own) return answers;

  std::vector<Tag> tags(static_cast<std::size_t>(channel_->size()), tag);
  if (!agreed) channel_->all_gather(std::as_bytes(std::span{&tag, 1}), std::as_writable_bytes(std::span{tags}));
  // Some may have called exit: where all have come to the end, that is no failure.
  if (std::ranges::all_of(tags, [](const Tag& each) { return each.kind == TagKind::leave; })) return answers;
  realign(tags);
  // At one place either all ranks have a diagnosis or none has, so no rank is missing from its communication.
  const Verdict verdict = diagnose && at_one_place(tags) ? diagnose(*channel_, names()) : judge_tags(tags, names());
  const std::string text = !verdict.failed ? "" : agreed ? message_of(own) : full_text(verdict, tags, own);
  failure_ = std::make_shared<AgreedFailure>(agreed_failure(verdict, tags, names(), members_, rank(), own, text));
  std::rethrow_exception(failure_->exception);
}

/// If a message is too long for the tag, its rank broadcasts it: every rank sees the length in the tag.
std::string MeetingPoint::full_text(const Verdict& verdict, std::span<const Tag> tags, const std::exception_ptr& own) {
  const std::size_t longer = longer_text(verdict, tags);
  if (longer == 0) return std::string{tags[static_cast<std::size_t>(verdict.rank)].kept_text()};
  std::string text = verdict.rank == rank() ? message_of(own) : std::string{};
  text.resize(longer);
  channel_->broadcast(std::as_writable_bytes(std::span{text}), verdict.rank);
  return text;
}

}  // namespace lockstep
