// The one place where ranks meet: before any rank starts a collective, all of them agree that each is about to start
// the same one. Every rank gets the same verdict on a disagreement or a failure.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/parts.hpp"
#include "core/control/busy_clock.hpp"
#include "core/control/channel.hpp"
#include "core/control/members.hpp"
#include "core/control/shared_table.hpp"
#include "core/control/started_agreements.hpp"
#include "core/control/tag.hpp"
#include "core/control/verdict.hpp"
#include "core/trace/ring.hpp"

namespace lockstep {

class Job;
class PhaseTable;

/// Finds the rank to blame if ranks differ only in what they compare. Called on every rank; may communicate over the
/// channel; must return the same verdict everywhere. `names[r]` is how messages call rank r.
using Diagnosis = std::function<Verdict(ControlChannel& channel, std::span<const std::string> names)>;

namespace detail {

/// A digest of what this rank holds and expects the others to hold; 0 compares nothing. Public headers declare it.
struct Comparison {
  std::uint64_t digest = 0;
  Diagnosis diagnose = {};
  Tag::Site site = Tag::Site::compared;  ///< `told`: the ranks may call from different places
};

}  // namespace detail

using detail::Comparison;

/// The ranks' answers to two questions that an agreement may carry.
using Answers = std::array<bool, 2>;

class MeetingPoint;

/// LOCAL. Spans the time from an agreement that covers a computation to the last sum that it covers. Meanwhile, every
/// agreement of the same group throws ContextError before any communication: no other rank would arrive there.
class [[nodiscard]] AgreedRegion {
 public:
  AgreedRegion(const AgreedRegion&) = delete;
  ~AgreedRegion();

  /// Rethrows the first such error, in case the program caught it.
  void require_no_agreement() const;

  /// COLL. Calls `sum`, for which a rank that does not come in time is late. Sums are numbered from 1.
  template <class Sum>
  void wait_in(Sum&& sum);

 private:
  friend class MeetingPoint;
  explicit AgreedRegion(MeetingPoint& meeting);

  MeetingPoint& meeting_;
  Tag sum_;
  std::exception_ptr refused_;
  int exceptions_ = std::uncaught_exceptions();
};

/// All agreements of a group of ranks, whichever strategy asks, form one sequence on one channel. This is how library
/// code keeps a collective from hanging:
///
///   meeting.agree(TagKind::reduce, strategy, here, "sum of f32[3]");  // throws on every rank, or on none
///   reductions.all_reduce(ReduceOp::sum, tensors);                    // so every rank gets here
///
/// An agreement costs ceil(log2(n)) rounds among n ranks, in each of which a rank sends 16 bytes. The tags agree
/// exactly if max(h) = ~max(~h) for their digests h; only otherwise are they gathered and judged. The lowest bit of
/// each of the two words is free: its maximum over all ranks is an answer of `agree_any`.
///
/// Within an outermost run a verdict is sticky: every later agreement throws it again without communication, so a rank
/// that swallowed it cannot leave the others waiting. The next outermost run forgets it, and so does every agreement
/// outside of runs: once each rank has the verdict, all are in step again.
class MeetingPoint {
 public:
  /// `names[r]` is how messages call rank r. `phases` may be null, or outlives this object or the next `set_phases`.
  MeetingPoint(std::unique_ptr<ControlChannel> channel, TableOnDemand<std::string> names, PhaseTable* phases = nullptr,
               Members members = {});
  ~MeetingPoint();

  /// COLL, blocking. First on a meeting point without a channel: takes the one that `make` returns when all have come.
  void join(const Here& here, const std::function<std::unique_ptr<ControlChannel>()>& make);

  /// Which ranks of the job meet here.
  const Members& members() const { return members_; }

  int rank() const { return channel_->rank(); }
  int size() const { return channel_->size(); }
  ControlChannel& channel() { return *channel_; }

  /// Messages say "replica r" until the ranks know each other's task and host.
  void set_names(TableOnDemand<std::string> names) { names_ = std::move(names); }
  std::vector<std::string> names() const { return names_.all(); }
  const TableOnDemand<std::string>& name_table() const { return names_; }
  void set_phases(PhaseTable* phases);

  /// LOCAL. The job must outlive this object. Before each agreement here, this rank makes the sums that are open at any
  /// of its meeting points, and while it waits for one, it moves on the requests of the process.
  void set_job(Job& job) { job_ = &job; }

