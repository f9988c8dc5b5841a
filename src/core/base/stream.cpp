#include "core/base/stream.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/counted_time.hpp"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// What a pipe takes in one piece, and for what a pipe that poll calls writable has room.
constexpr std::size_t most_at_once = 4096;

// A pipe becomes writable again only when its reader has taken a page of it.
constexpr std::chrono::milliseconds between_polls = 100ms;

// In a longer time this process was stopped, as its reader may have been.
constexpr auto longest_look = 2 * between_polls;

/// The bytes that are still to be read; nothing if the stream does not say.
std::optional<int> unread(int stream) {
  int count = 0;
  // A pipe knows the second one only. Of a socket, the second would be what it has received.
  if (::ioctl(stream, TIOCOUTQ, &count) == 0 || ::ioctl(stream, FIONREAD, &count) == 0) return count;
  return std::nullopt;
}

/// The time that is left, as patience runs out. Takes no lock: the last line of a process is written with it.
class PatienceLeft {
 public:
  explicit PatienceLeft(StreamPatience patience) : patience_{patience} {}

  bool is_limited() const { return std::min(patience_.idle, patience_.in_all) != StreamPatience::without_end; }

  bool is_over() { return time_left() <= 0ms; }

  /// Of a stream that has taken something just now.
  void restart() {
    (void)idle_.look(now());
    idle_.begin_again();
  }

  /// False when patience has ended before the stream takes anything.
  bool wait_for(int stream) {
    std::optional<int> before = unread(stream);
    while (true) {
      const auto left = time_left();
      pollfd wait{stream, POLLOUT, 0};
      const auto time = std::clamp(left, 0ms, between_polls);
      if (const int ready = ::poll(&wait, 1, static_cast<int>(time.count())); ready > 0) return true;
      if (left <= 0ms) return false;
      const std::optional<int> now = unread(stream);
      if (now != before) restart();
      before = now;
    }
  }

 private:
  static CountedTime::Seconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

  std::chrono::milliseconds time_left() {
    const auto time = now();
    return std::min(left_of(patience_.idle, idle_.look(time)), left_of(patience_.in_all, in_all_.look(time)));
  }

  static std::chrono::milliseconds left_of(std::chrono::milliseconds time, CountedTime::Seconds passed) {
    if (time == StreamPatience::without_end) return time;
    return time - std::chrono::duration_cast<std::chrono::milliseconds>(passed);
  }

  StreamPatience patience_;
  CountedTime idle_{now(), longest_look};
  CountedTime in_all_ = idle_;
};

std::string_view first_piece(std::string_view text) {
  if (text.size() <= most_at_once) return text;
  const std::size_t end = text.rfind('\n', most_at_once - 1);
  return text.substr(0, end == text.npos ? most_at_once : end + 1);
}

}  // namespace

int write_text(int stream, std::string_view text, StreamPatience patience) {
  if (stream < 0) return EBADF;  // poll takes it for one that is not ready yet
  PatienceLeft left{patience};
  while (!text.empty()) {
    // A stream that blocks would not return.
    if (left.is_limited() && !left.wait_for(stream)) return EAGAIN;
    const std::string_view piece = left.is_limited() ? first_piece(text) : text;
    const ssize_t count = ::write(stream, piece.data(), piece.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
      left.restart();
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    if (left.is_over()) return EAGAIN;
    // Someone else took the room, or poll counts otherwise than write.
    if (left.is_limited())
      (void)::poll(nullptr, 0, 1);
    else
      (void)left.wait_for(stream);
  }
  return 0;
}

void LineWriter::write(std::string_view lines) {
  if (lines.empty()) return;  // it says nothing of the reader
  const StreamPatience patience = stands_still_ ? StreamPatience{.idle = 0ms} : patience_;
  stands_still_ = write_text(stream_, lines, patience) == EAGAIN;
}

void write_to_stderr(std::string_view lines) {
  static constinit LineWriter writer{STDERR_FILENO};
  writer.write(lines);
}

void keep_closed_streams_closed() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    // The lowest number that is free is this one. It is opened for what it is not used for, so that every use fails.
    if (::fcntl(stream, F_GETFD) < 0) (void)::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace lockstep
