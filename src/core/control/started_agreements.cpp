#include "core/control/started_agreements.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "core/control/meeting_point.hpp"

namespace lockstep {

std::shared_ptr<const Agreement> StartedAgreements::start(const Tag& tag, std::uint64_t number) {
  const auto agreement = std::make_shared<Agreement>();
  agreement->tag_ = tag;
  agreement->number_ = number;
  // As MeetingPoint::meet compares tags. Nothing travels in the lowest bits.
  agreement->words_ = {tag.digest(), ~tag.digest() & ~std::uint64_t{1}};
  const std::scoped_lock lock{mutex_};
  under_way_.push_back(agreement);
  unsettled_.fetch_add(1, std::memory_order_relaxed);
  send_more();
  return agreement;
}

void StartedAgreements::send_more() {
  for (; sent_ < std::min(under_way_.size(), most_under_way); ++sent_)
    under_way_[sent_]->exchange_ = meeting_.channel().start_max(under_way_[sent_]->words_);
}

bool StartedAgreements::advance() {
  const std::scoped_lock lock{mutex_};
  bool moved = false;
  for (std::size_t i = 0; i < sent_; ++i) {
    Agreement& each = *under_way_[i];
    if (each.stage_ != Agreement::Stage::asked || !each.exchange_->advance()) continue;
    each.stage_ = Agreement::Stage::answered;
    moved = true;
  }
  while (!under_way_.empty() && settle_first()) moved = true;
  return moved;
}

/// Whether there was something to do about the oldest.
bool StartedAgreements::settle_first() {
  Agreement& first = *under_way_.front();
  switch (first.stage_) {
    case Agreement::Stage::asked: return false;
    case Agreement::Stage::answered:
      if ((first.words_[0] & ~std::uint64_t{1}) == ~(first.words_[1] | 1)) {
        last_ = nullptr;
        settle(first);
      } else {
        first.tags_.resize(static_cast<std::size_t>(meeting_.size()));
        first.exchange_ = meeting_.channel().start_all_gather(std::as_bytes(std::span{&first.tag_, 1}),
                                                              std::as_writable_bytes(std::span{first.tags_}));
        first.stage_ = Agreement::Stage::differ;
      }
      return true;
    case Agreement::Stage::differ:
    case Agreement::Stage::told:
      if (!first.exchange_->advance()) return false;
      judge(first, first.stage_ == Agreement::Stage::told);
      return true;
  }
  return false;
}

/// Once all tags are known. A text that is too long for one comes from its rank first.
void StartedAgreements::judge(Agreement& agreement, bool has_text) {
  const Verdict verdict = judge_tags(agreement.tags_, meeting_.names());
  if (const std::size_t longer = longer_text(verdict, agreement.tags_); longer > 0 && !has_text) {
    agreement.text_.resize(longer);
    agreement.exchange_ =
        meeting_.channel().start_broadcast(std::as_writable_bytes(std::span{agreement.text_}), verdict.rank);
    agreement.stage_ = Agreement::Stage::told;
    return;
  }
  if (!has_text) agreement.text_ = agreement.tags_[static_cast<std::size_t>(verdict.rank)].kept_text();
  constexpr std::size_t kept = 16;
  if (failures_.size() == kept) failures_.pop_front();
  last_ = std::make_shared<AgreedFailure>(agreed_failure(verdict, agreement.tags_, meeting_.names(), meeting_.members(),
                                                         meeting_.rank(), nullptr, agreement.text_));
  failures_.push_back(last_);
  has_last_.store(true, std::memory_order_release);
  agreement.verdict_ = last_->exception;
  tags_.insert(tags_.end(), agreement.tags_.begin(), agreement.tags_.end());
  has_tags_.store(true, std::memory_order_release);
  settle(agreement);
}

void StartedAgreements::settle(Agreement& agreement) {
  agreement.exchange_.reset();
  agreement.settled_.store(true, std::memory_order_release);
  under_way_.pop_front();
  --sent_;
  send_more();
  unsettled_.fetch_sub(1, std::memory_order_release);
}

std::shared_ptr<const Agreement> StartedAgreements::oldest() const {
  const std::scoped_lock lock{mutex_};
  return under_way_.empty() ? nullptr : under_way_.front();
}

std::shared_ptr<const AgreedFailure> StartedAgreements::known(const std::exception_ptr& exception) const {
  const std::scoped_lock lock{mutex_};
  const auto found = std::ranges::find_if(failures_, [&](const auto& each) { return each->exception == exception; });
  return found == failures_.end() ? nullptr : *found;
}

std::shared_ptr<const AgreedFailure> StartedAgreements::last() const {
  const std::scoped_lock lock{mutex_};
  return last_;
}

void StartedAgreements::forget_last() {
  if (!has_last_.load(std::memory_order_acquire)) return;
  const std::scoped_lock lock{mutex_};
  last_ = nullptr;
  has_last_ = false;
}

void StartedAgreements::leave_failures(std::vector<std::shared_ptr<const AgreedFailure>>& left) const {
  const std::scoped_lock lock{mutex_};
  left.insert(left.end(), failures_.begin(), failures_.end());
}

std::vector<Tag> StartedAgreements::take_tags() {
  if (!has_tags_.load(std::memory_order_acquire)) return {};
  const std::scoped_lock lock{mutex_};
  has_tags_ = false;
  return std::exchange(tags_, {});
}

}  // namespace lockstep
