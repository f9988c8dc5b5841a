// Simulated ranks on a network: how many messages they send, how long these take, and who is told of a death.
#include <bit>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/group/group.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "core/control/meeting_point.hpp"
#include "job/sim/network.hpp"
#include "job/sim/virtual_time.hpp"
#include "support/sim_outcome.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/paths.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace std::chrono_literals;
using lockstep::test::replica_name;

namespace {

using Act = std::function<void(Strategy&, int rank)>;

void agree(Strategy& strategy) {
  inside(strategy).group().meeting().agree(TagKind::agree, 0, Here::current());
}

struct Measured {
  std::vector<sim::Traffic> sent;  ///< by rank
  sim::Time length{0};             ///< until the last rank was done
};

/// What `act` does on all ranks from a common moment on, after `prepare`.
Measured measure(int ranks, int ranks_per_node, const Act& act, const Act& prepare = {}, std::uint64_t seed = 0) {
  sim::Network network{ranks, ranks_per_node, {}};
  Measured measured{std::vector<sim::Traffic>(static_cast<std::size_t>(ranks))};
  const auto body = [&](Strategy& strategy, int rank) {
    if (prepare) prepare(strategy, rank);
    sim::sleep(1s - sim::now());
    const sim::Traffic before = network.of(rank);
    act(strategy, rank);
    measured.sent[static_cast<std::size_t>(rank)] = network.of(rank) - before;
    measured.length = std::max(measured.length, sim::now() - 1s);
  };
  sim::run_on(network, {.ranks = ranks, .ranks_per_node = ranks_per_node, .seed = seed}, body);
  return measured;
}

int rounds_among(int ranks) {
  return std::bit_width(static_cast<unsigned>(ranks - 1));
}

Act sum_of(std::int64_t bytes, int ranks, int& right) {
  return [=, &right](Strategy& strategy, int rank) {
    const Tensor values =
        Tensor::from(std::vector<float>(static_cast<std::size_t>(bytes / 4), static_cast<float>(rank)), {bytes / 4});
    const TensorView view = values.view();
    inside(strategy).reductions().all_reduce(ReduceOp::sum, {&view, 1});
    right += values.to_vector<float>() ==
             std::vector<float>(static_cast<std::size_t>(bytes / 4), static_cast<float>(ranks * (ranks - 1) / 2));
  };
}

}  // namespace

TEST_CASE("an agreement takes ceil(log2(n)) messages of 16 bytes of each rank, one after the other") {
  const int ranks = GENERATE(1, 2, 3, 8, 64);
  CAPTURE(ranks);
  const Measured measured = measure(ranks, 1, [](Strategy& strategy, int) { agree(strategy); });
  const int rounds = rounds_among(ranks);
  for (const sim::Traffic& sent : measured.sent) {
    CHECK(sent.agreements.messages == rounds);
    CHECK(sent.agreements.bytes == 16 * rounds);
    CHECK(sent.own.messages + sent.collectives.messages == 0);
  }
  const sim::Links links;
  const sim::Time wire{12};  // for 16 bytes, at 1.25 GB/s
  CHECK(measured.length == rounds * (links.overhead + wire + links.between.latency));
}

TEST_CASE("a rank sends one message after the other, and the ranks of a node share its wire") {
  sim::Network network{6, 2, {}};
  sim::Sent sent;
  constexpr std::int64_t bytes = 12500;  // 10 us between nodes, 1.25 us within one
  CHECK(network.send(0, 1, bytes, 0us, sent) == 200ns + 1250ns + 500ns);
  CHECK(network.send(0, 2, bytes, 0us, sent) == 2 * 200ns + 1250ns + 10us + 5us);
  const sim::Time second = 2 * 200ns + 1250ns + 2 * 10us + 5us;
  CHECK(network.send(1, 4, bytes, 0us, sent) == second);  // the wire that both leave by
  CHECK(network.send(5, 3, bytes, 0us, sent) == second);  // the wire that both come by
  CHECK(sent.messages == 4);
  CHECK(sent.bytes == 4 * bytes);
}

