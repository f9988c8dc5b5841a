// all_reduce_async: the results of all_reduce, wherever the ranks wait for them, and what happens if one does not.
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/reduction_choice.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Tensor on_device(const Tensor& tensor) {
  return Tensor::copy_of(tensor.view(), runtime().strategy().stream());
}

/// Whether a sum depends on the order of its terms.
enum class Sums { depend_on_order, are_exact };

/// Differs from the other ranks' tensors.
template <class T>
Tensor mine(std::int64_t count, Sums sums) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i % 100 + 100), of_rank = static_cast<float>(rank() + 3);
    const float term = sums == Sums::are_exact ? value * of_rank : value / of_rank;
    if constexpr (std::is_integral_v<T>) {
      values.push_back(static_cast<T>(static_cast<int>(term)));
    } else {
      values.push_back(static_cast<T>(term));
    }
  }
  return on_device(Tensor::from(values, {count}));
}

/// Two tensors of f32 that are not adjacent, one of each other type, and a tensor without elements.
std::vector<Tensor> of_all_types(ReduceOp op, Sums sums) {
  std::vector<Tensor> all{mine<float>(3, sums),  mine<BFloat16>(5, sums), mine<float>(20'000, sums),
                          mine<double>(4, sums), mine<float>(0, sums),    mine<Half>(40'000, sums)};
  if (op == ReduceOp::sum)
    for (const Tensor& integers :
         {mine<std::int32_t>(7, sums), mine<std::int64_t>(1, sums), mine<std::uint8_t>(9, sums)})
      all.push_back(integers);
  return all;
}

std::vector<std::byte> bytes_of(const std::vector<Tensor>& tensors) {
  std::vector<std::byte> bytes;
  for (const Tensor& tensor : tensors) {
    const Tensor here = Tensor::on_host(tensor.view());
    bytes.insert(bytes.end(), here.view().data(), here.view().data() + here.view().bytes());
  }
  return bytes;
}

IndexedSlices slices() {
  const auto row = static_cast<std::int64_t>(rank());
  return {.values = on_device(Tensor::from({static_cast<float>(row + 1), 5.f}, {1, 2})),
          .indices = on_device(Tensor::from<std::int64_t>({row}, {1})),
          .dense_shape = {10, 2}};
}

/// The line of its last call, in messages: "async_reductions.cpp:70".
std::string site(int line) {
  return "async_reductions.cpp:" + std::to_string(line);
}

}  // namespace

TEST_CASE("all_reduce_async gives what all_reduce gives, to the last bit", "[K-7]") {
  for (const ReductionOptions::Kind kind :
       {ReductionOptions::Kind::automatic, ReductionOptions::Kind::fixed_order, ReductionOptions::Kind::backend_order,
        ReductionOptions::Kind::hierarchical, ReductionOptions::Kind::to_one_rank}) {
    for (const Packing& packing : {ReductionOptions::into_packs(1), ReductionOptions::into_packs(3)}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
        CAPTURE(describe({.kind = kind, .packing = packing}), name_of(op));
        Strategy strategy = runtime().make_strategy({.kind = kind, .packing = packing});
        strategy.run([&](ReplicaContext& context) {
          // A backend may sum the same numbers in another order the next time.
          const Sums sums = kind == ReductionOptions::Kind::backend_order ? Sums::are_exact : Sums::depend_on_order;
          const std::vector<Tensor> operands = of_all_types(op, sums);
          auto pending = context.all_reduce_async(op, operands);
          const auto expected = context.all_reduce(op, operands);
          const bool same = bytes_of(pending.wait()) == bytes_of(expected);
          CHECK(same);
        });
      }
    }
  }
}

TEST_CASE("all_reduce_async copies its operands, keeps their structure and gathers slices", "[K-7]") {
  runtime().strategy().run([&](ReplicaContext& context) {
    const Tensor counted = on_device(Tensor::from({static_cast<float>(rank() + 1), 2.f}, {2}));
    auto pending = context.all_reduce_async(ReduceOp::sum, std::pair{counted, std::vector<double>{1.0 * rank(), 3}});
    counted.view().fill_zero(runtime().strategy().stream());
    const auto [tensor, numbers] = pending.wait();
    CHECK(tensor.to_vector<float>() == std::vector<float>{static_cast<float>(triangle()), 2.f * ranks()});
    CHECK(numbers == std::vector<double>{1.0 * (triangle() - ranks()), 3.0 * ranks()});

    const IndexedSlices all = context.all_reduce_async(ReduceOp::sum, slices()).wait();
    CHECK(all.indices.count() == ranks());
    CHECK(all.values.to_vector<float>().at(2 * static_cast<std::size_t>(last())) == static_cast<float>(ranks()));
  });
}

TEST_CASE("ranks wait for one reduction in whatever order and place, even beyond other agreements", "[K-7]") {
  for (int early = 0; early < ranks(); ++early) {
    runtime().strategy().run([&](ReplicaContext& context) {
      const auto check = [](auto& pending, int times) { CHECK(pending.wait() == times * triangle()); };
      auto first = context.all_reduce_async(ReduceOp::sum, rank() + 1);
      auto second = context.all_reduce_async(ReduceOp::sum, 2 * (rank() + 1));
      if (rank() == early) {
        check(second, 2);
        check(first, 1);
      }
      context.merge_call(
          [](Strategy& strategy) { CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{rank() + 1}) == triangle()); });
      auto third = context.all_reduce_async(ReduceOp::sum, 3 * (rank() + 1));
      if (rank() != early) {
        check(first, 1);
        check(third, 3);
        check(second, 2);
      } else {
        auto moved = std::move(third);
        check(moved, 3);
      }
    });
  }
}

