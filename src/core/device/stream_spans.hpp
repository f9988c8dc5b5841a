// Spans of a GPU's work for a trace: when its streams did what the host had enqueued long before.
//
// Two marks on a stream (device_marks.hpp) bound each span. Their times are those of the GPU's clock, known once the
// GPU has passed them. So spans are written when the host has waited for the GPU anyway, which a step does once. That
// wait also ties the GPU's clock to the host's, anew each time: the GPU passed a mark after the host had put it, and
// the last mark before the host saw that its wait was over. Together, the marks bound the offset between the clocks to
// an interval about as long as the time between two looks of the host at the GPU (poll_clock.cpp). The trace takes its
// middle, and states half its length as the error.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/device/stream.hpp>

#include "core/base/parts.hpp"
#include "core/device/device_marks.hpp"
#include "core/trace/ring.hpp"

namespace lockstep {

/// From its construction to its destruction, the spans of this process's GPU go to its ring. One at a time; the device
/// must outlive it. It ends itself, with a warning, when the GPU refuses a mark: a trace ends no job.
class StreamTrace {
 public:
  LOCKSTEP_PARTS_API explicit StreamTrace(std::unique_ptr<DeviceMarks> marks);
  StreamTrace(const StreamTrace&) = delete;
  StreamTrace& operator=(const StreamTrace&) = delete;
  LOCKSTEP_PARTS_API ~StreamTrace();

  // From any thread. They do nothing while there is none, and on the host's streams. No call waits for the GPU.

  /// Which span, among all that ever began; 0 is none.
  using Number = std::uint64_t;

  static bool is_on() { return current_.load(std::memory_order_relaxed) != nullptr; }

  LOCKSTEP_PARTS_API static Number begin(Stream& stream, trace::Kind kind, std::string_view name);
  LOCKSTEP_PARTS_API static void end(Stream& stream, Number span);
  /// Ends one and begins another at the same mark.
  static Number next(Stream& stream, Number ended, trace::Kind kind, std::string_view name);

  /// Made by a stream before the host waits for all of its work, and told when that is done: writes the spans that the
  /// GPU has come to the end of.
  class LOCKSTEP_PARTS_API Wait {
   public:
    explicit Wait(Stream& stream);
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait();
    void over();

   private:
    std::optional<std::size_t> mark_;
  };

 private:
  using Time = trace::Time;

  struct Mark {
    Time put;       ///< by the host
    int users = 0;  ///< it is not under way without one
    /// How long before the mark that the host has waited for; empty if the GPU has not passed it.
    std::optional<std::chrono::nanoseconds> before;
  };
  struct Span {
    trace::Kind kind;
    trace::Track track;
    std::uint32_t step;
    std::string name;
    std::optional<std::size_t> begin, end;  ///< marks; no begin: written, or not to be
  };
  // With the lock.
  Number open(Stream& stream, trace::Kind kind, std::string_view name, std::optional<std::size_t> at);
  void close(Number span, std::optional<std::size_t> at);
  std::optional<std::size_t> mark_for_span(Stream& stream);
  std::optional<std::size_t> mark(Stream& stream);
  void release(std::optional<std::size_t> mark);
  trace::Track track_of(const Stream& stream);
  bool measure(std::size_t waited_for);
  Time anchor(Time seen) const;
  void write_passed(Time anchor);
  void give_up();

  std::unique_ptr<DeviceMarks> device_;
  std::vector<Mark> marks_;
  std::vector<std::size_t> unused_;  ///< marks
  std::deque<Span> spans_;           ///< that have not been written
  Number first_;                     ///< of `spans_`
  std::vector<const Stream*> streams_;
  bool failed_ = false;

  LOCKSTEP_PARTS_API static std::atomic<StreamTrace*> current_;
  static std::mutex mutex_;   ///< of whatever is current
  static Number after_last_;  ///< of those before this one
};

/// A span of what is enqueued on a stream during its lifetime: of the GPU's time only.
class [[nodiscard]] StreamSpan {
 public:
  StreamSpan(Stream& stream, trace::Kind kind, std::string_view name)
      : stream_{stream}, number_{StreamTrace::is_on() ? StreamTrace::begin(stream, kind, name) : 0} {}
  StreamSpan(const StreamSpan&) = delete;
  StreamSpan& operator=(const StreamSpan&) = delete;
  ~StreamSpan() {
    if (number_ != 0) StreamTrace::end(stream_, number_);
  }

 private:
  Stream& stream_;
  StreamTrace::Number number_;
};

/// The layers of a pass, one after the other, each until the next: in the host's time, and in that of the stream's GPU.
///
///   LayerSpans layers{stream, "forward"};
///   for (std::size_t i = 0; i < layers_.size(); ++i) {
///     layers.next("dense", i);
class [[nodiscard]] LOCKSTEP_PARTS_API LayerSpans {
 public:
  /// `pass` is a span of the GPU's around them; the host's has the parts of a step.
  LayerSpans(Stream& stream, std::string_view pass) : stream_{stream}, pass_{stream, trace::Kind::part, pass} {}
  LayerSpans(const LayerSpans&) = delete;
  LayerSpans& operator=(const LayerSpans&) = delete;
  ~LayerSpans();

  void next(std::string_view name) {
    if (trace::Ring::is_on()) go_on(name);
  }
  /// "dense_1".
  void next(std::string_view name, std::size_t number) {
    if (trace::Ring::is_on()) go_on(trace::numbered(name, number));
  }

 private:
  void go_on(std::string_view name);

  Stream& stream_;
  StreamSpan pass_;
  trace::Ring::Open host_;
  StreamTrace::Number device_ = 0;
};

/// During its lifetime, sums that this thread enqueues are for that bucket, and their spans are named after it.
class [[nodiscard]] BucketSpans {
 public:
  explicit BucketSpans(std::size_t bucket);
  BucketSpans(const BucketSpans&) = delete;
  BucketSpans& operator=(const BucketSpans&) = delete;
  ~BucketSpans();

  /// "ncclKernel_all_reduce bucket_3", so that Holistic Trace Analysis knows it for a sum; without the bucket if it is
  /// for none.
  LOCKSTEP_PARTS_API static std::string name_of(std::string_view collective);

 private:
  std::optional<std::size_t> outer_;
};

}  // namespace lockstep
