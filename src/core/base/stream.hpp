// Text on a stream that this process shares with others: a terminal, or a pipe. Others may have made it non-blocking,
// and its reader may be slow, stand still, or be gone.
#pragma once

#include <atomic>
#include <chrono>
#include <string_view>

namespace lockstep {

/// For how long a writer waits while a stream takes nothing. The time in which it is stopped does not count.
struct StreamPatience {
  static constexpr std::chrono::milliseconds without_end = std::chrono::milliseconds::max();

  std::chrono::milliseconds idle = without_end;    ///< since the reader took something last
  std::chrono::milliseconds in_all = without_end;  ///< since the beginning
};

/// Writes all of `text`, whether the stream blocks or not. Text of up to 4096 bytes goes in one piece, and longer text
/// in pieces that end with a line break where they can, so that lines of other processes do not get into one. Returns
/// 0, or the number of the error: EAGAIN where patience has ended, EPIPE where nobody reads any more and SIGPIPE is
/// ignored.
[[nodiscard]] int write_text(int stream, std::string_view text, StreamPatience patience = {});

/// Writes lines that tell of a job. A reader who stands still for `patience` gets no more of them until he reads on: a
/// job must not stand still with its terminal. Errors are ignored, as nobody is left to be told.
class LineWriter {
 public:
  /// `stream` is a descriptor, which must stay open.
  explicit constexpr LineWriter(int stream, StreamPatience patience = {.idle = std::chrono::seconds{30}})
      : stream_{stream}, patience_{patience} {}

  /// From any thread. `lines` end with a line break, unless one is to stay open.
  void write(std::string_view lines);

 private:
  int stream_;
  StreamPatience patience_;
  std::atomic<bool> stands_still_ = false;
};

/// The same for stderr.
void write_to_stderr(std::string_view lines);

/// For the beginning of a process: a standard stream that is closed stays so. Otherwise the next file that is opened
/// would take its number, and get what is written to it.
void keep_closed_streams_closed();

}  // namespace lockstep
