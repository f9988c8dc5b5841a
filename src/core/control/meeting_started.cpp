// What a meeting point has to do with agreements that were started, and with verdicts on them.
#include "core/control/job.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/phase_table.hpp"

namespace lockstep {

std::shared_ptr<const Agreement> MeetingPoint::start(const Here& here, std::string_view text, Tag::Site site) {
  require_not_apart("a request", here);
  Tag tag;
  tag.kind = TagKind::request;
  tag.use_of_site = site;
  tag.set_site(here);
  tag.set_text(text);
  tag.count = ++requests_;
  const std::uint64_t number = waits_.fetch_add(2) + 1;
  come_to(number);
  return started_.start(tag, number);
}

void MeetingPoint::end_started(const Agreement& agreement) {
  come_to(agreement.number() + 1);
}

void MeetingPoint::come_to(std::uint64_t number) {
  raise(came_to_, number);
  if (phases_) phases_->come_to(number, members_.key);
}

void MeetingPoint::ShownWait::show() const {
  meeting_.shown_ = &tag_;
  meeting_.waits_at_ = number_;
  meeting_.come_to(number_);
  meeting_.is_waiting_ = true;
  if (meeting_.phases_) meeting_.phases_->show_wait(number_, tag_, meeting_.members_.key);
}

MeetingPoint::ShownWait::~ShownWait() {
  meeting_.shown_ = nullptr;
  meeting_.is_waiting_ = false;
  if (meeting_.phases_) meeting_.phases_->hide_wait(number_, meeting_.members_.key);
}

/// Ranks that are at the same of their agreements have come to the end of those before, whatever came of them.
void MeetingPoint::settle_started() {
  if (started_.are_settled()) return realign(started_.take_tags());
  while (const auto oldest = started_.oldest()) {
    const ShownWait wait{*this, oldest->number(), oldest->tag()};
    const auto is_settled = [&] {
      wait.show();
      (void)started_.advance();
      return oldest->is_settled();
    };
    job_->progress().wait_until(is_settled);
  }
  realign(started_.take_tags());
}

/// The maximum over all ranks, while the requests of this process go on.
std::array<std::uint64_t, 2> MeetingPoint::largest_of(std::array<std::uint64_t, 2> words) {
  if (!job_ || !job_->progress().is_busy()) return channel_->max(words);
  const auto exchange = channel_->start_max(words);
  job_->progress().wait_until([&] { return exchange->advance(); });
  return words;
}

std::shared_ptr<const AgreedFailure> MeetingPoint::known(const std::exception_ptr& exception) const {
  return failure_ && failure_->exception == exception ? failure_ : started_.known(exception);
}

std::shared_ptr<const AgreedFailure> MeetingPoint::last_known() const {
  return failure_ ? failure_ : started_.last();
}

void MeetingPoint::leave_failures(std::vector<std::shared_ptr<const AgreedFailure>>& left) const {
  started_.leave_failures(left);
  if (failure_) left.push_back(failure_);
}

}  // namespace lockstep