  /// COLL, blocking. Returns when every rank is here with the same kind, strategy, place and `text`, the same call
  /// site, unless that is only told, and, if they compare, the same digest. Otherwise throws on every rank: PeerError
  /// if a rank announced a failure instead, else MismatchError, also if only some ranks compare. If only the digests
  /// differ, `diagnose` makes the verdict.
  void agree(TagKind kind, int strategy, const Here& here, std::string_view text = {},
             const Comparison& comparison = {});

  /// COLL, blocking. Like `agree`, and answers two questions: true on every rank if it is true in `mine` on any.
  Answers agree_any(TagKind kind, int strategy, const Here& here, std::string_view text, Answers mine);

  /// COLL, but returns at once, from any thread. Like `agree`, for a request that the group carries out meanwhile. All
  /// ranks make their agreements here in one order, started or not; one that blocks waits for those before it.
  std::shared_ptr<const Agreement> start(const Here& here, std::string_view text, Tag::Site site = Tag::Site::compared);

  /// LOCAL, never blocks, from any thread. Moves on what was started. Whether there was something to do.
  bool advance_started() { return started_.advance(); }

  /// LOCAL. What was started is done, with what was agreed on: this rank has come to both of its numbers.
  void end_started(const Agreement& agreement);

  /// LOCAL, from any thread. Shows, until it ends, that this rank waits at that number, for what `tag` says.
  class [[nodiscard]] ShownWait {
   public:
    ShownWait(MeetingPoint& meeting, std::uint64_t number, const Tag& tag)
        : meeting_{meeting}, number_{number}, tag_{tag} {}
    ShownWait(const ShownWait&) = delete;
    ~ShownWait();

    /// Again, if other threads have shown something else.
    void show() const;

   private:
    MeetingPoint& meeting_;
    std::uint64_t number_;
    const Tag& tag_;
  };

  /// COLL, blocking. Call it on every rank directly after an agreement; it counts as another one. Returns, on every
  /// rank, the numbers of the lowest rank whose `mine` is not empty; nothing if there is no such rank.
  std::vector<std::int64_t> first_brought(std::span<const std::int64_t> mine);

  /// COLL, blocking. Call it in the same place. Returns whether all ranks brought the same digest.
  bool all_equal(std::uint64_t digest);

  /// COLL, blocking. The same, but no agreement. Returns every rank's `mine`, in rank order. All bring as many.
  LOCKSTEP_PARTS_API std::vector<std::int64_t> gather(std::span<const std::int64_t> mine);

  /// COLL, blocking. Called instead of `agree` by a rank that failed before a collective began. Throws `exception` on
  /// this rank and PeerError on those in `agree`. `in` is the call that failed; if empty, messages place the failure
  /// after the last agreement.
  LOCKSTEP_PARTS_API [[noreturn]] void fail(std::exception_ptr exception, const std::optional<Here>& in = {});

  /// LOCAL. See AgreedRegion.
  AgreedRegion agreed_region() { return AgreedRegion{*this}; }

  /// LOCAL, directly after an agreement that covers `sum`, which must not throw. Every rank makes it once: in
  /// `make_open_sum`, or else in the next agreement or `fail`, so that a rank that fails keeps nobody waiting.
  void open_sum(std::function<void()> sum) { open_ = std::move(sum); }

  /// COLL, blocking. Makes the sums that are open on this rank, in whichever group. Who does not come in time is late.
  void make_open_sum();

  /// A wait for the others that comes later than its call, such as for a collective that a GPU makes by itself.
  struct LaterWait {
    std::uint64_t number = 0;
    Tag tag;
  };

  /// LOCAL, on every rank at the same point. Counts it as part of the sum that this rank is in, or else of the last
  /// agreement.
  LaterWait count_later_wait();

  /// LOCAL. Shows, until `leave_device`, that this rank waits for its GPU: for the GPU's own work if `others` is null,
  /// or else for the other ranks, of which one that does not come in time is late.
  void wait_for_device(const LaterWait* others);
  void leave_device();

  /// LOCAL. The number of pieces of long work that the ranks have done (progress_count.hpp), as far as is known here.
  std::uint64_t progress() const;

  /// LOCAL. `settle` is called before each agreement, and must not throw. It waits until no GPU waits for this rank's:
  /// a rank in an agreement could not say that its GPU hangs.
  void set_settle(std::function<void()> settle) { settle_ = std::move(settle); }

