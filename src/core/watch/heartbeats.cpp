#include "core/watch/heartbeats.hpp"

#include <algorithm>
#include <utility>

#include <sodium.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/open_line.hpp"

namespace lockstep {
namespace {

// Only who brings something this new is taken for its sender: a message may come both as a datagram and in a stream.
constexpr std::uint32_t newest_messages = 64;

/// The line of progress is the chief's. The end of all lines may be any node's.
void note_open_line(const PhaseTable& table, const HeartbeatMessage& message) {
  if (message.rank != 0 && message.open_line != OpenLine::over) return;
  std::uint32_t before = table.open_line();
  while (before != static_cast<std::uint32_t>(OpenLine::over) &&
         !table.open_line().compare_exchange_weak(before, static_cast<std::uint32_t>(message.open_line)))
    continue;
}

}  // namespace

Heartbeats::Heartbeats(std::unique_ptr<HeartbeatNetwork> network) : network_{std::move(network)} {
  if (::sodium_init() < 0) throw CommError{"heartbeats between nodes: libsodium does not start"};
}

void Heartbeats::connect(NodeMap nodes, int rank, std::span<const HeartbeatAddress> addresses,
                         const HeartbeatKey& key) {
  nodes_ = std::move(nodes);
  std::map<decltype(HeartbeatAddress::hosts), std::uint32_t> known;
  doors_.reserve(addresses.size());
  for (const HeartbeatAddress& each : addresses) {
    const auto [hosts, is_new] = known.try_emplace(each.hosts, static_cast<std::uint32_t>(hosts_.size()));
    if (is_new) hosts_.push_back(each.hosts);
    doors_.push_back({hosts->second, each.port, each.stream_port});
  }
  rank_ = rank;
  key_ = key;
  for (int other = 0; other < nodes_->ranks(); ++other)
    if (is_to_hear(other)) heard_.push_back({.rank = other});
  heard_.shrink_to_fit();
  for (int node = 0; node < nodes_->nodes(); ++node) {
    if (!nodes_->are_near(node, nodes_->node_of(rank))) continue;
    const int carrier = nodes_->carrier(rank, node);
    const HeartbeatAddress& there = addresses[static_cast<std::size_t>(carrier)];
    for (const std::uint32_t host : there.hosts)
      if (host != 0) targets_.push_back({carrier, host, there.port});
  }
}

bool Heartbeats::is_near(int rank) const {
  return nodes_->are_near(nodes_->node_of(rank), nodes_->node_of(rank_));
}

bool Heartbeats::is_to_hear(int rank) const {
  const int here = nodes_->node_of(rank_);
  return nodes_->node_of(rank) != here && nodes_->carrier(rank, here) == rank_;
}

HeartbeatAddress Heartbeats::address_of(int rank) const {
  const Door& door = doors_[static_cast<std::size_t>(rank)];
  return {.hosts = hosts_[door.hosts], .port = door.port, .stream_port = door.stream_port};
}

/// Null if another rank is to hear it.
const Heartbeats::Heard* Heartbeats::heard(int rank) const {
  const auto found = std::ranges::lower_bound(heard_, rank, {}, &Heard::rank);
  return found != heard_.end() && found->rank == rank ? &*found : nullptr;
}

/// Finds out what became of datagrams that did not arrive.
void Heartbeats::read_refusals() {
  network_->take_refusals([this](std::uint32_t host, std::uint16_t port) {
    for (Target& target : targets_)
      if (target.host == host && target.port == port) target.refused = true;
  });
}

SealedHeartbeat Heartbeats::sealed(const PhaseTable& table, std::optional<NodeMap::Route> route) {
  return seal({.sequence = ++sequence_,
               .row = table.read(rank_),
               .rank = rank_,
               .reported = table.reported(),
               .warned = table.warned(),
               .route = static_cast<std::uint16_t>(route ? static_cast<std::uint32_t>(*route) + 1 : 0),
               .speaker = table.speaker(),
               .open_line = static_cast<OpenLine>(table.open_line().load()),
               .observed = table.observed(),
               .questions = table.questions(),
               .wishes = table.wishes(),
               .lost = static_cast<std::uint32_t>(table.lost().value_or(-1) + 1)},
              key_);
}

void Heartbeats::send(const PhaseTable& table) {
  const SealedHeartbeat message = sealed(table, {});
  read_refusals();
  for (const Target& target : targets_) network_->send(message, target.host, target.port);
  network_->send_in_streams(message, {});
}

void Heartbeats::send_around(const PhaseTable& table) {
  using Route = NodeMap::Route;
  // Where several nodes do not pass rows on, other ways may lead around them.
  const bool long_first = std::exchange(around_by_long_steps_, !around_by_long_steps_);
  for (const Route route : {long_first ? Route::up_by_long_steps : Route::up_by_short_steps,
                            long_first ? Route::down_by_long_steps : Route::down_by_short_steps})
    send_on(route, rank_, sealed(table, route));
}

/// To the nodes that are next.
void Heartbeats::send_on(NodeMap::Route route, int origin, const SealedHeartbeat& message) {
  for (const int node : nodes_->next_on(route, nodes_->node_of(origin), nodes_->node_of(rank_))) {
    const int carrier = nodes_->carrier(origin, node);
    const HeartbeatAddress there = address_of(carrier);
    const Heard* const sender = heard(carrier);
    const std::uint32_t known = sender ? sender->from : 0;
    for (const std::uint32_t host : there.hosts)
      if (known != 0 ? host == known : host != 0) network_->send(message, host, there.port);
    network_->send_in_streams(message, carrier);
  }
}

void Heartbeats::receive(PhaseTable& table) {
  ++receipts_;
  pass_on(table);
  ask_where_silent();
}

void Heartbeats::pass_on(PhaseTable& table) {
  read_refusals();
  network_->receive(
      [&](std::span<const std::byte> bytes, Way way, std::uint32_t from) { return take(bytes, way, from, table); });
}

/// Writes what is new, and passes it on. Nothing if it is forged or old.
std::optional<HeartbeatNetwork::Taken> Heartbeats::take(std::span<const std::byte> bytes, Way way, std::uint32_t from,
                                                        PhaseTable& table) {
  const auto message = open_sealed(bytes, key_, nodes_->ranks());
  if (!message || nodes_->same_node(message->rank, rank_)) return std::nullopt;
  const auto sequence = static_cast<std::uint32_t>(message->sequence);
  Heard* const known = heard(message->rank);
  std::optional<int> sender;
  if (message->route == 0) {
    sender = message->rank;
  } else {
    if (!known || sequence <= known->passed_on[message->route - 1]) return HeartbeatNetwork::Taken{};
    known->passed_on[message->route - 1] = sequence;
    SealedHeartbeat copy;
    std::ranges::copy(bytes, copy.begin());
    send_on(static_cast<NodeMap::Route>(message->route - 1), message->rank, copy);
  }
  std::uint32_t& newest = known ? known->sequence : others_[message->rank];
  // Datagrams may overtake each other, and may arrive twice: by two routes, or because someone repeats them.
  const bool is_recent = newest < message->sequence + newest_messages;
  if (sequence > newest) {
    newest = sequence;
    if (known) note(*message, *known, way, from, table);
  }
  return is_recent ? std::optional{HeartbeatNetwork::Taken{sender}} : std::nullopt;
}

/// What the newest message of a rank says.
void Heartbeats::note(const HeartbeatMessage& message, Heard& sender, Way way, std::uint32_t from, PhaseTable& table) {
  sender.at = receipts_;
  if (message.route == 0) {
    sender.missed = way == Way::stream ? sender.missed + 1 : 0;
    if (way == Way::datagram) sender.from = from;
  }
  for (Target& target : targets_)
    if (target.rank == message.rank) target.refused = false;
  network_->forget_refusals(message.rank);
  table.write(message.rank, message.row);
  if (message.reported) (void)table.claim_report();
  if (message.warned) (void)table.claim_warning();
  if (message.observed.count != sender.observed) {
    sender.observed = message.observed.count;
    // Those that are near this node, but not near that one, hear of it from here.
    if (table.observe(message.observed.row)) table.show_observed(message.observed.row);
  }
  table.note(message.questions);
  table.note_wishes(message.wishes);
  table.note_speaker(message.speaker);
  if (message.lost != 0) table.note_lost(static_cast<int>(message.lost) - 1);
  note_open_line(table, message);
}

/// Also where its host refuses datagrams: it may be a firewall that does.
void Heartbeats::ask_where_silent() {
  for (const Heard& each : heard_) {
    const bool near = is_near(each.rank);
    if (!near && !all_expected_at_) continue;
    const bool refused =
        std::ranges::any_of(targets_, [&](const Target& target) { return target.rank == each.rank && target.refused; });
    const bool is_silent = near ? receipts_ - each.at > ask_after_.first
                                : receipts_ - std::max(each.at, *all_expected_at_) > ask_after_.second;
    if (refused || is_silent) network_->open_stream(each.rank, address_of(each.rank));
  }
}

void Heartbeats::expect_all(bool all) {
  if (all != all_expected_at_.has_value()) all_expected_at_ = all ? std::optional{receipts_} : std::nullopt;
}

bool Heartbeats::was_refused(int rank) const {
  const Heard* const sender = heard(rank);
  return network_->was_refused(rank, sender ? sender->from : 0);
}

bool Heartbeats::host_answers(int rank) const {
  return network_->answers(address_of(rank));
}

bool Heartbeats::heard_all(const PhaseTable& table) const {
  return std::ranges::none_of(
      heard_, [&](const Heard& each) { return is_near(each.rank) && table.read(each.rank).phase == Phase::absent; });
}

std::optional<std::uint32_t> Heartbeats::missed_datagrams(int rank) const {
  const Heard* const sender = heard(rank);
  return sender && is_near(rank) ? std::optional{sender->missed} : std::nullopt;
}

}  // namespace lockstep
