#include "python/desk.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/start_thread.hpp"

namespace lockstep::python {
namespace {

// Tags of MPI: those of messages are what they are about.
constexpr int tag_of_memory = 100;

// What one call of MPI moves; it counts in an int.
constexpr std::size_t longest_piece = std::size_t{1} << 30;

// While something is under way, and while nothing is.
constexpr std::chrono::microseconds shortest_idle{10}, longest_idle{2000};

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  (void)MPI_Error_string(code, text.data(), &length);
  throw CommError{fmt::format("{}: {}", call, text.data())};
}

}  // namespace

Desk::Desk() {
  check(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
}

void Desk::open() {
  thread_ = start_thread("for messages between two ranks", [this] { go_on(); });
}

void Desk::close() {
  {
    const std::scoped_lock lock{mutex_};
    is_closing_ = true;
  }
  posted_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Desk::post(Post post) {
  {
    const std::scoped_lock lock{mutex_};
    posts_.push_back(std::move(post));
  }
  posted_.notify_all();
}

bool Desk::Moving::succeeds(int code, const char* call) try {
  check(code, call);
  return true;
} catch (const CommError&) {
  if (!failure) failure = std::current_exception();
  return false;
}

void Desk::send(int to, About about, Bytes message, Then then) {
  Moving& moving = moving_.emplace_back();
  moving.kept = std::move(message);
  moving.then = std::move(then);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(moving.kept.data(), static_cast<int>(moving.kept.size()), MPI_BYTE, to,
                             static_cast<int>(about), communicator_, &request);
  if (moving.succeeds(code, "MPI_Isend")) moving.requests.push_back(request);
}

template <class Start>
void Desk::move(std::size_t bytes, Then then, const char* call, const Start& start) {
  Moving& moving = moving_.emplace_back();
  moving.then = std::move(then);
  for (std::size_t first = 0; first < bytes && !moving.failure; first += longest_piece) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = start(first, static_cast<int>(std::min(longest_piece, bytes - first)), &request);
    if (moving.succeeds(code, call)) moving.requests.push_back(request);
  }
}

void Desk::send_memory(int to, std::span<const std::byte> memory, Then then) {
  move(memory.size(), std::move(then), "MPI_Isend", [&](std::size_t first, int count, MPI_Request* request) {
    return MPI_Isend(memory.data() + first, count, MPI_BYTE, to, tag_of_memory, communicator_, request);
  });
}

void Desk::receive_memory(int from, std::span<std::byte> memory, Then then) {
  move(memory.size(), std::move(then), "MPI_Irecv", [&](std::size_t first, int count, MPI_Request* request) {
    return MPI_Irecv(memory.data() + first, count, MPI_BYTE, from, tag_of_memory, communicator_, request);
  });
}

void Desk::go_on() {
  auto pause = shortest_idle;
  for (;;) {
    bool moved = do_posted();
    moved |= receive();
    moved |= end_moved();
    pause = moved ? shortest_idle : std::min(2 * pause, longest_idle);
    std::unique_lock lock{mutex_};
    if (is_closing_) return;
    if (!moved) posted_.wait_for(lock, pause, [this] { return is_closing_ || !posts_.empty(); });
  }
}

bool Desk::do_posted() {
  std::deque<Post> posts;
  {
    const std::scoped_lock lock{mutex_};
    posts.swap(posts_);
  }
  for (const Post& each : posts) each();
  return !posts.empty();
}

bool Desk::receive() {
  bool moved = false;
  for (std::size_t about = 0; about < receivers_.size(); ++about) {
    int has_come = 0, size = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, static_cast<int>(about), communicator_, &has_come, &status) != MPI_SUCCESS) continue;
    if (!has_come) continue;
    MPI_Get_count(&status, MPI_BYTE, &size);
    Bytes message(static_cast<std::size_t>(size));
    if (MPI_Recv(message.data(), size, MPI_BYTE, status.MPI_SOURCE, static_cast<int>(about), communicator_,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
      continue;
    receivers_[about](status.MPI_SOURCE, std::move(message));
    moved = true;
  }
  return moved;
}

bool Desk::end_moved() {
  bool moved = false;
  for (auto each = moving_.begin(); each != moving_.end();) {
    while (!each->requests.empty()) {
      int is_done = 0;
      const int code = MPI_Test(&each->requests.back(), &is_done, MPI_STATUS_IGNORE);
      if (each->succeeds(code, "MPI_Test") && !is_done) break;
      each->requests.pop_back();
    }
    if (!each->requests.empty()) {
      ++each;
      continue;
    }
    const Moving moved_on = std::move(*each);
    each = moving_.erase(each);
    if (moved_on.then) moved_on.then(moved_on.failure);  // may begin to move more, at the end of the list
    moved = true;
  }
  return moved;
}

}  // namespace lockstep::python
