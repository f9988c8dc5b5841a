// The spans of a process on their way to a file: the last ones of a run, of fixed size, there also after SIGKILL.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/parts.hpp"
#include "core/trace/ring_layout.hpp"

namespace lockstep::trace {

using Time = std::chrono::steady_clock::time_point;

/// Writes spans to a mapped file, the newest over the oldest. From its construction to its destruction it is the
/// process's, of which there is at most one. The kernel keeps what was written, however the process ends.
class LOCKSTEP_PARTS_API Ring {
 public:
  struct Options {
    enum class Name {
      file,  ///< `file` is its path, replaced if it exists
      none,  ///< `file` is a folder, in which it has no name: it goes with the process, however that ends
    };
    std::filesystem::path file;
    Name name = Name::file;
    int rank = 0;
    int ranks = 1;
    std::string task = {};
    std::string host = {};
    std::string device = {};
    std::size_t bytes = std::size_t{32} << 20;  ///< of the file
  };

  /// Errors name the file: CheckpointError if it cannot be made, or if the disk has no room for all of it; ConfigError
  /// if the process has a ring.
  explicit Ring(const Options& options);
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring();

  /// See Header.
  void set_clock(std::chrono::nanoseconds offset, std::chrono::nanoseconds error);

  /// How many spans it was given, whether or not their records are still there.
  std::uint64_t written() { return header().written.load(std::memory_order_relaxed); }

  /// As long as it lives, it is as if the process had no ring. They do not overlap. To find out what a ring costs.
  class [[nodiscard]] Off {
   public:
    Off() : ring_{current_.exchange(nullptr)} {}
    Off(const Off&) = delete;
    Off& operator=(const Off&) = delete;
    ~Off() { current_ = ring_; }

   private:
    Ring* ring_;
  };

  // From any thread, also one that outlives the ring. They do nothing while the process has none.

  /// Where a span's record is, and when the span began; 0 of nothing.
  struct Open {
    std::uint64_t number = 0;
    std::int64_t begin = 0;
  };

  /// A span that has ended.
  struct Ended {
    Kind kind;
    Track track;
    std::uint32_t step;
    Time begin;
    std::chrono::nanoseconds length;
    std::string_view name;
  };

  static bool is_on() { return current_.load(std::memory_order_relaxed) != nullptr; }

  /// The step that spans belong to from now on.
  static void set_step(std::uint64_t step);
  static std::uint32_t step();

  /// Begins a span on this thread's track.
  static Open begin(Kind kind, std::string_view name);
  static Open begin(Kind kind, Track track, std::string_view name);

  /// Ends it now, if it is one, and its record has not been written over.
  static void end(const Open& span);

  /// Ends one span and begins another, both at `at`: two spans for one look at the clock.
  static Open next(const Open& ended, Kind kind, Track track, std::string_view name, Time at);
  /// On this thread's track, now.
  static Open next(const Open& ended, Kind kind, std::string_view name);

  /// Writes a span whose times were not known before it had ended: of a GPU's work.
  static void add(const Ended& span);

  /// Raises Header::device_clock_error to `error`.
  static void raise_device_error(std::chrono::nanoseconds error);

 private:
  Header& header() { return *static_cast<Header*>(memory_); }
  Record& record(std::uint64_t number);
  Record& write(std::uint64_t number, Kind kind, Track track, std::string_view name, Time begin);
  Open start(Kind kind, Track track, std::string_view name, Time at);
  void finish(const Open& span, Time at);
  Track own_track();

  void* memory_;
  std::size_t bytes_;
  std::uint64_t records_;
  std::atomic<std::uint32_t> step_ = 0;
  std::atomic<int> tracks_ = 0;
  int number_;  ///< among the rings of the process
  static std::atomic<Ring*> current_;
  static std::atomic<int> users_;  ///< calls under way
  class Use;
};

/// "dense_1".
LOCKSTEP_PARTS_API std::string numbered(std::string_view name, std::size_t number);

/// A span of the library's own, as trace::Span is of the program's.
class [[nodiscard]] Within {
 public:
  Within(Kind kind, std::string_view name) : span_{Ring::begin(kind, name)} {}
  Within(Kind kind, Track track, std::string_view name) : span_{Ring::begin(kind, track, name)} {}
  /// `name()`, called only if there is a trace.
  template <std::invocable Name>
  Within(Kind kind, Name&& name) {
    if (Ring::is_on()) span_ = Ring::begin(kind, std::forward<Name>(name)());
  }
  /// "dense_1".
  Within(Kind kind, std::string_view name, std::size_t number) {
    if (Ring::is_on()) span_ = Ring::begin(kind, numbered(name, number));
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  ~Within() { Ring::end(span_); }

 private:
  Ring::Open span_;
};

}  // namespace lockstep::trace