  /// LOCAL. Counts the depth of runs. An outermost run restarts the counters. `here` is where the program called run;
  /// empty if that is not known.
  void enter_run(const Here& here = {});

  /// LOCAL, outside of runs. From here on this rank is in a phase of that name; if it is empty, in one without a name.
  void name_phase(std::string_view name);

  /// LOCAL. Names the next outermost runs for messages. Without it, each counts as the next step.
  void set_step(std::uint64_t step, detail::RunKind kind) { named_.emplace(step, kind); }

  /// LOCAL. The next outermost run that `set_step` does not name counts as the step after `step`.
  void continue_after(std::uint64_t step) { steps_before_ = step - run_; }

  /// LOCAL. Forgets, when it is destroyed, what `set_step` said while it lived: later runs are named as before it.
  class [[nodiscard]] NamedSteps {
   public:
    NamedSteps(const NamedSteps&) = delete;
    ~NamedSteps() { meeting_.named_ = before_; }

   private:
    friend class MeetingPoint;
    explicit NamedSteps(MeetingPoint& meeting) : meeting_{meeting}, before_{meeting.named_} {}

    MeetingPoint& meeting_;
    std::optional<std::pair<std::uint64_t, detail::RunKind>> before_;
  };
  NamedSteps keep_named_steps() { return NamedSteps{*this}; }

  /// COLL, blocking. Ends a run with an agreement, which finds a rank that made fewer merge_calls, whose `result` has
  /// another signature, or that holds something else according to `comparison`.
  void leave_run(int strategy, const Here& here, std::string_view result = {}, const Comparison& comparison = {});

  /// LOCAL, from any thread or signal handler. Asks all ranks to end the job, in the agreement that ends the next run.
  void request_stop() noexcept { wants_stop_ = true; }

  /// LOCAL. Whether this rank asks for that.
  bool wants_stop() const { return wants_stop_ || asks_to_stop_(); }

  /// LOCAL. Another source of this rank's request: `asks` is called at each end of a run.
  void set_stop_source(std::function<bool()> asks) { asks_to_stop_ = std::move(asks); }

  /// Whether any rank had asked for the end of the job before it came to the end of the last run. The same on every
  /// rank.
  bool stop_requested() const { return stop_requested_; }

  /// LOCAL. While it lives, every agreement and every run on this thread throws ContextError and changes nothing. For
  /// code that runs ahead of the program, or beside it, when other ranks may be anywhere.
  class [[nodiscard]] LOCKSTEP_PARTS_API Apart {
   public:
    /// `where` ends the message, "in a source whose batches are prefetched", and must outlive this object.
    explicit Apart(std::string_view where);
    Apart(const Apart&) = delete;
    Apart& operator=(const Apart&) = delete;
    ~Apart();

   private:
    std::string_view before_;
  };

  /// COLL, blocking. Ends a run with an exception, and announces it, as `fail` does, unless every rank knows of it.
  [[noreturn]] void leave_failed_run(std::exception_ptr exception);

  /// COLL, blocking. Ends the job from any place in it; returns when every rank is here. If others are elsewhere, it
  /// throws like `agree`, and this rank must call it again, or they would wait for it. True on every rank if any of
  /// them leaves because of a verdict; `with_verdict` says whether this one does.
  bool leave_job(const Here& here, bool with_verdict);

  /// COLL, blocking. The same for a rank whose process ends by itself. If others are elsewhere, it throws on every
  /// rank: to all, this rank has failed, with `what`, such as "called exit(3)", and the job with `code`.
  void exit_job(const Here& here, std::string_view what, Error::ExitCode code);

  /// LOCAL. Marks work of one rank that the others wait for: while the result lives, this rank's absence from an
  /// agreement is not a stall. Keep it until the rank is in that agreement.
  class [[nodiscard]] LOCKSTEP_PARTS_API Alone {
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

  /// Where in the training this rank is.
  const Position& position() const { return position_; }

  /// The same as text: "in step 5, computing after merge_call #1 (trainer.cpp:120)".
  std::string place() const;

  /// The last verdict, until the next agreement that succeeds or the next outermost run.
  const std::shared_ptr<const AgreedFailure>& failure() const { return failure_; }

  /// The verdict that this rank threw as `exception`, if it is the last one, or one of the latest on what was started.
  std::shared_ptr<const AgreedFailure> known(const std::exception_ptr& exception) const;

  /// The last verdict, on whatever, if none has agreed since.
  std::shared_ptr<const AgreedFailure> last_known() const;

