// Heartbeats on networks that do not carry them, that others listen to, or that others speak on.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <sys/socket.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/descriptor.hpp"
#include "core/control/tag.hpp"
#include "core/watch/heartbeat_message.hpp"
#include "core/watch/network.hpp"
#include "core/watch/signs_of_life.hpp"
#include "unit/watch_heartbeats_support.hpp"

using namespace lockstep;
using lockstep::test::Addresses;
using lockstep::test::eventually;
using lockstep::test::merge_tag;
using lockstep::test::numbers_to;
using lockstep::test::Ranks;
using lockstep::test::WatchedRank;

namespace {

/// Somebody on the way, who gets the datagrams that are meant for a rank.
class Eavesdropper {
 public:
  Eavesdropper() {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    socklen_t length = sizeof any;
    auto* const address = reinterpret_cast<sockaddr*>(&any);
    if (::bind(socket_.get(), address, length) != 0 || ::getsockname(socket_.get(), address, &length) != 0)
      throw std::runtime_error{"no socket to listen on"};
    port_ = any.sin_port;
  }

  std::uint16_t port() const { return port_; }

  std::vector<std::byte> next() {
    std::vector<std::byte> bytes(1024);
    const auto size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    return bytes;
  }

  void send(std::span<const std::byte> bytes, const HeartbeatAddress& to) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = to.hosts[0];
    address.sin_port = to.port;
    REQUIRE(::sendto(socket_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&address),
                     sizeof address) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  Descriptor socket_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_ = 0;
};

/// To where nothing listens that is of the job. Each is sent once.
void divert_datagrams(Addresses& addresses, std::uint16_t port) {
  for (HeartbeatAddress& each : addresses) {
    each.port = port;
    std::fill(each.hosts.begin() + 1, each.hosts.end(), 0);
  }
}

HeartbeatMessage some_message() {
  HeartbeatMessage message{.sequence = 7, .rank = 2, .reported = true, .observed = {3, 1}};
  message.row.phase = Phase::meeting;
  message.row.last = merge_tag();
  message.row.process.here = 4242;
  message.row.meeting = message.row.passed = 17;
  message.row.group = 12;
  message.row.groups.back() = {12, 3};
  message.row.waits_at = 2;
  message.row.groups_not_shown = 1;
  return message;
}

constexpr int ranks_of_job = 3;

}  // namespace

TEST_CASE("a heartbeat that was changed, cut or sealed with another key is none") {
  const HeartbeatKey key = make_heartbeat_key();
  const SealedHeartbeat sealed = seal(some_message(), key);
  const auto opened = open_sealed(sealed, key, ranks_of_job);
  REQUIRE(opened);
  CHECK(opened->sequence == 7);
  CHECK(opened->rank == 2);
  CHECK(opened->reported);
  CHECK_FALSE(opened->warned);
  CHECK(opened->observed.count == 3);
  CHECK(opened->row.meeting == 17);
  CHECK(opened->row.group == 12);
  CHECK(opened->row.groups == some_message().row.groups);
  CHECK(opened->row.waits_at == 2);
  CHECK(opened->row.groups_not_shown > 0);
  CHECK(opened->row.last.site_text() == "trainer.cpp:120");
  CHECK(opened->row.process.here == 0);  // another host's
  CHECK(opened->row.passed == 0);

  CHECK_FALSE(open_sealed(sealed, make_heartbeat_key(), ranks_of_job));
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    SealedHeartbeat changed = sealed;
    changed[i] ^= std::byte{1};
    CAPTURE(i);
    CHECK_FALSE(open_sealed(changed, key, ranks_of_job));
    CHECK_FALSE(open_sealed(std::span{sealed}.first(i), key, ranks_of_job));
  }
}

