#include "apps/lockstep-run/start_watch.hpp"

#include <utility>

namespace lockstep::run {

StartWatch::Finding StartWatch::look(Begun begun) {
  if (is_over_ || options_.timeout.count() == 0) return Finding::nothing;
  if (begun == Begun::everywhere) {
    stop();
    return Finding::nothing;
  }
  if (!inquiry_) {
    if (Clock::now() - since_ < options_.timeout) return Finding::nothing;
    inquiry_.emplace(options_.mpirun, options_.hosts);
  }
  if (!inquiry_->poll()) return Finding::nothing;
  silent_ = inquiry_->silent();
  unreachable_ = inquiry_->unreachable();
  inquiry_.reset();
  ++periods_;
  since_ = Clock::now();
  if (!silent_.empty() || !unreachable_.empty() ||
      (options_.ends_for_no_host && begun == Begun::nowhere && periods_ > 1)) {
    stop();
    return Finding::not_begun;
  }
  // There is nothing that another answer could change, and a host that is slow for once is no reason to end the job.
  if (!options_.ends_for_no_host) stop();
  return Finding::all_answer;
}

void StartWatch::stop() {
  is_over_ = true;
  inquiry_.reset();
}

}  // namespace lockstep::run
