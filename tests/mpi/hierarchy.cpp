// Hierarchical reductions over MPI's own groups of ranks, on nodes that are made up: four ranks of one host.
#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "../unit/reduce_support.hpp"
#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/messenger.hpp"
#include "support/ranks.hpp"
#include "support/reductions_of.hpp"
#include "support/shard_sums.hpp"
#include "sync/reduce/paths.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/slice_map.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("some ranks make a communicator, in the order that they give, and others make theirs meanwhile") {
  REQUIRE(runtime().size() == 4);
  const auto all = make_mpi_communicator();
  const std::vector<int> half{rank() % 2 + 2, rank() % 2};
  const auto made = all->subset(half, 16), again = all->subset(half, 18);
  for (const auto& each : {made.get(), again.get()}) {
    REQUIRE(each->size() == 2);
    CHECK(each->rank() == 1 - rank() / 2);
    CHECK(each->backend() == "mpi");
    const Tensor sum = Tensor::scalar<std::int32_t>(rank());
    each->all_reduce(sum.view()).wait();
    CHECK(sum.to_vector<std::int32_t>()[0] == (rank() % 2 == 0 ? 0 + 2 : 1 + 3));
  }
}

TEST_CASE("slices of any length, also of none, go to every rank and come from it") {
  const auto all = make_mpi_communicator();
  // Shorter and longer than what goes as one message, and no multiple of that.
  for (const std::int64_t longest : {100, 20'000, 150'001}) {
    const std::vector<std::int64_t> bounds{0, longest, longest, longest + 7, 2 * longest};
    const auto begin = [&](int of) { return bounds[static_cast<std::size_t>(of)]; };
    const auto value = [](int from, std::int64_t index) { return static_cast<float>(1'000'000 * from + index); };
    const Tensor mine = Tensor::zeros(DType::f32, {bounds.back()});
    for (std::int64_t i = 0; i < bounds.back(); ++i)
      mine.view().elements<float>()[static_cast<std::size_t>(i)] = value(rank(), i);

    const std::int64_t length = begin(rank() + 1) - begin(rank());
    const Tensor received = Tensor::zeros(DType::f32, {4 * length + 1});
    all->all_to_all(mine.view(), bounds, received.view().slice(0, 4 * length)).wait();
    std::vector<float> expected;
    for (int from = 0; from < 4; ++from)
      for (std::int64_t i = 0; i < length; ++i) expected.push_back(value(from, begin(rank()) + i));
    expected.push_back(0);  // nothing is written behind the end
    CHECK(received.to_vector<float>() == expected);

    all->all_gather(mine.view(), bounds).wait();
    std::vector<float> whole;
    for (int from = 0; from < 4; ++from)
      for (std::int64_t i = begin(from); i < begin(from + 1); ++i) whole.push_back(value(from, i));
    CHECK(mine.to_vector<float>() == whole);
  }
}

namespace {

/// Messages of gradients, of which the nodes' ranks share the memory, or some of it, or none.
struct Gradients {
  enum class Home { shared, own, mixed };

  std::vector<Tensor> parts;  ///< this rank's
  SharedAllocation home;
  Tensor elsewhere;
  std::vector<TensorView> messages;

  Gradients(Reductions& ops, std::vector<Tensor> of_this_rank, Home where) : parts{std::move(of_this_rank)} {
    constexpr std::size_t aligned = 16;
    std::size_t bytes = 0;
    for (const Tensor& part : parts) bytes += (part.view().bytes() + aligned - 1) / aligned * aligned;
    home = ops.allocate_shared(bytes);
    elsewhere = Tensor::zeros(DType::u8, {static_cast<std::int64_t>(bytes)});
    bytes = 0;
    for (const Tensor& part : parts) {
      // In a node, one rank's tensor is not where those of the others are.
      const bool outside =
          where == Home::own || !home.memory.data() || (where == Home::mixed && rank() == 1 && messages.size() == 1);
      std::byte* const begin = outside ? elsewhere.view().data() : home.memory.data();
      messages.push_back({begin + bytes, part.shape(), part.dtype()});
      bytes += (part.view().bytes() + aligned - 1) / aligned * aligned;
    }
  }

  Work start(Reductions& ops, std::size_t message) const {
    copy(parts[message].view(), messages[message]);
    return ops.start(messages[message]);
  }
};

template <class T>
Tensor part_of_this_rank(const std::vector<std::vector<T>>& parts) {
  return tensor_of(parts[static_cast<std::size_t>(rank())]);
}

}  // namespace

