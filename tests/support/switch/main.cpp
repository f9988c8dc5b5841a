// A switch between network namespaces of one machine, for scripts/nodes: the kernel may have no netem. Makes a TAP
// device eth0 in each namespace, and passes Ethernet frames between them, with a delay, a rate and losses.
//
// usage: nodes-switch DELAY_NS LOSS SEED QUEUE_BYTES [FD:BITS_PER_SECOND[:LOSSLESS]]...
//
// FD is an open file of a network namespace, and the rate is that of the line to it, 0 for none. A frame from a port is
// lost with the probability LOSS, and otherwise comes to the line of its destination after the delay. Frames to and
// from a port with the word LOSSLESS are never lost. Writes a line to stdout when all devices are there. Ends by a
// signal, and the devices with it.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lines.hpp"

namespace lockstep::test {
namespace {

// What may be under way to one port at a time, for lines without a rate and long delays.
constexpr std::size_t most_bytes_under_way = 64 << 20;
// How many frames are read from a port before the others have their turn.
constexpr int batch = 64;

[[noreturn]] void fail(const char* call) {
  throw std::system_error{errno, std::generic_category(), call};
}

Time now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

/// Makes a device in the namespace. Frames come with a header that says how the kernel would cut them, if `large`, so
/// that several of one connection pass at once.
int make_device(int network_namespace, bool large) {
  if (::setns(network_namespace, CLONE_NEWNET) != 0) fail("setns");
  const int device = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0) fail("/dev/net/tun");
  ifreq request = {};
  std::strcpy(request.ifr_name, "eth0");
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(device, TUNSETIFF, &request) != 0) fail("TUNSETIFF");
  if (::ioctl(device, TUNSETOFFLOAD, large ? TUN_F_CSUM | TUN_F_TSO4 : 0) != 0) fail("TUNSETOFFLOAD");
  return device;
}

using Address = std::array<std::byte, 6>;

/// The kernel's header before a frame: virtio_net_hdr, of a file that is no C++.
struct Header {
  std::uint8_t flags, cut;  ///< `cut` is not 0 if the frame is to be cut
  std::uint16_t headers_bytes, piece_bytes, checksum_begin, checksum_offset;
};
static_assert(sizeof(Header) == 10);

struct Frame {
  std::vector<std::byte> bytes;

  static constexpr std::size_t header_bytes = sizeof(Header);

  Address address(std::size_t offset) const {
    Address address;
    std::memcpy(address.data(), bytes.data() + header_bytes + offset, address.size());
    return address;
  }
  Address destination() const { return address(0); }
  Address source() const { return address(6); }

  /// Each of the frames that a large one stands for has all headers.
  std::int64_t bytes_on_wire() const {
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    const auto whole = static_cast<std::int64_t>(bytes.size() - header_bytes);
    if (header.cut == 0 || header.piece_bytes == 0) return whole + frame_overhead_bytes;
    const std::int64_t frames = (whole - header.headers_bytes + header.piece_bytes - 1) / header.piece_bytes;
    return whole + (frames - 1) * header.headers_bytes + frames * frame_overhead_bytes;
  }
};

struct UnderWay {
  Time due;
  Frame frame;
};

struct Port {
  int device;
  Line line;
  Loss loss;
  bool lossless;
  std::deque<UnderWay> under_way = {};
  std::size_t bytes_under_way = 0;
};

struct Options {
  Time delay;
  double loss;
  std::uint64_t seed;
  std::int64_t queue_bytes;
};

class Switch {
 public:
  Switch(const Options& options, std::vector<Port> ports) : delay_{options.delay}, ports_{std::move(ports)} {
    for (const Port& port : ports_) polled_.push_back({port.device, POLLIN, 0});
  }

  [[noreturn]] void run() {
    for (;;) {
      wait();
      for (std::size_t from = 0; from < ports_.size(); ++from)
        if (polled_[from].revents != 0) read_batch(from);
    }
  }

