// The one place where ranks meet: before any of them starts a collective, all of them agree that each is about to start
// the same one. Disagreement and failure become the same verdict on every rank.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/control/channel.hpp>
#include <lockstep/control/tag.hpp>
#include <lockstep/control/verdict.hpp>

namespace lockstep {

class PhaseTable;

/// A failure that every rank knows of.
struct AgreedFailure {
  std::exception_ptr exception;       ///< what this rank throws
  int rank = 0;                       ///< to blame
  ExitCode code = ExitCode::failure;  ///< for the job: the same on every rank
  std::string line;                   ///< for stderr, once per job: the same on every rank
};

/// What the ranks find out where nothing but what they compare differs: called on every rank, it may talk over the
/// channel, and must come to the same verdict everywhere. `names[r]` is how messages call rank r.
using Diagnosis = std::function<Verdict(ControlChannel& channel, std::span<const std::string> names)>;

/// What a rank holds that the others are to hold too, as a digest that is not 0. 0: nothing is compared.
struct Comparison {
  std::uint64_t digest = 0;
  Diagnosis diagnose = {};
};

/// All agreements of a process, whichever strategy asks, are one sequence on one channel.
///
/// An agreement costs one blocking all-reduce of 16 bytes: the tags agree exactly when max(h) = ~max(~h) for their
/// digests h. Only when they do not, the tags themselves are gathered and judged. A digest's lowest bit is free, and
/// the larger of it over all ranks is the answer of `agree_any`.
///
/// Within an outermost run a verdict is sticky: every later agreement throws it again without communication, so a rank
/// that swallowed it cannot leave the others waiting. The next outermost run starts afresh, and so does what comes
/// outside of runs: whatever a rank had skipped, the ranks are in step again once each of them has the verdict.
class MeetingPoint {
 public:
  /// `names[r]` is how messages call rank r. `phases`, where there is one, must outlive this object.
  MeetingPoint(std::unique_ptr<ControlChannel> channel, std::vector<std::string> names, PhaseTable* phases = nullptr);
  ~MeetingPoint();

  int rank() const { return channel_->rank(); }
  int size() const { return channel_->size(); }
  ControlChannel& channel() { return *channel_; }

  /// Messages say "replica r" until the ranks know each other's task and host.
  void set_names(std::vector<std::string> names) { names_ = std::move(names); }
  void set_phases(PhaseTable* phases) { phases_ = phases; }

  /// COLL, blocking. Returns when every rank is here with the same kind, strategy, place, call site and `text`, and
  /// holds the same, if they compare that; throws MismatchError on every rank when they are not, also where some
  /// compare and others do not, and PeerError when a rank announced a failure instead. Where nothing but what they hold
  /// differs, the verdict is that of `comparison.diagnose`.
  void agree(TagKind kind, int strategy, const Here& here, std::string_view text = {},
             const Comparison& comparison = {});

  /// COLL, blocking. As `agree`, with a question in the same all-reduce: true on every rank if `mine` is on one of
  /// them.
  bool agree_any(TagKind kind, int strategy, const Here& here, std::string_view text, bool mine);

  /// COLL. A rank whose attempt at a collective failed before it began says so in the place of `agree`. Throws
  /// `exception` on this rank, PeerError on those that were in `agree`.
  [[noreturn]] void fail(std::exception_ptr exception);

  /// Not collective: counts how deep in runs this rank is. An outermost one restarts the counters.
  void enter_run();

  /// COLL. The end of a run: agreed, so a rank that made fewer merge_calls is found here, and one whose `result` is
  /// called otherwise, or that holds something else by `comparison`.
  void leave_run(int strategy, const Here& here, std::string_view result = {}, const Comparison& comparison = {});

  /// COLL. The end of a run by an exception: announced, unless every rank knows already. Throws.
  [[noreturn]] void leave_failed_run(std::exception_ptr exception);

  /// COLL. The end of the job, wherever in it this rank was: returns when every rank is here. Where others are
  /// elsewhere it throws like `agree`, and the rank must come again: they may go on, and would wait for it. True on
  /// every rank if one of them leaves because of a verdict, as this one does if `with_verdict`.
  bool leave_job(const Here& here, bool with_verdict);

  /// LOCAL. The work of one rank that the others wait for (writing a file): while the result lives, the absence of this
  /// rank from an agreement is no stall. It is to live until the rank is in that agreement.
  class [[nodiscard]] Alone {
   public:
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;
    ~Alone();

   private:
    friend class MeetingPoint;
    explicit Alone(PhaseTable* phases);
    PhaseTable* phases_;
  };
  Alone working_alone() { return Alone{phases_}; }

  int depth() const { return depth_; }

  /// The last verdict, until the next agreement that succeeds or the next outermost run.
  const std::optional<AgreedFailure>& failure() const { return failure_; }

  /// Agreements so far.
  std::uint64_t meetings() const { return meetings_; }

  /// What this rank came to the last of them with; meaningless where there was none.
  const Tag& last() const { return last_; }

 private:
  Tag next_tag(TagKind kind, int strategy, const Here& here, std::string_view text);
  bool meet(const Tag& tag, std::exception_ptr own, bool mine = false, const Diagnosis& diagnose = {});
  Tag make_tag(TagKind kind, int strategy) const;
  std::string full_text(const Verdict& verdict, const Tag& culprit, const std::exception_ptr& own);

  std::unique_ptr<ControlChannel> channel_;
  std::vector<std::string> names_;
  PhaseTable* phases_;
  int depth_ = 0;
  std::uint64_t run_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t meetings_ = 0;
  Tag last_;
  std::optional<AgreedFailure> failure_;
};

/// The message of an exception, on one line; "an exception of an unknown type" where it has none.
std::string message_of(const std::exception_ptr& exception);

}  // namespace lockstep
