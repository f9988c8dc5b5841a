// What two ranks of a communicator say to each other, over one Unix socket for each pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include <nccl.h>

namespace cusim {

/// A file descriptor, owned once.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_{fd} {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  void close() noexcept;
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

enum class Kind : std::uint32_t { send, broadcast, all_reduce, reduce, reduce_scatter, all_gather, goodbye };

/// NCCL's name of the function; a message that one rank sends is received by `ncclRecv`.
const char* name_of(Kind kind);

/// What a rank calls, as its peers hear it before the data. Both sides of a call have the same, but for `seed`.
struct Header {
  Kind kind = Kind::send;
  std::int32_t type = ncclUint8;
  std::int32_t op = ncclSum;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t seed = 0;  ///< rank 0's orders the sum

  bool matches(const Header& other) const;
};

/// "ncclReduce of 5 f32 to rank 1"
std::string text_of(const Header& header);

/// Parts of a call that are still to be sent or received.
struct Outstanding {
  int parts = 0;
  std::uint64_t seed = 0;  ///< as rank 0 has it
};

/// One message to a peer. `data` is read as it leaves.
struct Outgoing {
  Header header;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool waits = false;                  ///< done when the peer has received it, not when the socket has taken it
  Outstanding* outstanding = nullptr;  ///< null: nobody waits for it
  std::size_t stop_at = SIZE_MAX;      ///< a fault: no more bytes than these leave
};

/// One message that is due from a peer. `data` is written as it arrives.
struct Incoming {
  Header expected;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool is_device = false;  ///< `data` belongs to the program, and not to cusim
  Outstanding* outstanding = nullptr;
};

/// The connection to one peer. Not safe to use from several threads. Nothing in it blocks.
class Connection {
 public:
  enum class State { open, dead, mismatched };

  Connection(Socket socket, int peer) : socket_{std::move(socket)}, peer_{peer} {}

  void send(Outgoing message) { out_.push_back(message); }
  void expect(Incoming message) { in_.push_back(message); }

  /// Sends and receives what it can now.
  State pump(bool may_close);

  bool is_idle() const { return out_.empty() && in_.empty(); }
  bool has_unsent() const { return !out_.empty(); }
  /// Whether the peer has closed its end.
  bool has_hung_up() const;
  int peer() const { return peer_; }

  /// What this rank waits for, and what the peer called instead if that is known.
  std::string text() const;

  /// Forgets all messages.
  void clear();

 private:
  bool pump_out();
  bool pump_in();
  bool receive_header();

  Socket socket_;
  int peer_;
  std::deque<Outgoing> out_;
  std::deque<Incoming> in_;
  std::size_t sent_ = 0;      ///< bytes of the first of `out_`, with its header
  std::size_t received_ = 0;  ///< bytes of the first of `in_`, with its header
  Header heard_;
  State state_ = State::open;
};

}  // namespace cusim