TEST_CASE("all_reduce_async costs one agreement, and its wait none", "[K-7]") {
  MeetingPoint& meeting = inside(runtime().strategy()).group().meeting();
  const auto before = meeting.meetings();
  runtime().strategy().run([&](ReplicaContext& context) {
    auto pending = context.all_reduce_async(ReduceOp::sum, std::vector<float>{1, 2});
    CHECK(meeting.meetings() == before + 1);
    (void)pending.wait();
    CHECK(meeting.meetings() == before + 1);
  });
  CHECK(meeting.meetings() == before + 2);
}

TEST_CASE("what differs between ranks is found at the call, not at the wait", "[K-7]") {
  if (ranks() == 1) return;
  const auto start = [](auto make) {
    return mismatch_of([&] {
      runtime().strategy().run([&](ReplicaContext& context) {
        auto pending = make(context);
        throw std::logic_error{"the call returned"};
      });
    });
  };
  CHECK_THAT(start([](ReplicaContext& context) {
               return context.all_reduce_async(ReduceOp::sum, Tensor::zeros(DType::f32, {odd_one() ? 3 : 4}));
             }),
             Catch::Contains("at all_reduce_async #1 (") && Catch::Contains("with sum of f32[3]") &&
                 Catch::Contains("f32[4]"));
  CHECK_THAT(start([](ReplicaContext& context) {
               return context.all_reduce_async(odd_one() ? ReduceOp::mean : ReduceOp::sum, 1.0);
             }),
             Catch::Contains("with mean of f64[]"));
  expect_in_step();
}

TEST_CASE("a rank that fails with an open reduction contributes to it first, and is then named", "[K-7]") {
  for (int culprit = 0; culprit < ranks(); ++culprit) {
    int sum = 0;
    const auto step = [&] {
      runtime().strategy().run([&](ReplicaContext& context) {
        auto pending = context.all_reduce_async(ReduceOp::sum, rank() + 1);
        if (rank() == culprit) throw std::out_of_range{"the cat ate sample 7"};
        sum = pending.wait();
        context.merge_call([](Strategy&) {});
      });
    };
    if (rank() == culprit) {
      CHECK_THROWS_AS(step(), std::out_of_range);
    } else {
      CHECK_THAT(message_of<PeerError>(step), Catch::StartsWith("replica " + std::to_string(culprit) + " (") &&
                                                  Catch::EndsWith("failed: the cat ate sample 7"));
      CHECK(sum == triangle());
    }
    expect_in_step();
  }
}

TEST_CASE("a result that nobody waited for is an error at the end of the run, which names the call", "[K-7]") {
  const std::string refused = ": nothing waited for the result: call wait() on it before the end of the run";
  for (const bool all_forget : {true, false}) {
    int line = 0;
    const auto step = [&] {
      runtime().strategy().run([&](ReplicaContext& context) {
        auto waited = context.all_reduce_async(ReduceOp::sum, 1);
        CHECK(waited.wait() == ranks());
        line = __LINE__ + 1;
        auto forgotten = context.all_reduce_async(ReduceOp::sum, 1);
        if (!all_forget && !odd_one()) CHECK(forgotten.wait() == ranks());
      });
    };
    const bool forgets = all_forget || odd_one();
    const std::string message = forgets ? message_of<ContextError>(step) : message_of<PeerError>(step);
    const std::string told = "all_reduce_async (" + site(line) + ")" + refused;
    if (forgets) {
      CHECK(message == told);
    } else {
      CHECK_THAT(message, Catch::StartsWith("replica " + std::to_string(last()) + " (") && Catch::EndsWith(told));
    }
    expect_in_step();
  }
}

TEST_CASE("what one rank alone does wrong with a pending reduction stays on that rank", "[K-7]") {
  Strategy& strategy = runtime().strategy();
  MeetingPoint& meeting = inside(strategy).group().meeting();
  std::vector<ReplicaContext::PendingReduction<int>> kept;
  const auto wait = [](ReplicaContext::PendingReduction<int>& pending) {
    return message_of<ContextError>([&] { (void)pending.wait(); });
  };
  strategy.run([&](ReplicaContext& context) {
    const auto before = meeting.meetings();
    CHECK_THROWS_AS(context.all_reduce_async(ReduceOp::mean, 1), InvalidArgument);
    CHECK(meeting.meetings() == before);

    auto pending = context.all_reduce_async(ReduceOp::sum, 1);
    context.merge_call([&](Strategy&) { CHECK_THAT(wait(pending), Catch::Contains("Need to be inside")); });
    CHECK(pending.wait() == ranks());
    CHECK_THAT(wait(pending), Catch::EndsWith("): its result has been taken, or it has been moved from"));
  });
  CHECK_THROWS_AS(
      strategy.run([&](ReplicaContext& context) { kept.push_back(context.all_reduce_async(ReduceOp::sum, 1)); }),
      ContextError);
  // A later run's context may lie where that of the first lay.
  strategy.run(
      [&](ReplicaContext&) { CHECK_THAT(wait(kept.front()), Catch::EndsWith("): the run that started it is over")); });
  CHECK_THAT(wait(kept.front()), Catch::EndsWith("): the run that started it is over"));
  expect_in_step();
}