TEST_CASE("a heartbeat that says what cannot be is none, even with the right seal") {
  const HeartbeatKey key = make_heartbeat_key();
  const auto is_taken = [&](const auto& change) {
    HeartbeatMessage message = some_message();
    change(message);
    return open_sealed(seal(message, key), key, ranks_of_job).has_value();
  };
  CHECK(is_taken([](HeartbeatMessage&) {}));
  CHECK(is_taken([](HeartbeatMessage& m) { std::memset(m.row.last.site, 'x', Tag::site_capacity); }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.rank = ranks_of_job; }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.rank = -1; }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.observed.row = ranks_of_job; }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.row.phase = static_cast<Phase>(6); }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.row.last.kind = static_cast<TagKind>(tag_kinds); }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.row.position.where = static_cast<Position::Where>(4); }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.row.position.kind = static_cast<detail::RunKind>(200); }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.open_line = static_cast<OpenLine>(3); }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.row.last.site[2] = '\x1b'; }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.row.position.site[0] = '\x1b'; }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.row.process.there = -1; }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.row.terminated = 2; }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.reported = 2; }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.warned = 2; }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.route = NodeMap::routes + 1; }));
  CHECK_FALSE(is_taken([](HeartbeatMessage& m) { m.lost = ranks_of_job + 1; }));
}

TEST_CASE("heartbeats that somebody forges, changes or repeats are ignored") {
  Eavesdropper eve;
  Ranks ranks{{0, 1}, [&](int rank, Addresses& told) {
                if (rank == 1) divert_datagrams(told, eve.port());
              }};
  ranks.beats(0).ask_after(1u << 30, 1u << 30);
  const auto receive = [&](std::span<const std::byte> bytes) {
    eve.send(bytes, ranks.addresses[0]);
    ranks.beats(0).receive(ranks.table(0));
    return ranks.table(0).read(1).heartbeat;
  };
  ranks.beat(1);
  const auto first = eve.next();
  ranks.beat(1);
  const auto second = eve.next();
  auto forged = second;
  forged[9] ^= std::byte{4};
  CHECK(receive(forged) == 0);
  HeartbeatMessage by_stranger = some_message();
  by_stranger.rank = 1;
  CHECK(receive(seal(by_stranger, HeartbeatKey{})) == 0);
  CHECK(receive(second) == 2);
  CHECK(receive(second) == 2);
  CHECK(receive(first) == 2);
}

TEST_CASE("a rank whose datagrams do not come is asked over TCP, and one line of the job says so") {
  Eavesdropper nobody;
  const bool both_ways = GENERATE(true, false);
  Ranks ranks{{0, 1}, [&](int rank, Addresses& told) {
                if (rank == 1 || both_ways) divert_datagrams(told, nobody.port());
              }};
  REQUIRE(ranks.hears(0, 1));
  WatchedRank watched{ranks, 1};
  ranks.table(1).enter(Phase::alone);
  ranks.table(0).enter_meeting(1, merge_tag());
  const std::string expected =
      "warning: heartbeats between replica 0 and replica 1 do not get through by UDP: they go by TCP\n";
  const auto from = ranks.table(0).read(0).heartbeat;
  REQUIRE(eventually([&] {
    ranks.beat(1);
    return ranks.table(0).read(0).heartbeat > from + 30;  // 1.5 s of announced work
  }));
  CHECK(watched.ends() == 0);
  CHECK(watched.line().substr(watched.line().find("warning")) == expected);
  CHECK(ranks.table(0).read(1).phase == Phase::alone);
  // The other side knows that it was said.
  CHECK(ranks.table(1).warned());
  if (!both_ways) return;

  // The end of its process shows as well as ever.
  ranks.heartbeats[1].reset();
  REQUIRE(eventually([&] { return watched.ends() > 0; }));
  CHECK(watched.code() == Error::ExitCode::peer_failed);
  CHECK_THAT(watched.line(), Catch::Contains("replica 1 is gone: its process ended"));
}

TEST_CASE("a rank is asked over TCP at each of its addresses, not only at the first") {
  Eavesdropper nobody;
  Ranks ranks{{0, 1}, [&](int, Addresses& told) {
                divert_datagrams(told, nobody.port());
                for (HeartbeatAddress& each : told)
                  each.hosts[1] = std::exchange(each.hosts[0], ::inet_addr("240.0.0.1"));  // nobody's
              }};
  CHECK(ranks.hears(0, 1));
}