TEST_CASE("nodes that hold several subtrees of the shards end in the bits of the one tree") {
  const auto all = make_mpi_communicator();
  const auto ops = reductions_of(*all, {}, {0, 0, 1, 1});
  REQUIRE(Shares::even(12, 4).over(std::vector{2, 2}).has_several());
  for (const std::int64_t count : {6, 70'001})
    for (const auto& [what, is_right] : ShardSums<float>{*ops, rank(), 4, 12, count}.results_of_subtrees()) {
      CAPTURE(count, what);
      CHECK(is_right);
    }
}

TEST_CASE("sums between nodes that travel early have the bits of the one tree, wherever the gradients are") {
  const auto all = make_mpi_communicator();
  const std::vector<std::int64_t> counts{70'001, 1'300'000, 9001};
  std::vector<std::vector<std::vector<float>>> parts;
  for (const std::int64_t count : counts) parts.push_back(make_parts<float>(4, count));
  for (const std::vector<int>& nodes : {std::vector{0, 0, 1, 1}, {0, 1, 2, 3}, {0, 0, 0, 1}})
    for (const Gradients::Home where : {Gradients::Home::shared, Gradients::Home::own, Gradients::Home::mixed}) {
      CAPTURE(nodes, static_cast<int>(where));
      const auto ops = over_nodes(*all, nodes);
      std::vector<Tensor> own;
      for (const auto& each : parts) own.push_back(part_of_this_rank(each));
      const Gradients gradients{*ops, std::move(own), where};
      std::vector<float> first_time;
      for (int round = 0; round < 2; ++round) {
        std::vector<Work> started;
        Work::Traffic early, of_all;
        for (std::size_t i = 0; i < counts.size(); ++i) {
          started.push_back(gradients.start(*ops, i));
          // Other ranks look at other times.
          for (int look = 0; look < 20 * rank() * round; ++look) (void)started.front().advance();
        }
        for (const Work& each : started) of_all += each.traffic();
        // Memory that all ranks of a node reach is summed without a wait. Not all ranks of uneven nodes send.
        while (where == Gradients::Home::shared && !started.front().advance()) std::this_thread::yield();
        for (const Work& each : started) early += each.traffic();
        if (where == Gradients::Home::shared) CHECK((early.begun > 0) == (of_all.all > 0));
        CHECK(early.begun <= of_all.all);
        for (Work& each : started) each.wait();
        for (std::size_t i = 0; i < counts.size(); ++i) {
          const auto sum = gradients.messages[i].to_vector<float>();
          if (detail::hierarchy_keeps_bits(nodes)) CHECK(same_bits(sum, tree(parts[i])));
          if (i == 1 && round == 0) first_time = sum;
          if (i == 1) CHECK(same_bits(sum, first_time));
        }
      }
    }
}

TEST_CASE("sums in halves between nodes have the bits of the one tree, also of 16-bit floats") {
  const auto all = make_mpi_communicator();
  const auto f32s = make_parts<float>(4, 200'001);
  const auto bf16s = make_parts<BFloat16>(4, 60'001);
  const auto f32_sum = tree(f32s);
  const auto bf16_sum = tree(bf16s);
  for (const std::vector<int>& nodes : {std::vector{0, 0, 1, 1}, {0, 1, 2, 3}})
    for (const auto kind : {ReductionOptions::Kind::hierarchical, ReductionOptions::Kind::fixed_order}) {
      CAPTURE(nodes, static_cast<int>(kind));
      const auto ops = reductions_of(*all, {.kind = kind}, nodes);
      const auto check = [&]<class T>(const std::vector<std::vector<T>>& parts, const std::vector<T>& sum) {
        const Tensor own = part_of_this_rank(parts);
        const Tensor all_values = Tensor::zeros(own.dtype(), own.shape());
        const TensorView gradients = own.view(), values = all_values.view();
        const auto slices = std::make_shared<const detail::SliceMap>(
            detail::SliceMap{{}, std::vector{own.count()}, sizeof(T), ops->slice_owners()});
        ops->start_scatter({gradients, slices}).wait();
        for (const auto& [first, count] : slices->of(rank()))
          copy(gradients.slice(first, count), values.slice(first, count));
        const Sliced message{values, slices};
        ops->gather_slices({&message, 1});
        CHECK(same_bits(values.to_vector<T>(), sum));
      };
      check(f32s, f32_sum);
      check(bf16s, bf16_sum);
    }
}

TEST_CASE("a parcel that is shorter than its receiver expects is told of") {
  const auto all = make_mpi_communicator();
  const std::vector<std::byte> sent(5);
  std::vector<std::byte> received(8);
  for (const bool looks : {false, true}) {
    std::vector<Parcel> parcels(4);
    parcels[static_cast<std::size_t>((rank() + 1) % 4)].sent = sent;
    parcels[static_cast<std::size_t>((rank() + 3) % 4)].received = received;
    Work exchange = all->messenger()->start(parcels, Messenger::Lane::first);
    const auto end = [&] {
      while (looks && !exchange.advance()) std::this_thread::yield();
      exchange.wait();
    };
    CHECK_THROWS_WITH(end(), Catch::Contains("sent 5 bytes") && Catch::Contains("expected 8"));
  }
}

TEST_CASE("sums that are made at the wait keep apart from those that travel early around them") {
  const auto all = make_mpi_communicator();
  const auto f32s = make_parts<float>(4, 150'001), short_f32s = make_parts<float>(4, 4096);
  const auto bf16s = make_parts<BFloat16>(4, 60'001);
  const auto f32_sum = tree(f32s), short_sum = tree(short_f32s);
  const auto bf16_sum = tree(bf16s);
  const ReductionOptions one_kind{.kind = ReductionOptions::Kind::hierarchical};
  ReductionOptions by_size = one_kind;
  by_size.smaller = {{.up_to_bytes = 256 << 10, .kind = ReductionOptions::Kind::hierarchical}};
  for (const std::vector<int>& nodes : {std::vector{0, 0, 1, 1}, {0, 1, 2, 3}})
    for (const ReductionOptions& options : {one_kind, by_size})
      for (const Gradients::Home where : {Gradients::Home::shared, Gradients::Home::own, Gradients::Home::mixed}) {
        CAPTURE(nodes, options.smaller.size(), static_cast<int>(where));
        const auto ops = reductions_of(*all, options, nodes);
        const Tensor bf16 = part_of_this_rank(bf16s), f32 = part_of_this_rank(f32s);
        const Gradients gradients{*ops, {bf16, f32, part_of_this_rank(short_f32s), f32, bf16, f32}, where};
        for (int round = 0; round < 4; ++round) {
          std::vector<Work> started;
          for (std::size_t i = 0; i < gradients.messages.size(); ++i) {
            started.push_back(gradients.start(*ops, i));
            // Other ranks look at other times.
            for (int look = 0; look < 20 * ((rank() + round) % 4); ++look)
              for (Work& each : started) (void)each.advance();
          }
          for (Work& each : started) each.wait();
          for (const TensorView& sum : gradients.messages) {
            if (sum.dtype() == DType::bf16) CHECK(same_bits(sum.to_vector<BFloat16>(), bf16_sum));
            if (sum.dtype() == DType::f32)
              CHECK(same_bits(sum.to_vector<float>(), sum.count() == 4096 ? short_sum : f32_sum));
          }
        }
      }
}

TEST_CASE(
    "a hierarchical sum over MPI has the bits of the one tree where nodes are equal, and is right where they are not",
    "[E-13]") {
  const auto all = make_mpi_communicator();
  int next_root = 0;
  for (const std::int64_t count : {10, 1'200'000}) {
    const auto parts = make_parts<float>(4, count);
    const auto& mine = parts[static_cast<std::size_t>(rank())];
    const auto expected = tree(parts);
    const auto halves = make_parts<BFloat16>(4, std::min<std::int64_t>(count, 30'001));
    const auto expected_half = tree(halves, 4);
    const auto small = make_parts<std::int64_t>(4, count);
    const auto exactly = tree(small);
    for (const std::vector<int>& nodes :
         {std::vector{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 1, 1}, {0, 1, 0, 1}, {0, 1, 2, 3}}) {
      CAPTURE(nodes, count);
      const auto ops = over_nodes(*all, nodes);
      const bool same_tree = detail::hierarchy_keeps_bits(nodes);
      const Tensor sum = tensor_of(mine);
      ops->all_reduce(ReduceOp::sum, std::vector{sum.view()});
      if (same_tree) CHECK(same_bits(sum.to_vector<float>(), expected));

      // Where nodes have several ranks, their tensors may lie in memory that they share.
      const SharedAllocation home = ops->allocate_shared(mine.size() * sizeof(float));
      const Tensor elsewhere = Tensor::zeros(DType::f32, {count});
      const TensorView shared{home.memory.data() ? home.memory.data() : elsewhere.view().data(), {count}, DType::f32};
      std::ranges::copy(mine, shared.elements<float>().begin());
      ops->all_reduce(ReduceOp::sum, std::vector{shared});
      if (same_tree) CHECK(same_bits(shared.to_vector<float>(), expected));

      const Tensor rounded = tensor_of(halves[static_cast<std::size_t>(rank())]);
      ops->all_reduce(ReduceOp::mean, std::vector{rounded.view()});
      if (same_tree) CHECK(same_bits(rounded.to_vector<BFloat16>(), expected_half));

      const Tensor exact = tensor_of(small[static_cast<std::size_t>(rank())]);
      ops->all_reduce(ReduceOp::sum, std::vector{exact.view()});
      CHECK(same_bits(exact.to_vector<std::int64_t>(), exactly));

      // Every root of short tensors, and of long ones another one for each layout.
      const std::vector<int> roots = count < 100 ? std::vector{0, 1, 2, 3} : std::vector{next_root++ % 4};
      for (const int root : roots) {
        const Tensor to_root = tensor_of(small[static_cast<std::size_t>(rank())]), copied = tensor_of(mine);
        ops->reduce_to_one(ReduceOp::sum, std::vector{to_root.view()}, root);
        if (rank() == root) CHECK(same_bits(to_root.to_vector<std::int64_t>(), exactly));
        ops->broadcast(std::vector{copied.view()}, root);
        CHECK(same_bits(copied.to_vector<float>(), parts[static_cast<std::size_t>(root)]));
      }
    }
  }
}
