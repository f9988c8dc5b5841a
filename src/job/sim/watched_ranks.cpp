#include "job/sim/watched_ranks.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/control/tag.hpp"
#include "core/watch/heartbeat_network.hpp"
#include "core/watch/watch_rounds.hpp"
#include "job/sim/virtual_time.hpp"

namespace lockstep::sim {
namespace {

// As many heartbeats as a socket's buffer of 208 KiB holds.
constexpr std::size_t most_in_buffer = 160;

// From the line of the rank that reports to the end of the job. Others may speak meanwhile, which is a fault.
constexpr WatchedRanks::Seconds launcher_takes{2};

}  // namespace

class WatchedRanks::Impl {
 public:
  explicit Impl(const Options& options) : options_{options}, random_{options.seed} {
    const int count = options_.nodes * options_.ranks_a_node;
    std::vector<int> lowest;
    std::vector<HeartbeatAddress> addresses;
    for (int rank = 0; rank < count; ++rank) {
      lowest.push_back(rank - place_of(rank));
      addresses.push_back(address_of(rank));
    }
    const NodeMap nodes{lowest};
    const TableOnDemand<std::string> names{count, [](int rank) { return fmt::format("replica {}", rank); }};
    for (int rank = 0; rank < count; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(table_for(rank, count)));
      auto network = std::make_unique<Network>(*this, rank);
      of(rank).network = network.get();
      of(rank).heartbeats = std::make_unique<Heartbeats>(std::move(network));
      of(rank).heartbeats->connect(nodes, rank, addresses, HeartbeatKey{});
      of(rank).meets_at = later(options_.step);
    }
    for (int rank = 0; rank < count; ++rank) {
      const WatchedJob job{
          .names = names, .nodes = nodes, .row = rank, .stall_timeout = options_.stall_timeout, .tick = options_.tick};
      of(rank).rounds = std::make_unique<WatchRounds>(of(rank).table, job, of(rank).heartbeats.get());
      events_.push({later(options_.tick), rank, true});
    }
  }

  void strike(int rank, Fault fault) {
    if (fault == Fault::cut_off)
      cut_.insert(node_of(rank));
    else
      of(rank).fault = fault;
  }