TEST_CASE("a rank whose host refuses datagrams lives if it answers over TCP") {
  std::uint16_t refused = 0;
  {
    const Eavesdropper closed;
    refused = closed.port();
  }
  Ranks ranks{{0, 1}, [&](int rank, Addresses& told) {
                if (rank == 0) divert_datagrams(told, refused);
              }};
  REQUIRE(ranks.hears(0, 1));
  WatchedRank watched{ranks, 30};
  const auto from = ranks.table(0).read(0).heartbeat;
  REQUIRE(eventually([&] {
    ranks.beat(1);
    return ranks.table(0).read(0).heartbeat > from + 20;
  }));
  CHECK(watched.ends() == 0);
}

TEST_CASE("strangers who connect are dropped") {
  Eavesdropper nobody;
  Ranks ranks{{0, 1}, [&](int, Addresses& told) { divert_datagrams(told, nobody.port()); }};
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = ranks.addresses[1].stream_port;
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(strangers.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    std::vector<std::byte> garbage(i % 2 == 0 ? 5 : 4 * sealed_heartbeat_bytes);
    REQUIRE(::send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL) > 0);
  }
  CHECK(ranks.hears(0, 1));
  CHECK(std::ranges::all_of(strangers, [&](const Descriptor& each) {
    return eventually([&] {
      ranks.beat(1);
      std::byte byte;
      const auto got = ::recv(each.get(), &byte, 1, MSG_DONTWAIT);
      return got == 0 || (got < 0 && errno == ECONNRESET);
    });
  }));
}