  /// Adds to `left` what `known` finds.
  void leave_failures(std::vector<std::shared_ptr<const AgreedFailure>>& left) const;

  /// The number of agreements so far.
  std::uint64_t meetings() const { return meetings_; }

  /// This rank's tag in the last of them; meaningless if there was none.
  const Tag& last() const { return last_; }

  /// That of the started agreement for which this rank waits; null if it waits for none.
  const Tag* started() const { return shown_; }

  /// The number of agreements, covered sums and open sums so far. In each of them, a rank waits for the others.
  std::uint64_t waits() const { return waits_; }

  /// The number at which this rank waits, or waited last, and the highest that it has come to.
  std::uint64_t waits_at() const { return waits_at_; }
  std::uint64_t came_to() const { return came_to_; }

  /// The covered or open sum in which this rank is; null if it is in none.
  const Tag* sum() const { return sum_; }

  /// Whether this rank waits for the others here.
  bool is_waiting() const { return is_waiting_; }

 private:
  friend class AgreedRegion;
  static void require_not_apart(std::string_view what, const Here& here);
  Tag next_tag(TagKind kind, int strategy, const Here& here, std::string_view text);
  Answers meet(const Tag& tag, std::exception_ptr own, Answers mine = {}, const Diagnosis& diagnose = {});
  template <class Exchange>
  void meet_after_last(Exchange&& exchange);
  Tag make_tag(TagKind kind, int strategy) const;
  void begin_to_leave();
  std::uint32_t& count_of(TagKind kind, bool in_run);
  void set_place(Tag& tag) const;
  void move_to(Position::Where where);
  void leave_depth();
  bool has_called_since() const;
  std::array<std::uint64_t, 2> largest_of(std::array<std::uint64_t, 2> words);
  void settle_started();
  void come_to(std::uint64_t number);
  void realign(std::span<const Tag> tags);
  void require_not_covered(const Tag& tag);
  void make_own_open_sum();
  void wait_at(const Tag& tag);
  void stop_waiting();
  void enter_sum(const Tag& sum);
  void leave_sum();
  std::string full_text(const Verdict& verdict, std::span<const Tag> tags, const std::exception_ptr& own);

  std::unique_ptr<ControlChannel> channel_;
  TableOnDemand<std::string> names_;
  PhaseTable* phases_ = nullptr;
  Members members_;
  std::atomic<bool> is_waiting_ = false;
  bool works_alone_ = false;  ///< as this rank has said, while it waits here
  Job* job_ = nullptr;        ///< null if there are no other meeting points, and no requests
  int depth_ = 0;
  std::uint64_t run_ = 0;
  std::uint64_t steps_before_ = 0;  ///< added to the number of a run for that of its step, modulo 2^64
  std::uint64_t sequence_ = 0;
  std::uint64_t meetings_ = 0;
  std::atomic<std::uint64_t> waits_ = 0;  ///< agreements and sums
  std::atomic<std::uint64_t> waits_at_ = 0, came_to_ = 0;
  std::atomic<const Tag*> shown_ = nullptr;
  Tag last_;
  AgreedRegion* region_ = nullptr;
  const Tag* sum_ = nullptr;
  std::uint64_t number_of_sum_ = 0;
  std::function<void()> open_;
  std::function<void()> settle_ = [] {};
  Position position_;
  std::optional<std::pair<std::uint64_t, detail::RunKind>> named_;  ///< by the program
  Here site_ = {};                                                  ///< that `position_` names
  trace::Ring::Open run_span_;                                      ///< of the outermost run, if there is a trace
  using Counts = std::array<std::uint32_t, tag_kinds>;
  Counts counts_in_run_{}, counts_outside_{};
  std::shared_ptr<const AgreedFailure> failure_;
  std::atomic<std::uint32_t> requests_ = 0;
  StartedAgreements started_{*this};
  std::atomic<bool> wants_stop_ = false;  ///< this rank
  static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers set it");
  std::function<bool()> asks_to_stop_ = [] { return false; };
  bool stop_requested_ = false;  ///< by any rank, agreed
};

template <class Sum>
void AgreedRegion::wait_in(Sum&& sum) {
  ++sum_.count;
  const BusyClock::Waiting waiting;
  meeting_.enter_sum(sum_);
  std::forward<Sum>(sum)();
  meeting_.leave_sum();
}

}  // namespace lockstep
