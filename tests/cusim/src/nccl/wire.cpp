#include "wire.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../core.hpp"
#include "sums.hpp"

namespace cusim {
namespace {

/// The most bytes that one pump moves in one direction, so that it ends even if the peer keeps up.
constexpr std::size_t most_bytes_at_once = 1u << 20;

bool must_wait() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS;
}

void note_done(Outstanding* outstanding) {
  if (outstanding) --outstanding->parts;
}

}  // namespace

Socket::Socket(Socket&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void Socket::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::send: return "ncclSend";
    case Kind::broadcast: return "ncclBroadcast";
    case Kind::all_reduce: return "ncclAllReduce";
    case Kind::reduce: return "ncclReduce";
    case Kind::reduce_scatter: return "ncclReduceScatter";
    case Kind::all_gather: return "ncclAllGather";
    case Kind::goodbye: return "ncclCommFinalize";
  }
  return "nothing known";
}

bool Header::matches(const Header& other) const {
  return kind == other.kind && type == other.type && op == other.op && root == other.root && count == other.count;
}

std::string text_of(const Header& header) {
  if (header.kind == Kind::goodbye) return name_of(header.kind);
  std::string text =
      fmt::format("{} of {} {}", name_of(header.kind), header.count, name_of(static_cast<ncclDataType_t>(header.type)));
  if (header.kind == Kind::broadcast) text += fmt::format(" from rank {}", header.root);
  if (header.kind == Kind::reduce) text += fmt::format(" to rank {}", header.root);
  if (header.op != ncclSum) text += fmt::format(" with operation {}", header.op);
  return text;
}

Connection::State Connection::pump(bool may_close) {
  if (state_ != State::open) return state_;
  if (!pump_out() || !pump_in() || (!may_close && has_hung_up())) state_ = State::dead;
  return state_;
}

bool Connection::pump_out() {
  for (std::size_t budget = most_bytes_at_once; !out_.empty() && budget;) {
    const Outgoing& message = out_.front();
    const std::size_t end = sizeof(Header) + std::min(message.bytes, message.stop_at);
    if (sent_ < end) {
      const auto* const header = reinterpret_cast<const std::byte*>(&message.header);
      const bool in_header = sent_ < sizeof(Header);
      const std::byte* const from = in_header ? header + sent_ : message.data + (sent_ - sizeof(Header));
      const std::size_t bytes = std::min(budget, (in_header ? sizeof(Header) : end) - sent_);
      const ssize_t sent = ::send(socket_.fd(), from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno == EFAULT) found(fmt::format("{} reads memory that is not there", text_of(message.header)));
        return must_wait();
      }
      sent_ += static_cast<std::size_t>(sent);
      budget -= static_cast<std::size_t>(sent);
      continue;
    }
    if (message.stop_at < message.bytes) return true;
    int unread = 0;
    if (message.waits && ::ioctl(socket_.fd(), SIOCOUTQ, &unread) == 0 && unread > 0) return true;
    note_done(message.outstanding);
    out_.pop_front();
    sent_ = 0;
  }
  return true;
}

bool Connection::receive_header() {
  auto* const to = reinterpret_cast<std::byte*>(&heard_);
  const ssize_t got = ::recv(socket_.fd(), to + received_, sizeof(Header) - received_, MSG_DONTWAIT);
  if (got <= 0) return got < 0 && must_wait();
  received_ += static_cast<std::size_t>(got);
  if (received_ < sizeof(Header)) return true;
  Incoming& message = in_.front();
  if (!heard_.matches(message.expected)) {
    state_ = State::mismatched;
    return true;
  }
  if (message.is_device && message.bytes) writes(message.data, message.bytes, name_of(heard_.kind));
  if (message.outstanding && peer_ == 0) message.outstanding->seed = heard_.seed;
  return true;
}

bool Connection::pump_in() {
  for (std::size_t budget = most_bytes_at_once; !in_.empty() && budget;) {
    if (received_ < sizeof(Header)) {
      const std::size_t before = received_;
      if (!receive_header()) return false;
      if (state_ == State::mismatched || received_ == before) return true;
      continue;
    }
    const Incoming& message = in_.front();
    if (const std::size_t left = sizeof(Header) + message.bytes - received_) {
      std::byte* const to = message.data + (received_ - sizeof(Header));
      const ssize_t got = ::recv(socket_.fd(), to, std::min(budget, left), MSG_DONTWAIT);
      if (got < 0 && errno == EFAULT)
        found(fmt::format("{} writes to memory that is not there", text_of(message.expected)));
      if (got <= 0) return got < 0 && must_wait();
      received_ += static_cast<std::size_t>(got);
      budget -= static_cast<std::size_t>(got);
      continue;
    }
    note_done(message.outstanding);
    in_.pop_front();
    received_ = 0;
  }
  return true;
}

bool Connection::has_hung_up() const {
  pollfd look{socket_.fd(), POLLRDHUP, 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

std::string Connection::text() const {
  if (in_.empty()) {
    if (out_.empty()) return {};
    return fmt::format("{} waits until rank {} receives", text_of(out_.front().header), peer_);
  }
  std::string text = fmt::format("{} waits for rank {}", text_of(in_.front().expected), peer_);
  if (state_ == State::mismatched) text += fmt::format(", which calls {}", text_of(heard_));
  return text;
}

void Connection::clear() {
  out_.clear();
  in_.clear();
  state_ = State::dead;
  socket_.close();
}

}  // namespace cusim