  void run(Seconds most, bool until_said) {
    Time end = now_ + std::chrono::duration_cast<Time>(most);
    while (!events_.empty() && events_.top().at <= end) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      if (!runs(event.rank)) continue;
      if (event.is_tick)
        tick(event.rank);
      else if (of(event.rank).rounds->is_passing())
        of(event.rank).heartbeats->pass_on(of(event.rank).table);
      if (until_said && !lines.empty()) {
        until_said = false;
        end = now_ + std::chrono::duration_cast<Time>(launcher_takes);
      }
    }
    now_ = end;
  }

  double seconds() const { return Seconds{now_}.count(); }

  Traffic take_traffic() {
    const double passed = Seconds{now_ - std::exchange(traffic_since_, now_)}.count();
    Traffic traffic;
    for (const auto& rank : ranks_) {
      const double rate = static_cast<double>(std::exchange(rank->sent, 0)) / passed;
      traffic.mean += rate / static_cast<double>(ranks_.size());
      traffic.most = std::max(traffic.most, rate);
    }
    return traffic;
  }

  std::vector<Line> lines;

 private:
  class Network;

  struct Rank {
    explicit Rank(PhaseTable own) : table{std::move(own)} {}

    PhaseTable table;
    std::unique_ptr<Heartbeats> heartbeats;
    std::unique_ptr<WatchRounds> rounds;
    Network* network = nullptr;
    std::optional<Fault> fault;
    std::optional<Finding> finding;  ///< which it reports when it is its turn
    Time meets_at{0};
    std::uint64_t meeting = 0;
    std::uint64_t sent = 0;  ///< datagrams
  };

  /// A rank's tick, or something that has come for it.
  struct Event {
    Time at;
    int rank;
    bool is_tick;
    /// The queue begins with the greatest.
    bool operator<(const Event& other) const { return std::tie(other.at, other.rank) < std::tie(at, rank); }
  };

  Rank& of(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  int node_of(int rank) const { return rank / options_.ranks_a_node; }
  int place_of(int rank) const { return rank % options_.ranks_a_node; }
  bool is_dead(int rank) { return of(rank).fault == Fault::dies; }
  bool runs(int rank) { return !is_dead(rank) && of(rank).fault != Fault::stops; }

  /// Whether nothing travels between two ranks.
  bool are_apart(int rank, int other) const {
    const int here = node_of(rank), there = node_of(other);
    return here != there && (cut_.contains(here) || cut_.contains(there));
  }

  /// Some time from now, at most `most`.
  Time later(Seconds most) {
    const auto range = static_cast<std::uint64_t>(std::chrono::duration_cast<Time>(most).count());
    return now_ + Time{1 + static_cast<Time::rep>(random_() % std::max<std::uint64_t>(1, range))};
  }

  HeartbeatAddress address_of(int rank) const {
    HeartbeatAddress address;
    address.hosts[0] = static_cast<std::uint32_t>(node_of(rank) + 1);
    address.port = address.stream_port = static_cast<std::uint16_t>(place_of(rank) + 1);
    return address;
  }

  /// The rank that listens there.
  int rank_at(std::uint32_t host, std::uint16_t port) const {
    return (static_cast<int>(host) - 1) * options_.ranks_a_node + port - 1;
  }

  PhaseTable table_for(int rank, int count) {
    if (place_of(rank) != 0) return PhaseTable{of(rank - place_of(rank)).table, rank};
    SharedMemory memory = SharedMemory::create(PhaseTable::bytes_for(count));
    memory.take_over();
    return PhaseTable{std::move(memory), count, rank, PhaseTable::Processes::unknown};
  }

  void tick(int rank) {
    events_.push({now_ + std::chrono::duration_cast<Time>(options_.tick), rank, true});
    Rank& self = of(rank);
    meet(rank);
    self.rounds->beat(self.finding ? WatchRounds::Heartbeat::now : WatchRounds::Heartbeat::when_due);
    if (!self.finding) look(rank);
    if (self.finding) report(rank);
  }

  /// What the main thread has done since the last tick.
  void meet(int rank) {
    Rank& self = of(rank);
    if (self.table.phase() == Phase::meeting) {
      // Without its messages, no agreement ends.
      if (arrived_[self.meeting] < static_cast<int>(ranks_.size()) || !cut_.empty()) return;
      self.table.leave_meeting();
      self.meets_at = later(options_.step);
    } else if (now_ >= self.meets_at && self.fault != Fault::is_late) {
      Tag tag;
      tag.kind = TagKind::merge;
      self.table.enter_meeting(++self.meeting, tag);
      ++arrived_[self.meeting];
    }
  }

  void look(int rank) {
    using Process = Observation::Process;
    Rank& self = of(rank);
    self.rounds->look_around([&](int row, PhaseTable::Snapshot&, Observation::Row& sight) {
      const bool tells = row != rank && node_of(row) == node_of(rank);
      sight.process = !tells ? Process::unknown : is_dead(row) ? Process::ended : Process::running;
    });
    self.finding = self.rounds->judge().failure;
  }

  /// As a watchdog does.
  void report(int rank) {
    Rank& self = of(rank);
    if (self.rounds->turn_to_report(*self.finding) == WatchRounds::Turn::waits) return;
    if (self.finding->code == Error::ExitCode::peer_failed) self.table.note_lost(self.finding->rows.front());
    if (self.table.claim_report(static_cast<int>(self.finding->code)))
      lines.push_back({rank, seconds(), self.finding->sentence});
  }

  Options options_;
  std::mt19937_64 random_;
  Time now_{0}, traffic_since_{0};
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::priority_queue<Event> events_;
  std::set<int> cut_;                     ///< nodes
  std::map<std::uint64_t, int> arrived_;  ///< how many ranks have come to each agreement
};

