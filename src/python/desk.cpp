#include "python/desk.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

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

}  // namespace

Desk::Desk() {
  if (MPI_Comm_dup(MPI_COMM_WORLD, &communicator_) != MPI_SUCCESS)
    throw CommError{"MPI_Comm_dup of MPI_COMM_WORLD failed"};
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(communicator_, &rank_);
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

void Desk::post(Then then) {
  {
    const std::scoped_lock lock{mutex_};
    posts_.push_back(std::move(then));
  }
  posted_.notify_all();
}

void Desk::send(int to, About about, Bytes message) {
  Moving& moving = moving_.emplace_back();
  moving.kept = std::move(message);
  moving.requests.push_back(MPI_REQUEST_NULL);
  MPI_Isend(moving.kept.data(), static_cast<int>(moving.kept.size()), MPI_BYTE, to, static_cast<int>(about),
            communicator_, &moving.requests.back());
}

template <class Start>
void Desk::move(std::size_t bytes, Then then, const Start& start) {
  Moving& moving = moving_.emplace_back();
  moving.then = std::move(then);
  for (std::size_t first = 0; first < bytes; first += longest_piece) {
    moving.requests.push_back(MPI_REQUEST_NULL);
    start(first, static_cast<int>(std::min(longest_piece, bytes - first)), &moving.requests.back());
  }
}

void Desk::send_memory(int to, std::span<const std::byte> memory, Then then) {
  move(memory.size(), std::move(then), [&](std::size_t first, int count, MPI_Request* request) {
    MPI_Isend(memory.data() + first, count, MPI_BYTE, to, tag_of_memory, communicator_, request);
  });
}

void Desk::receive_memory(int from, std::span<std::byte> memory, Then then) {
  move(memory.size(), std::move(then), [&](std::size_t first, int count, MPI_Request* request) {
    MPI_Irecv(memory.data() + first, count, MPI_BYTE, from, tag_of_memory, communicator_, request);
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
  std::deque<Then> posts;
  {
    const std::scoped_lock lock{mutex_};
    posts.swap(posts_);
  }
  for (const Then& each : posts) each();
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
    int is_done = 0;
    MPI_Testall(static_cast<int>(each->requests.size()), each->requests.data(), &is_done, MPI_STATUSES_IGNORE);
    if (!is_done) {
      ++each;
      continue;
    }
    const Then then = std::move(each->then);
    each = moving_.erase(each);
    if (then) then();  // may begin to move more, at the end of the list
    moved = true;
  }
  return moved;
}

}  // namespace lockstep::python