 private:
  /// Until a frame can be read. Frames that are due meanwhile leave.
  void wait() {
    for (;;) {
      const std::optional<Time> due = send_due();
      timespec left = {};
      if (due) {
        const Time wait = std::max(*due - now(), Time{0});
        left = {wait.count() / 1000000000, wait.count() % 1000000000};
      }
      const int ready = ::ppoll(polled_.data(), polled_.size(), due ? &left : nullptr, nullptr);
      if (ready < 0 && errno != EINTR) fail("ppoll");
      if (ready > 0) return;
    }
  }

  /// When the next is due; nothing if none is under way.
  std::optional<Time> send_due() {
    std::optional<Time> next;
    const Time time = now();
    for (Port& port : ports_) {
      while (!port.under_way.empty() && port.under_way.front().due <= time) {
        const Frame& frame = port.under_way.front().frame;
        // What the device does not take is lost, as on a wire.
        (void)!::write(port.device, frame.bytes.data(), frame.bytes.size());
        port.bytes_under_way -= frame.bytes.size();
        port.under_way.pop_front();
      }
      if (!port.under_way.empty())
        next = std::min(next.value_or(port.under_way.front().due), port.under_way.front().due);
    }
    return next;
  }

  void read_batch(std::size_t from) {
    const Time arrival = now() + delay_;
    for (int i = 0; i < batch; ++i) {
      const ssize_t read = ::read(ports_[from].device, room_.data(), room_.size());
      if (read < static_cast<ssize_t>(Frame::header_bytes) + 14) return;
      const bool lost = ports_[from].loss.next();
      const Frame frame{{room_.begin(), room_.begin() + read}};
      homes_[frame.source()] = from;
      const auto home = homes_.find(frame.destination());
      for (std::size_t to = 0; to < ports_.size(); ++to) {
        if (to == from || (home != homes_.end() && home->second != to)) continue;
        if (lost && !ports_[from].lossless && !ports_[to].lossless) continue;
        put_under_way(ports_[to], frame, arrival);
      }
    }
  }

  static void put_under_way(Port& port, const Frame& frame, Time arrival) {
    if (port.bytes_under_way + frame.bytes.size() > most_bytes_under_way) return;
    const std::optional<Time> due = port.line.through(arrival, frame.bytes_on_wire());
    if (!due) return;
    port.under_way.push_back({*due, frame});
    port.bytes_under_way += frame.bytes.size();
  }

  Time delay_;
  std::vector<Port> ports_;
  std::vector<pollfd> polled_;
  std::map<Address, std::size_t> homes_;  ///< the port behind which an address was seen last
  std::vector<std::byte> room_ = std::vector<std::byte>(Frame::header_bytes + (1 << 17));
};

Port make_port(const std::string& text, const Options& options, std::uint64_t number) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) throw std::invalid_argument{text};
  const bool lossless = text.find(':', colon + 1) != std::string::npos;
  // A large frame would be lost as a whole.
  return {make_device(std::stoi(text), options.loss == 0),
          Line{std::stoll(text.substr(colon + 1)), options.queue_bytes}, Loss{options.loss, options.seed + number},
          lossless};
}

}  // namespace
}  // namespace lockstep::test

int main(int argc, char** argv) {
  using namespace lockstep::test;
  try {
    if (argc < 5) throw std::invalid_argument{"expected DELAY_NS LOSS SEED QUEUE_BYTES and ports"};
    const Options options{Time{std::stoll(argv[1])}, std::stod(argv[2]), std::stoull(argv[3]), std::stoll(argv[4])};
    std::vector<Port> ports;
    for (int i = 5; i < argc; ++i) ports.push_back(make_port(argv[i], options, static_cast<std::uint64_t>(i)));
    // Other programs on this machine do not make the wire slower. It is worth no failure where that is not allowed.
    const sched_param first{1};
    (void)::sched_setscheduler(0, SCHED_FIFO, &first);
    std::cout << "nodes-switch: ready" << std::endl;
    Switch{options, std::move(ports)}.run();
  } catch (const std::exception& error) {
    std::cerr << "nodes-switch: " << error.what() << '\n';
    return 1;
  }
}
