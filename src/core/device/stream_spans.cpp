#include "core/device/stream_spans.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

namespace lockstep {
namespace {

using std::chrono::nanoseconds;

// Of spans; more are not under way unless the host waits for its GPU very seldom. Spans without a mark are left out.
// Waits always get one, as they are what releases the others.
constexpr std::size_t most_marks = 8192;

// Of CUDA's events: "around 0.5 microseconds".
constexpr nanoseconds resolution{500};

thread_local std::optional<std::size_t> bucket_of_thread;

}  // namespace

std::atomic<StreamTrace*> StreamTrace::current_ = nullptr;
std::mutex StreamTrace::mutex_;
StreamTrace::Number StreamTrace::after_last_ = 1;

StreamTrace::StreamTrace(std::unique_ptr<DeviceMarks> marks) : device_{std::move(marks)}, first_{after_last_} {
  current_ = this;
}

StreamTrace::~StreamTrace() {
  const std::lock_guard lock{mutex_};
  current_ = nullptr;
  after_last_ = first_ + spans_.size();
}

StreamTrace::Number StreamTrace::begin(Stream& stream, trace::Kind kind, std::string_view name) {
  return next(stream, 0, kind, name);
}

void StreamTrace::end(Stream& stream, Number span) {
  const std::lock_guard lock{mutex_};
  if (StreamTrace* const own = current_; own && span >= own->first_) own->close(span, own->mark_for_span(stream));
}

StreamTrace::Number StreamTrace::next(Stream& stream, Number ended, trace::Kind kind, std::string_view name) {
  if (stream.kind() == DeviceKind::cpu) return 0;
  const std::lock_guard lock{mutex_};
  StreamTrace* const own = current_;
  if (!own) return 0;
  const std::optional<std::size_t> at = own->mark_for_span(stream);
  if (ended >= own->first_) own->close(ended, at);
  return own->open(stream, kind, name, at);
}

StreamTrace::Number StreamTrace::open(Stream& stream, trace::Kind kind, std::string_view name,
                                      std::optional<std::size_t> at) {
  if (!at) return 0;
  ++marks_[*at].users;
  spans_.push_back({.kind = kind,
                    .track = track_of(stream),
                    .step = trace::Ring::step(),
                    .name = std::string{name},
                    .begin = at,
                    .end = std::nullopt});
  return first_ + spans_.size() - 1;
}

void StreamTrace::close(Number span, std::optional<std::size_t> at) {
  Span& closed = spans_[span - first_];
  if (!at) return release(std::exchange(closed.begin, std::nullopt));
  ++marks_[*at].users;
  closed.end = at;
}

std::optional<std::size_t> StreamTrace::mark_for_span(Stream& stream) {
  return marks_.size() - unused_.size() < most_marks ? mark(stream) : std::nullopt;
}

/// A mark after what `stream` has to do, without a user yet.
std::optional<std::size_t> StreamTrace::mark(Stream& stream) {
  if (failed_) return std::nullopt;
  const bool is_new = unused_.empty();
  const std::size_t number = is_new ? marks_.size() : unused_.back();
  const Time now = Time::clock::now();
  switch (device_->put(number, stream)) {
    case DeviceMarks::Put::refused: return std::nullopt;
    case DeviceMarks::Put::failed: give_up(); return std::nullopt;
    case DeviceMarks::Put::done: break;
  }
  if (is_new)
    marks_.emplace_back();
  else
    unused_.pop_back();
  marks_[number] = {.put = now, .users = 0, .before = std::nullopt};
  return number;
}

void StreamTrace::release(std::optional<std::size_t> mark) {
  if (mark && --marks_[*mark].users == 0) unused_.push_back(*mark);
}

trace::Track StreamTrace::track_of(const Stream& stream) {
  const auto found = std::ranges::find(streams_, &stream);
  const auto index = found - streams_.begin();
  if (found == streams_.end()) streams_.push_back(&stream);
  return static_cast<trace::Track>(
      std::min<std::ptrdiff_t>(trace::first_stream_track + index, trace::last_stream_track));
}

StreamTrace::Wait::Wait(Stream& stream) {
  if (!is_on()) return;
  const std::lock_guard lock{mutex_};
  StreamTrace* const own = current_;
  if (!own || own->spans_.empty()) return;
  mark_ = own->mark(stream);
  if (mark_) ++own->marks_[*mark_].users;
}

StreamTrace::Wait::~Wait() {
  if (!mark_) return;
  const std::lock_guard lock{mutex_};
  if (StreamTrace* const own = current_) own->release(mark_);
}

void StreamTrace::Wait::over() {
  if (!mark_) return;
  const Time seen = Time::clock::now();
  const std::lock_guard lock{mutex_};
  StreamTrace* const own = current_;
  if (!own || own->failed_) return;
  if (!own->measure(*mark_)) return own->give_up();
  own->write_passed(own->anchor(seen));
}

/// Whether the GPU tells how long ago it passed the marks.
bool StreamTrace::measure(std::size_t waited_for) {
  for (std::size_t number = 0; number < marks_.size(); ++number) {
    Mark& mark = marks_[number];
    mark.before.reset();
    if (mark.users == 0) continue;
    const DeviceMarks::Distance on = device_->distance(number, waited_for);
    if (on.reached == DeviceMarks::Reached::failed) return false;
    if (on.reached == DeviceMarks::Reached::both) mark.before = on.time;
  }
  return true;
}

/// When the GPU passed the mark that the host has waited for: before `seen`, and each mark after it was put.
StreamTrace::Time StreamTrace::anchor(Time seen) const {
  std::optional<Time> earliest;
  for (const Mark& mark : marks_)
    if (mark.users > 0 && mark.before) earliest = std::max(earliest.value_or(Time::min()), mark.put + *mark.before);
  // If the GPU tells of none, nothing limits the error.
  const Time first = earliest.value_or(seen);
  const nanoseconds half = (seen - first) / 2;
  trace::Ring::raise_device_error(std::max(std::chrono::abs(half), resolution));
  return first + half;
}

void StreamTrace::write_passed(Time anchor) {
  for (Span& span : spans_) {
    if (!span.begin || !span.end) continue;
    const auto from_begin = marks_[*span.begin].before, from_end = marks_[*span.end].before;
    if (!from_begin || !from_end) continue;
    trace::Ring::add({.kind = span.kind,
                      .track = span.track,
                      .step = span.step,
                      .begin = anchor - *from_begin,
                      .length = *from_begin - *from_end,
                      .name = span.name});
    release(std::exchange(span.begin, std::nullopt));
    release(std::exchange(span.end, std::nullopt));
  }
  for (; !spans_.empty() && !spans_.front().begin; ++first_) spans_.pop_front();
}

void StreamTrace::give_up() {
  if (std::exchange(failed_, true)) return;
  log::warning("the trace has no more spans of the GPU: it refused an event");
}

LayerSpans::~LayerSpans() {
  trace::Ring::end(host_);
  if (device_ != 0) StreamTrace::end(stream_, device_);
}

void LayerSpans::go_on(std::string_view name) {
  host_ = trace::Ring::next(host_, trace::Kind::layer, name);
  if (StreamTrace::is_on()) device_ = StreamTrace::next(stream_, device_, trace::Kind::layer, name);
}

BucketSpans::BucketSpans(std::size_t bucket) : outer_{std::exchange(bucket_of_thread, bucket)} {}

BucketSpans::~BucketSpans() {
  bucket_of_thread = outer_;
}

std::string BucketSpans::name_of(std::string_view collective) {
  return bucket_of_thread ? fmt::format("ncclKernel_{} bucket_{}", collective, *bucket_of_thread)
                          : fmt::format("ncclKernel_{}", collective);
}

}  // namespace lockstep