/// What carries the heartbeats of one rank.
class WatchedRanks::Impl::Network : public HeartbeatNetwork {
 public:
  Network(Impl& job, int rank) : job_{job}, rank_{rank}, address_{job.address_of(rank)} {}

  const HeartbeatAddress& address() const override { return address_; }
  int descriptor() const override { return -1; }

  void send(const SealedHeartbeat& message, std::uint32_t host, std::uint16_t port) override {
    const int target = job_.rank_at(host, port);
    ++job_.of(rank_).sent;
    if (job_.are_apart(rank_, target) || is_lost()) return;
    if (job_.is_dead(target))
      refused_datagrams_.emplace_back(host, port);
    else
      deliver(target, message, Way::datagram);
  }

  void take_refusals(const Refused& refused) override {
    for (const auto& [host, port] : std::exchange(refused_datagrams_, {})) refused(host, port);
  }

  void receive(const Take& take) override {
    while (!inbox_.empty() && inbox_.begin()->first <= job_.now_) {
      const auto first = inbox_.extract(inbox_.begin());
      const auto& [message, way, from] = first.mapped();
      (void)take(message, way, from);
    }
  }

  void open_stream(int rank, const HeartbeatAddress&) override {
    if (job_.are_apart(rank_, rank)) return;
    if (job_.is_dead(rank)) {
      refused_streams_.insert(rank);
      return;
    }
    streams_.insert(rank);
    job_.of(rank).network->streams_.insert(rank_);
  }

  void send_in_streams(const SealedHeartbeat& message, std::optional<int> rank) override {
    std::erase_if(streams_, [this](int each) { return job_.is_dead(each); });
    for (const int each : streams_)
      if ((!rank || each == *rank) && !job_.are_apart(rank_, each)) deliver(each, message, Way::stream);
  }

  bool was_refused(int rank, std::uint32_t heard_from) const override {
    return heard_from != 0 && refused_streams_.contains(rank);
  }
  void forget_refusals(int rank) override { refused_streams_.erase(rank); }

  bool answers(const HeartbeatAddress& there) const override {
    return !job_.are_apart(rank_, job_.rank_at(there.hosts[0], there.stream_port));
  }

 private:
  struct Message {
    SealedHeartbeat bytes;
    Way way;
    std::uint32_t from;
  };

  bool is_lost() const {
    return job_.options_.loss > 0 && std::generate_canonical<double, 32>(job_.random_) < job_.options_.loss;
  }

  void deliver(int target, const SealedHeartbeat& message, Way way) const {
    Network& there = *job_.of(target).network;
    if (there.inbox_.size() >= most_in_buffer) return;
    const Time at = job_.later(job_.options_.longest_latency);
    there.inbox_.emplace(at, Message{message, way, address_.hosts[0]});
    if (job_.of(target).rounds && job_.of(target).rounds->is_passing()) job_.events_.push({at, target, false});
  }

  Impl& job_;
  int rank_;
  HeartbeatAddress address_;
  std::multimap<Time, Message> inbox_;
  std::vector<std::pair<std::uint32_t, std::uint16_t>> refused_datagrams_;
  std::set<int> refused_streams_;  ///< ranks
  std::set<int> streams_;          ///< ranks that are connected with this one
};

WatchedRanks::WatchedRanks(const Options& options) : impl_{std::make_unique<Impl>(options)} {}

WatchedRanks::~WatchedRanks() = default;

void WatchedRanks::strike(int rank, Fault fault) {
  impl_->strike(rank, fault);
}

void WatchedRanks::run_for(Seconds time) {
  impl_->run(time, false);
}

void WatchedRanks::run_until_said(Seconds most) {
  impl_->run(most, true);
}

double WatchedRanks::now() const {
  return impl_->seconds();
}

const std::vector<WatchedRanks::Line>& WatchedRanks::lines() const {
  return impl_->lines;
}

WatchedRanks::Traffic WatchedRanks::take_traffic() {
  return impl_->take_traffic();
}

}  // namespace lockstep::sim
