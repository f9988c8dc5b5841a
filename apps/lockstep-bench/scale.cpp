#include "apps/lockstep-bench/scale.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <malloc.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "apps/lockstep-bench/start_exchanges.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/phase_table.hpp"
#include "core/control/rounds.hpp"
#include "core/control/shared_table.hpp"
#include "core/watch/heartbeats.hpp"
#include "core/watch/watchdog.hpp"
#include "job/sim/network.hpp"
#include "job/sim/virtual_time.hpp"
#include "job/sim/watched_ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::bench {
namespace {

using sim::Time;
using Fault = sim::Options::Fault;

/// Contents travel up to this size, and those of a step's numbers on any number of ranks.
constexpr std::size_t carried_bytes = 64 << 10, carried_for_each_rank = 64;

/// Between two measurements, so that all of the first is over.
constexpr Time pause = std::chrono::seconds{1};

double microseconds_of(Time time) {
  return std::chrono::duration<double, std::micro>{time}.count();
}

sim::Links links_of(const ScaleOptions& options, int ranks) {
  sim::Links links;
  links.between.latency = Time{static_cast<Time::rep>(options.delay * 1e6)};
  links.between.bytes_per_second = options.rate * 1e6;
  links.carried_bytes = std::max(carried_bytes, carried_for_each_rank * static_cast<std::size_t>(ranks));
  return links;
}

/// Memory of one rank for each rank of the job.
struct Tables {
  double own = 0;     ///< of its own
  double shared = 0;  ///< that it shares with the ranks of its node
};

std::size_t heap_in_use() {
  const auto heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

/// Carries nothing: of ranks whose memory alone counts.
class NoNetwork : public HeartbeatNetwork {
 public:
  const HeartbeatAddress& address() const override { return address_; }
  int descriptor() const override { return -1; }
  void send(const SealedHeartbeat&, std::uint32_t, std::uint16_t) override {}
  void take_refusals(const Refused&) override {}
  void receive(const Take&) override {}
  void open_stream(int, const HeartbeatAddress&) override {}
  void send_in_streams(const SealedHeartbeat&, std::optional<int>) override {}
  bool was_refused(int, std::uint32_t) const override { return false; }
  void forget_refusals(int) override {}
  bool answers(const HeartbeatAddress&) const override { return true; }

 private:
  HeartbeatAddress address_;
};

/// What a watchdog and heartbeats keep on a rank of such a job, as the heap shows it.
std::size_t bytes_to_watch(int ranks, int on_node) {
  std::vector<int> lowest;
  std::vector<HeartbeatAddress> addresses(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    lowest.push_back(rank - rank % on_node);
    addresses[static_cast<std::size_t>(rank)].hosts[0] = static_cast<std::uint32_t>(rank / on_node + 1);
  }
  SharedMemory memory = SharedMemory::create(PhaseTable::bytes_for(ranks));
  memory.take_over();
  PhaseTable table{std::move(memory), ranks, 0, PhaseTable::Processes::unknown};
  const TableOnDemand<std::string> names{ranks, [](int rank) { return fmt::format("replica {}", rank); }};
  const std::size_t before = heap_in_use();
  Heartbeats heartbeats{std::make_unique<NoNetwork>()};
  heartbeats.connect(NodeMap{lowest}, 0, addresses, HeartbeatKey{});
  const Watchdog watchdog{
      table, names, {.signals = KeptSignals::Keep::none}, [](Error::ExitCode, Reach) {}, &heartbeats};
  return heap_in_use() - before;
}

/// Each rank's address, by which its task is known; the number of its host, its place in the group, and its node,
/// twice; what grows of the rest with the ranks; and the phase table.
Tables tables_of(int ranks, int on_node) {
  constexpr std::size_t numbers = 4;
  const int few = std::max(ranks, 72);  // no power of two: there, a table that doubles would be full
  (void)bytes_to_watch(few, on_node);   // what is made once for the process
  const std::size_t fewer = bytes_to_watch(few, on_node), more = bytes_to_watch(2 * few, on_node);
  return {static_cast<double>(more - fewer) / few + sizeof(std::string) + numbers * sizeof(int),
          static_cast<double>(PhaseTable::bytes_for(2) - PhaseTable::bytes_for(1))};
}

/// What all ranks did from a common moment on.
struct ScaledPart {
  std::string what;
  std::vector<sim::Traffic> sent;  ///< by rank
  Time length{0};                  ///< until the last was done
};

/// A simulated job. Its ranks take turns, and so may write here.
class ScaledJob {
 public:
  ScaledJob(const ScaleOptions& options, int ranks)
      : options_{options},
        ranks_{ranks},
        on_node_{std::min(ranks, options.ranks_per_node)},
        tables_{tables_of(ranks, on_node_)},
        network_{ranks, options.ranks_per_node, links_of(options, ranks)} {}

  /// What the ranks do, one after the other.
  std::vector<ScaledPart> measure() {
    for (const std::string& what : names()) measured_.push_back({what, std::vector<sim::Traffic>(count())});
    sim::run_on(network_, simulated({}), [this](Strategy& strategy, int rank) { take_part(strategy, rank); });
    return measured_;
  }

  /// From a fault in the middle of an agreement, which takes `agreement`, to the last rank that gets to know.
  ScaledPart measure_fault(Fault::Kind kind, Time agreement) {
    const int culprit = ranks_ / 2;
    const Time moment = pause + agreement / 2;
    ScaledPart fault{kind == Fault::Kind::die ? "death" : "stop", std::vector<sim::Traffic>(count())};
    sim::Network network{ranks_, options_.ranks_per_node, network_.links()};
    int told = 0;
    const auto agree_until_told = [&](Strategy& strategy, int) {
      sim::sleep(pause - sim::now());
      try {
        while (true) agree(strategy);
      } catch (const Error& error) {
        fault.length = std::max(fault.length, sim::now() - moment);
        told += std::string_view{error.what()}.starts_with(fmt::format("replica {} (", culprit));
        throw;
      }
    };
    try {
      sim::run_on(network, simulated({{.kind = kind, .rank = culprit, .time = moment}}), agree_until_told);
    } catch (const Error&) {
    }
    if (told != ranks_ - 1)
      note(fmt::format("{} of {} ranks: {} were told of it; expected {}", fault.what, ranks_, told, ranks_ - 1));
    return fault;
  }

  /// Heartbeats of a second in which nothing happens, and from the end of a rank, or its stop, to the line about it.
  std::vector<ScaledPart> measure_watchdogs() {
    using sim::WatchedRanks;
    std::vector<ScaledPart> parts;
    for (const auto fault : {WatchedRanks::Fault::dies, WatchedRanks::Fault::stops}) {
      const int culprit = ranks_ / 2;
      WatchedRanks job{{.nodes = (ranks_ + on_node_ - 1) / on_node_,
                        .ranks_a_node = on_node_,
                        .longest_latency = network_.links().between.latency,
                        .seed = options_.seed}};
      job.run_for(WatchedRanks::Seconds{1});
      (void)job.take_traffic();  // of the start
      job.run_for(WatchedRanks::Seconds{1});
      if (parts.empty()) parts.push_back(heartbeats(job.take_traffic()));
      const double before = job.now();
      job.strike(culprit, fault);
      job.run_until_said(WatchedRanks::Seconds{60});
      const bool is_gone = fault == WatchedRanks::Fault::dies;
      const std::string told = fmt::format("replica {} {} ", culprit, is_gone ? "is gone:" : "has stopped:");
      if (job.lines().size() != 1 || !job.lines().front().text.starts_with(told))
        note(fmt::format("{} ranks: {} lines about replica {}; expected one", ranks_, job.lines().size(), culprit));
      const double said = job.lines().empty() ? 0 : job.lines().front().at - before;
      parts.push_back({is_gone ? "gone" : "silent", std::vector<sim::Traffic>(count()),
                       std::chrono::round<std::chrono::microseconds>(WatchedRanks::Seconds{said})});
    }
    return parts;
  }

  Row row_of(const ScaledPart& measured) const {
    const auto of_all = [&](auto&& number) {
      std::int64_t largest = 0, sum = 0;
      for (const sim::Traffic& each : measured.sent) {
        largest = std::max(largest, std::int64_t{number(each)});
        sum += number(each);
      }
      return std::pair{largest, static_cast<double>(sum) / ranks_};
    };
    const auto own = [](const sim::Traffic& sent) { return sent.agreements + sent.own; };
    const auto agreements = of_all([](const sim::Traffic& sent) { return sent.agreements.messages; });
    const auto messages = of_all([&](const sim::Traffic& sent) { return own(sent).messages; });
    const auto bytes = of_all([&](const sim::Traffic& sent) { return own(sent).bytes; });
    const auto of_mpi = of_all([](const sim::Traffic& sent) { return sent.collectives.messages; });
    const auto bytes_of_mpi = of_all([](const sim::Traffic& sent) { return sent.collectives.bytes; });
    constexpr std::size_t few = 5, many = 8;
    return {{"per_node", "", std::int64_t{options_.ranks_per_node}, Place::title},
            {"delay", "ms", options_.delay, Place::title},
            {"rate", "MB/s", options_.rate, Place::title},
            {"seed", "", static_cast<std::int64_t>(options_.seed), Place::title},
            {"ranks", "", std::int64_t{ranks_}, Place::column, few},
            {"nodes", "", std::int64_t{(ranks_ + on_node_ - 1) / on_node_}, Place::column, few},
            {"what", "", measured.what, Place::column, many + 1},
            {"agree", "most", agreements.first, Place::column, few},
            {"own", "most", messages.first, Place::column, few},
            {"own_avg", "mean", messages.second, Place::column, few},
            {"own_bytes", "most", bytes.first, Place::column, many},
            {"mpi", "most", of_mpi.first, Place::column, few},
            {"mpi_avg", "mean", of_mpi.second, Place::column, few},
            {"mpi_bytes", "most", bytes_of_mpi.first, Place::column, many},
            {"time", "us", microseconds_of(measured.length), Place::column, many},
            {"table", "B", tables_.own, Place::column, few},
            {"shared", "B", tables_.shared, Place::column, few}};
  }

  const std::string& wrong() const { return wrong_; }

 private:
  std::size_t count() const { return static_cast<std::size_t>(ranks_); }

  sim::Options simulated(std::vector<Fault> faults) const {
    return {.ranks = ranks_,
            .ranks_per_node = options_.ranks_per_node,
            .seed = options_.seed,
            .faults = std::move(faults),
            .report = [](std::string_view) {}};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all{"start", "agreement"};
    for (const std::int64_t bytes : options_.bytes) all.push_back("sum:" + size_text(bytes));
    all.emplace_back("step");
    return all;
  }

  /// The row has the most that a rank sends, and the mean.
  ScaledPart heartbeats(const sim::WatchedRanks::Traffic& second) const {
    const auto sent = [](double datagrams) {
      const auto messages = static_cast<std::int64_t>(datagrams + 0.5);
      return sim::Traffic{.own = {messages, messages * static_cast<std::int64_t>(sealed_heartbeat_bytes)}};
    };
    ScaledPart part{"heartbeat", std::vector<sim::Traffic>(count(), sent(second.mean))};
    part.sent.front() = sent(second.most);
    return part;
  }

  void note(std::string wrong) {
    if (wrong_.empty()) wrong_ = "scale: " + std::move(wrong);
  }

  static void agree(Strategy& strategy) {
    inside(strategy).group().meeting().agree(TagKind::agree, 0, Here::current());
  }

  void take_part(Strategy& strategy, int rank) {
    auto next = measured_.begin();
    next->sent[static_cast<std::size_t>(rank)] = start_of(network_.of(rank));

    measure(strategy, rank, *++next, [&] { agree(strategy); });
    for (const std::int64_t bytes : options_.bytes) sum(strategy, rank, *++next, bytes);
    train(strategy, rank, *++next);
  }

  /// Of a rank that has sent `simulated` to make its strategy.
  sim::Traffic start_of(sim::Traffic simulated) const {
    const std::int64_t rounds = Rounds{0, ranks_}.count(), agreements = rounds * start_exchanges.agreements;
    simulated.agreements += {agreements, agreements * static_cast<std::int64_t>(sizeof(Rounds::Words))};
    simulated.collectives += {rounds * start_exchanges.collectives, 0};
    return simulated;
  }

  /// COLL. Each rank begins at the same moment, when all have ended what was before.
  void measure(Strategy& strategy, int rank, ScaledPart& measured, const std::function<void()>& act) {
    latest_ = std::max(latest_, sim::now());
    agree(strategy);
    sim::sleep(latest_ + pause - sim::now());
    const sim::Traffic before = network_.of(rank);
    const Time begin = sim::now();
    act();
    measured.sent[static_cast<std::size_t>(rank)] = network_.of(rank) - before;
    measured.length = std::max(measured.length, sim::now() - begin);
  }

  /// Of the ranks' numbers, from 1; where contents do not travel, of memory that nobody has written to.
  void sum(Strategy& strategy, int rank, ScaledPart& measured, std::int64_t bytes) {
    const auto elements = static_cast<std::size_t>(bytes) / sizeof(float);
    const auto memory = std::make_unique_for_overwrite<float[]>(elements);
    const std::span values{memory.get(), elements};
    const bool carried = static_cast<std::size_t>(bytes) <= carried_bytes;
    if (carried) std::ranges::fill(values, static_cast<float>(rank + 1));
    const TensorView view{reinterpret_cast<std::byte*>(memory.get()), {std::ssize(values)}, DType::f32};
    measure(strategy, rank, measured, [&] {
      inside(strategy).reductions().all_reduce(ReduceOp::sum, std::span{&view, 1});
    });
    const auto expected = static_cast<float>(std::int64_t{ranks_} * (ranks_ + 1) / 2);
    if (carried && std::ranges::any_of(values, [=](float value) { return value != expected; }))
      note(fmt::format("the sum of {} ranks is wrong; expected {}", ranks_, expected));
  }

  /// The second step of a training on gradients of zeros: the first makes what later ones use again.
  void train(Strategy& strategy, int rank, ScaledPart& measured) {
    const std::int64_t elements = options_.gradient_bytes / static_cast<std::int64_t>(sizeof(float));
    const MirroredVariable weights =
        strategy.create_variable({.name = "weights"}, [&] { return Tensor::zeros(DType::f32, {elements}); });
    strategy.seal();
    Sgd sgd{{.learning_rate = 1e-3}};
    const auto gradients = Optimizer::gradients_in_store(strategy.store(), {weights});
    const auto step = [&] {
      strategy.run([&](ReplicaContext& context) { sgd.apply_gradients(context, gradients, std::int64_t{1}); });
    };
    step();
    measure(strategy, rank, measured, step);
    if (sgd.steps(strategy) != 2) note(fmt::format("{} ranks made {} steps; expected 2", ranks_, sgd.steps(strategy)));
  }

  const ScaleOptions& options_;
  int ranks_;
  int on_node_;
  Tables tables_;
  sim::Network network_;
  std::vector<ScaledPart> measured_;
  Time latest_{0};
  std::string wrong_;
};

}  // namespace

std::string bench_scale(Runtime& runtime, const ScaleOptions& options, const AddRow& add) {
  // Inside a run, so that it is said once.
  runtime.strategy().run([&](ReplicaContext&) {
    if (runtime.size() > 1)
      throw ConfigError{
          fmt::format("scale in a job of {} ranks: expected one, which simulates all others", runtime.size())};
  });
  std::string wrong;
  for (const int ranks : options.ranks) {
    ScaledJob job{options, ranks};
    const std::vector<ScaledPart> measured = job.measure();
    for (const ScaledPart& each : measured) add(job.row_of(each));
    const Time agreement = measured[1].length;
    for (const Fault::Kind kind : {Fault::Kind::die, Fault::Kind::stop})
      add(job.row_of(job.measure_fault(kind, agreement)));
    if (ranks <= options.watched && ranks % std::min(ranks, options.ranks_per_node) == 0)
      for (const ScaledPart& each : job.measure_watchdogs()) add(job.row_of(each));
    if (wrong.empty()) wrong = job.wrong();
  }
  return wrong;
}

}  // namespace lockstep::bench