TEST_CASE("strangers who say nothing keep nobody out") {
  Ranks ranks{{0, 1}};
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = ranks.addresses[1].stream_port;
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(strangers.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  std::byte byte;
  for (int i = 0; i < 3; ++i) ranks.beat(1);  // takes up to eight of them each time
  REQUIRE(eventually([&] { return ::recv(strangers.front().get(), &byte, 1, MSG_DONTWAIT) == 0; }));
  CHECK(::recv(strangers.back().get(), &byte, 1, MSG_DONTWAIT) == -1);
}

TEST_CASE("silence counts from the last sign of life, and a rank is mute only after agreements that came later") {
  SignsOfLife life;
  const auto look = [&](SignsOfLife::News news, int times = 1) {
    for (; times > 0; --times) life.look(news, 4);
  };
  look({.heartbeat = 1});
  CHECK(life.has_beaten);
  look({.heartbeat = 1}, 3);
  CHECK(life.unproven_ticks == 3);
  look({.heartbeat = 1, .met = true});
  CHECK(life.silent_ticks == 4);
  CHECK(life.unproven_ticks == 0);
  look({.heartbeat = 1, .met = true, .agreed = true}, 2);
  CHECK_FALSE(life.is_mute());
  look({.heartbeat = 1, .met = true, .agreed = true});
  CHECK(life.is_mute());
  look({.heartbeat = 1}, 9);
  CHECK(life.is_mute());
  CHECK(life.unproven_ticks == 9);
  look({.heartbeat = 2});
  CHECK_FALSE(life.is_mute());
  CHECK(life.silent_ticks == 0);
  // Between two heartbeats, and while the next is late.
  look({.heartbeat = 2, .met = true, .agreed = true}, 3);
  look({.heartbeat = 2}, 9);
  CHECK_FALSE(life.is_mute());
  look({.heartbeat = 2, .is_heard = false}, 9);
  CHECK(life.silent_ticks == 0);
}

TEST_CASE("heartbeats are bound to the network that is named") {
  const auto address = [](const char* text) { return ::inet_addr(text); };
  const std::vector<HostAddress> host{{"lo", address("127.0.0.1")},
                                      {"docker0", address("172.17.0.1")},
                                      {"eth1", address("10.1.0.7")},
                                      {"eth0", address("10.77.0.1")}};
  const auto first = [&](const char* list) {
    const auto named = named_addresses(host, list);
    return named.empty() ? "none" : to_text(named.front().address);
  };
  CHECK(first("10.77.0.0/24") == "10.77.0.1");
  CHECK(first("10.0.0.0/8") == "10.1.0.7");
  CHECK(first("10.9.0.0/16,eth0,eth1") == "10.77.0.1");
  CHECK(first("10.77.0.0/25,10.1.0.0/16") == "10.77.0.1");
  CHECK(first("0.0.0.0/0") == "127.0.0.1");
  CHECK(first("10.77.0.2/32") == "none");
  CHECK(first("eth") == "none");
  for (const char* wrong : {"", "10.77.0.0", "10.77.0.0/", "10.77.0.0/33", "10.77.0.0/-1", "10.77.0/24", "a/8",
                            "10.77.0.0/24,", "10.77.0.0/2 4", "::1/64"})
    CHECK_FALSE(parse_network(wrong));

  CHECK(address_for_heartbeats("127.0.0.0/8") == address("127.0.0.1"));
  CHECK_THROWS_WITH(address_for_heartbeats("eth0"), "--network eth0: expected an IPv4 network such as 10.77.0.0/24");
  CHECK_THROWS_WITH(address_for_heartbeats("203.0.113.0/24"),
                    Catch::StartsWith("--network 203.0.113.0/24: host ") &&
                        Catch::Contains(" has no address there; it has 127.0.0.1"));
  const HeartbeatSockets bound{address("127.0.0.1")};
  CHECK(bound.address().hosts == decltype(bound.address().hosts){address("127.0.0.1")});
}

TEST_CASE("a row that comes twice is passed on once") {
  Eavesdropper instead_of_3;
  Ranks ranks{numbers_to(9), [&](int rank, Addresses& told) {
                if (rank == 0) told[1].hosts = {told[1].hosts[0], told[1].hosts[0]};
                if (rank == 1) divert_datagrams(told, instead_of_3.port());
              }};
  // The second goes by short steps first: from 0 to 1, and on to 3 and 5.
  for (int round = 0; round < 2; ++round) {
    ranks.table(0).beat();
    ranks.beats(0).send_around(ranks.table(0));
  }
  REQUIRE(eventually([&] {
    ranks.beats(1).receive(ranks.table(1));
    return ranks.table(1).read(0).heartbeat == 2;
  }));
  ranks.beats(1).send(ranks.table(1));
  std::vector<int> senders;
  do {
    const auto message = open_sealed(instead_of_3.next(), ranks.key, 9);
    REQUIRE(message);
    senders.push_back(message->rank);
  } while (senders.back() != 1);
  CHECK(senders == std::vector<int>{0, 0, 1});
}

TEST_CASE("where datagrams do not get through, rows are passed on over TCP") {
  Eavesdropper nobody;
  Ranks ranks{numbers_to(9), [&](int, Addresses& told) { divert_datagrams(told, nobody.port()); }};
  const auto all_beat = [&] {
    for (int rank = 0; rank < 9; ++rank) ranks.beat(rank);
  };
  REQUIRE(eventually([&] {
    all_beat();
    return ranks.beats(1).heard_all(ranks.table(1)) && ranks.beats(3).heard_all(ranks.table(3));
  }));
  CHECK(ranks.table(3).read(0).phase == Phase::absent);
  REQUIRE(eventually([&] {
    ranks.beats(0).send_around(ranks.table(0));
    all_beat();
    return ranks.table(3).read(0).phase == Phase::computing;
  }));
}

TEST_CASE("a rank that is not near is asked over TCP where all rows are expected, and its does not come") {
  Ranks ranks{numbers_to(9)};
  ranks.beats(0).ask_after(1u << 30, 3);
  const auto beat = [&] {
    for (const int rank : {0, 3}) ranks.beat(rank);
  };
  for (int looks = 0; looks < 20; ++looks) beat();
  CHECK(ranks.table(0).read(3).phase == Phase::absent);
  ranks.beats(0).expect_all(true);
  REQUIRE(eventually([&] {
    beat();
    return ranks.table(0).read(3).phase == Phase::computing;
  }));
}