TEST_CASE("a short sum takes the messages of MPI's collectives, and a long one those of the path of two levels") {
  constexpr int ranks = 64, on_node = 8;
  int right = 0;
  const Measured shorter = measure(ranks, on_node, sum_of(8, ranks, right));
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    const sim::Traffic& sent = shorter.sent[static_cast<std::size_t>(rank)];
    // To the first rank of the node, among the first ranks of the 8 nodes, and back: the tree sends to 4, 2 and 1.
    const std::vector<int> back{3, 0, 1, 0, 2, 0, 1, 0};
    const int to_first = rank % on_node == 0 ? 3 : 1;
    CHECK(sent.collectives.messages == to_first + back[static_cast<std::size_t>(rank % on_node)]);
    CHECK(sent.agreements.messages + sent.own.messages == 0);
  }

  constexpr std::int64_t bytes = 1 << 20, slice = bytes / on_node;
  const detail::Cost between = detail::cost_of(detail::Path::two_levels, {ranks, ranks / on_node, on_node}, bytes);
  const Measured longer = measure(ranks, on_node, sum_of(bytes, ranks, right));
  for (const sim::Traffic& sent : longer.sent) {
    CHECK(sent.own.messages == 2 * (on_node - 1) * slice / (32 << 10) + between.messages);
    CHECK(sent.own.bytes == 2 * (on_node - 1) * slice + between.bytes);
    CHECK(sent.agreements.messages + sent.collectives.messages == 0);
  }
  CHECK(right == 2 * ranks);
}

TEST_CASE("a training step makes two agreements") {
  const int ranks = GENERATE(2, 64);
  const std::uint64_t seed = GENERATE(0, 1);
  CAPTURE(ranks, seed);
  std::vector<std::optional<MirroredVariable>> weights(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<Sgd>> optimizers(weights.size());
  const Act step = [&](Strategy& strategy, int rank) {
    const auto index = static_cast<std::size_t>(rank);
    strategy.run([&](ReplicaContext& context) {
      optimizers[index]->apply_gradients(context, {{Tensor::scalar(1.f), *weights[index]}}, std::int64_t{1});
    });
  };
  const Act prepare = [&](Strategy& strategy, int rank) {
    const auto index = static_cast<std::size_t>(rank);
    optimizers[index] = std::make_unique<Sgd>(Sgd::Options{.learning_rate = 1});
    weights[index] = strategy.create_variable({.name = "weight"}, [] { return Tensor::scalar(1.f); });
    strategy.seal();
    step(strategy, rank);
  };
  const Measured measured = measure(ranks, 8, step, prepare, seed);
  for (const sim::Traffic& sent : measured.sent) CHECK(sent.agreements.messages == 2 * rounds_among(ranks));
}

TEST_CASE("ranks on a network find one that disagrees, and carry out requests meanwhile") {
  constexpr int ranks = 9, culprit = 5;
  sim::Network network{ranks, 4, {}};
  int right = 0, found = 0;
  const auto body = [&](Strategy& strategy, int rank) {
    std::vector<float> values{static_cast<float>(rank)};
    Group group = strategy.ranks();
    Group::Request sum = group.submit_all_reduce(std::span{values});
    agree(strategy);
    sum.wait();
    right += values.front() == ranks * (ranks - 1) / 2;
    try {
      inside(strategy).group().meeting().agree(TagKind::agree, 0, Here::current(), rank == culprit ? "this" : "that");
    } catch (const MismatchError& error) {
      found += std::string{error.what()}.starts_with(replica_name(culprit));
      throw;
    }
  };
  CHECK_THROWS_AS(sim::run_on(network, {.ranks = ranks, .ranks_per_node = 4, .seed = 3}, body), MismatchError);
  CHECK(right == ranks);
  CHECK(found == ranks);
}

TEST_CASE("a death in the middle of an agreement of 256 ranks is told to all others") {
  constexpr int ranks = 256, culprit = 77;
  const std::uint64_t seed = GENERATE(1, 2);
  const sim::Time length = measure(ranks, 8, [](Strategy& strategy, int) { agree(strategy); }).length;
  const sim::Time moment = 1s + length / 2;
  const sim::Links links;
  sim::Network network{ranks, 8, links};
  int told = 0, agreed = 0;
  const auto body = [&](Strategy& strategy, int) {
    sim::sleep(1s - sim::now());
    try {
      agree(strategy);
      ++agreed;
      agree(strategy);
    } catch (const PeerError& error) {
      told += error.rank() == culprit && sim::now() == moment + links.notice &&
              std::string{error.what()}.starts_with(replica_name(culprit) + " is gone: its process ended; it was ");
      throw;
    }
  };
  const sim::Options options{.ranks = ranks,
                             .ranks_per_node = 8,
                             .seed = seed,
                             .faults = {{.kind = sim::Options::Fault::Kind::die, .rank = culprit, .time = moment}}};
  CHECK_THROWS_AS(sim::run_on(network, options, body), PeerError);
  CHECK(told == ranks - 1);
  // It had told some of them, and not all.
  CHECK(agreed > 0);
  CHECK(agreed < ranks - 1);
}
