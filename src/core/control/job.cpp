#include "core/control/job.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/digest.hpp"

namespace lockstep {
namespace {

// std::terminate with the exception in flight, so that the handler can say what it was.
void terminate_with(std::exception_ptr exception) noexcept {
  std::rethrow_exception(std::move(exception));
}

}  // namespace

Job::Job(std::unique_ptr<ControlChannel> channel, TableOnDemand<std::string> names, End end)
    : meeting_{std::make_unique<MeetingPoint>(std::move(channel), std::move(names))},
      meetings_{meeting_.get()},
      end_{end ? std::move(end) : End{terminate_with}},
      node_of_rank_{std::vector<int>(static_cast<std::size_t>(size()), 0)},
      residences_{size(), [](int rank) {
                    return Residence{fmt::format("replica {}", rank), {}};
                  }} {
  meeting_->set_job(*this);
}

Job::~Job() = default;

Job::Meeting Job::make_meeting(const std::vector<int>& ranks, const Here& here) {
  const std::uint64_t number = made_[ranks]++;
  std::vector<std::uint64_t> words(ranks.begin(), ranks.end());
  words.push_back(number);
  const Members members{ranks, digest_of(std::as_bytes(std::span{words})) | 1};
  // Nobody waits in a group of one.
  Meeting made{
      new MeetingPoint{nullptr, meeting_->name_table().of(ranks), ranks.size() > 1 ? phases_ : nullptr, members},
      Forget{this}};
  meetings_.push_back(made.get());
  made->set_job(*this);
  made->set_stop_source([this] { return meeting_->wants_stop(); });
  made->join(here, [&] { return meeting_->channel().subset(ranks, members.key); });
  return made;
}

void Job::Forget::operator()(MeetingPoint* meeting) const {
  std::erase(job->meetings_, meeting);
  constexpr std::size_t most = 16;  // of which one may still be on its way out
  auto& left = job->left_behind_;
  meeting->leave_failures(left);
  // What ends several groups destroys the innermost first.
  if (!job->last_left_) job->last_left_ = meeting->last_known();
  if (left.size() > most) left.erase(left.begin(), left.end() - most);
  delete meeting;
}

const MeetingPoint* Job::meeting_of(std::uint64_t key) const {
  const auto found =
      std::ranges::find_if(meetings_, [&](const MeetingPoint* each) { return each->members().key == key; });
  return found == meetings_.end() ? nullptr : *found;
}

std::shared_ptr<const AgreedFailure> Job::known(const std::exception_ptr& exception) const {
  for (const MeetingPoint* const each : meetings_)
    if (auto failure = each->known(exception)) return failure;
  const auto left = std::ranges::find_if(left_behind_, [&](const auto& each) { return each->exception == exception; });
  return left == left_behind_.end() ? nullptr : *left;
}

std::shared_ptr<const AgreedFailure> Job::last_known() const {
  if (last_left_) return last_left_;
  for (const MeetingPoint* const each : meetings_)
    if (auto failure = each->last_known()) return failure;
  return nullptr;
}

std::string Job::place() const {
  const auto in_run = std::ranges::find_if(meetings_, [](const MeetingPoint* each) { return each->depth() > 0; });
  return (in_run == meetings_.end() ? meetings_.front() : *in_run)->place();
}

void Job::set_phases(PhaseTable* phases) {
  phases_ = phases;
  for (MeetingPoint* const each : meetings_)
    if (each->members().ranks.size() != 1) each->set_phases(phases);
}

void Job::end(std::exception_ptr exception) {
  failed_ = true;
  end_(std::move(exception));
}

Job::GivenUp::GivenUp(Job& job, std::function<void()> give_up) : job_{job}, give_up_{std::move(give_up)} {
  const std::scoped_lock lock{job_.mutex_};
  job_.given_up_.push_back(this);
}

Job::GivenUp::~GivenUp() {
  const std::scoped_lock lock{job_.mutex_};
  std::erase(job_.given_up_, this);
}

void Job::abort() noexcept {
  const std::scoped_lock lock{mutex_};
  for (GivenUp* const each : given_up_)
    if (const auto give_up = std::exchange(each->give_up_, nullptr)) give_up();
}

}  // namespace lockstep
