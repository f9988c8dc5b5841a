// What the file of a ring holds, for its writer and its readers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::trace {

/// What a span is about.
enum class Kind : std::uint8_t {
  step,   ///< a run of the strategy that is a step
  run,    ///< another one, such as an evaluation
  part,   ///< of a step: data, forward, backward
  layer,  ///< a layer's forward or backward pass; on a GPU's stream also the optimizer's update
  wait,   ///< for the other ranks
  sum,    ///< waiting for the sum of a bucket of gradients
  checkpoint,
  program,  ///< a trace::Span of the program's own
};
inline constexpr std::size_t kinds = 8;

/// Whose line in the picture a span is on: a thread, by the order in which threads first wrote, or a track that is
/// none.
using Track = std::uint8_t;
inline constexpr Track first_stream_track = 240;  ///< of a GPU's streams, by the order in which they got spans
inline constexpr Track last_stream_track = 247;
inline constexpr Track parts_track = 254;   ///< parts of the main thread's time; they do not nest with its other spans
inline constexpr Track writer_track = 255;  ///< of the threads that write checkpoints, one after the other

/// One span: 64 bytes, written by one thread. A process may be killed at any moment, so `length` is stored last, and a
/// reader takes no record whose length is `unwritten`.
struct Record {
  static constexpr std::int64_t unwritten = 0;
  static constexpr std::int64_t open = -1;

  std::atomic<std::int64_t> length;  ///< nanoseconds plus 1, or one of the above
  std::atomic<std::int64_t> begin;   ///< nanoseconds of the monotonic clock
  std::uint32_t step;                ///< modulo 2^32
  Track track;
  Kind kind;
  std::uint8_t name_size;
  std::uint8_t unused;
  std::array<char, 40> name;
};
static_assert(sizeof(Record) == 64 && std::atomic<std::int64_t>::is_always_lock_free);

/// The beginning of the file; the records follow.
struct Header {
  static constexpr std::array<char, 16> expected_magic{"lockstep trace2"};
  static constexpr std::size_t text_bytes = 64;
  using Text = std::array<char, text_bytes>;  ///< ends with a zero byte

  std::array<char, 16> magic;
  std::uint64_t records;               ///< in the file
  std::atomic<std::uint64_t> written;  ///< spans begun, ever: record number n is in place n modulo `records`
  std::int32_t rank;
  std::int32_t ranks;
  std::int64_t process;
  /// Nanoseconds to add to this host's monotonic clock for that of rank 0's host, and by how much that may have been
  /// wrong when the ring was made: clocks drift apart.
  std::atomic<std::int64_t> clock_offset;
  std::atomic<std::int64_t> clock_error;
  /// By how many nanoseconds the spans of GPU streams may be displaced against those of this host: the most so far.
  std::atomic<std::int64_t> device_clock_error;
  Text task;  ///< "worker:1"
  Text host;
  Text device;
  std::array<std::array<char, 16>, 64> threads;  ///< the kernel's names of the threads, by track
};
static_assert(sizeof(Header) <= 4096);
inline constexpr std::size_t header_bytes = 4096;

inline constexpr bool is_of_stream(Track track) {
  return track >= first_stream_track && track <= last_stream_track;
}

}  // namespace lockstep::trace
