// Reductions among ranks that are threads: every rank's values differ, and the results are compared to the bit.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/slices.hpp"
#include "core/device/device.hpp"
#include "core/device/devices.hpp"
#include "core/tensor/inside.hpp"
#include "reduce_support.hpp"
#include "support/done_communicator.hpp"
#include "support/forwarding_stream.hpp"
#include "support/reductions_of.hpp"
#include "support/thread_communicator.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/slice_map.hpp"

using namespace lockstep;
using lockstep::test::Call;
using lockstep::test::make_parts;
using lockstep::test::on_threads;
using lockstep::test::same_bits;
using lockstep::test::tensor_of;
using lockstep::test::ThreadCommunicator;
using lockstep::test::tree;

namespace {

/// The tensors of one rank, before and after.
using Tensors = std::vector<Tensor>;

std::vector<TensorView> views(const Tensors& tensors) {
  std::vector<TensorView> all;
  for (const Tensor& tensor : tensors) all.push_back(tensor.view());
  return all;
}

/// Runs `operation` on `ranks` ranks with `make(rank)` as their tensors, and returns what each rank has afterwards.
std::vector<Tensors> after(int ranks, const std::function<Tensors(int)>& make,
                           const std::function<void(Reductions&, std::span<const TensorView>)>& operation,
                           std::vector<Call>* calls = nullptr) {
  std::vector<Tensors> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(make(rank));
  on_threads(
      ranks,
      [&](ThreadCommunicator& communicator) {
        const auto ops = lockstep::test::in_fixed_order(communicator);
        const auto mine = views(all[static_cast<std::size_t>(communicator.rank())]);
        operation(*ops, mine);
      },
      calls);
  return all;
}

std::vector<Tensors> after_all_reduce(int ranks, const std::function<Tensors(int)>& make, ReduceOp op = ReduceOp::sum,
                                      std::vector<Call>* calls = nullptr) {
  return after(
      ranks, make, [op](Reductions& ops, std::span<const TensorView> tensors) { ops.all_reduce(op, tensors); }, calls);
}

template <class T>
bool all_equal(const std::vector<Tensors>& ranks, std::size_t tensor, const std::vector<T>& expected) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](const Tensors& tensors) { return same_bits(tensors[tensor].view().elements<T>(), expected); });
}

/// Views of `lengths` elements that lie next to each other in one tensor.
Tensors neighbours(const std::vector<float>& values, const std::vector<std::int64_t>& lengths) {
  const auto buffer = std::make_shared<Buffer>(allocate_host(values.size() * sizeof(float)));
  std::copy(values.begin(), values.end(), reinterpret_cast<float*>(buffer->data()));
  Tensors tensors;
  std::byte* data = buffer->data();
  for (const std::int64_t length : lengths) {
    tensors.push_back(tensor_in(buffer, TensorView{data, {length}, DType::f32}));
    data += tensors.back().view().bytes();
  }
  return tensors;
}

constexpr std::int64_t bucket = (4 << 20) / sizeof(float);

}  // namespace

TEST_CASE("an all-reduce is the fixed tree over the ranks, to the bit, on every rank") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const std::int64_t count : {0, 1, 63, 64, 65, 1000, 3277, 16'384, 20'000}) {
      CAPTURE(ranks, count);
      const auto values = make_parts<float>(ranks, count);
      const auto make = [&](int rank) { return Tensors{tensor_of(values[static_cast<std::size_t>(rank)])}; };
      CHECK(all_equal(after_all_reduce(ranks, make), 0, tree(values)));
    }
  }
}

TEST_CASE("tensors larger than a bucket reduce to the same bits") {
  for (const int ranks : {2, 3}) {
    for (const std::int64_t count : {bucket - 1, bucket, bucket + 1, 2 * bucket + 77}) {
      CAPTURE(ranks, count);
      const auto values = make_parts<float>(ranks, count);
      const auto make = [&](int rank) { return Tensors{tensor_of(values[static_cast<std::size_t>(rank)])}; };
      std::vector<Call> calls;
      CHECK(all_equal(after_all_reduce(ranks, make, ReduceOp::sum, &calls), 0, tree(values)));
      const auto buckets = static_cast<std::size_t>((count + bucket - 1) / bucket);
      CHECK(calls.size() == 2 * buckets);  // one exchange and one gathering each
    }
  }
}

TEST_CASE("tensors next to each other travel as one message, as they lie; scattered ones by way of a copy", "[E-11]") {
  const auto values = make_parts<float>(3, 30'000);
  const std::vector<std::int64_t> lengths{10'000, 0, 15'000, 5'000};
  const auto lying = [&](int rank) { return neighbours(values[static_cast<std::size_t>(rank)], lengths); };
  const auto scattered = [&](int rank) {
    Tensors tensors;
    for (const Tensor& tensor : lying(rank)) tensors.push_back(Tensor::copy_of(tensor.view()));
    return tensors;
  };
  const std::vector<float> expected = tree(values);
  for (const bool adjacent : {true, false}) {
    std::vector<Call> calls;
    const auto results = adjacent ? after_all_reduce(3, lying, ReduceOp::sum, &calls)
                                  : after_all_reduce(3, scattered, ReduceOp::sum, &calls);
    REQUIRE(calls.size() == 2);
    CHECK(calls[0].what == "all_to_all 120000");
    CHECK(calls[1].what == "all_gather 120000");
    CHECK((calls[0].data == results[0][0].view().data()) == adjacent);
    auto from = expected.begin();
    for (std::size_t tensor = 0; tensor < lengths.size(); ++tensor) {
      CHECK(all_equal(results, tensor, std::vector<float>{from, from + lengths[tensor]}));
      from += lengths[tensor];
    }
  }
}

TEST_CASE("a few small tensors of any types travel whole, as one message") {
  const auto values = make_parts<float>(3, 1000);
  const auto make = [&](int rank) {
    return Tensors{tensor_of(values[static_cast<std::size_t>(rank)]), tensor_of(std::vector<std::int64_t>{rank, 1}),
                   tensor_of(std::vector<std::uint8_t>{1, 2, 3}), tensor_of(std::vector<double>{0.5})};
  };
  std::vector<Call> calls;
  const auto results = after_all_reduce(3, make, ReduceOp::sum, &calls);
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].what == "all_gather 12144");  // three times 4000 + 16 + 16 + 16 bytes
  CHECK(all_equal(results, 0, tree(values)));
  CHECK(all_equal<std::int64_t>(results, 1, {3, 3}));
  CHECK(all_equal<std::uint8_t>(results, 2, {3, 6, 9}));
  CHECK(all_equal<double>(results, 3, {1.5}));
}

TEST_CASE("tensors of one type that lie in another order than they are given keep their own elements") {
  const auto make = [](int rank) {
    Tensors tensors = neighbours({1.f * rank, 10.f * rank}, {1, 1});
    std::swap(tensors[0], tensors[1]);
    return tensors;
  };
  const auto results = after_all_reduce(3, make);
  CHECK(all_equal<float>(results, 0, {30}));
  CHECK(all_equal<float>(results, 1, {3}));
}

TEST_CASE("types are not mixed, in small tensors and beside large ones") {
  const auto make = [](int rank) {
    return Tensors{
        tensor_of(std::vector<float>{0.5f * rank}),  tensor_of(std::vector<std::int64_t>{std::int64_t{1} << 40, rank}),
        tensor_of(std::vector<float>{2, 3}),         tensor_of(std::vector<double>{1e100}),
        tensor_of(std::vector<std::int32_t>{-rank}), tensor_of(std::vector<std::uint8_t>{40})};
  };
  const auto beside_a_large_one = [&](int rank) {
    Tensors tensors = make(rank);
    tensors.push_back(tensor_of(std::vector<std::int64_t>(10'000, rank)));
    return tensors;
  };
  for (const auto& results : {after_all_reduce(4, make), after_all_reduce(4, beside_a_large_one)}) {
    CHECK(all_equal<float>(results, 0, {3}));
    CHECK(all_equal<std::int64_t>(results, 1, {std::int64_t{4} << 40, 6}));
    CHECK(all_equal<float>(results, 2, {8, 12}));
    CHECK(all_equal<double>(results, 3, {4e100}));
    CHECK(all_equal<std::int32_t>(results, 4, {-6}));
    CHECK(all_equal<std::uint8_t>(results, 5, {160}));
  }
}

TEST_CASE("a mean is the sum divided by the number of ranks", "[E-24]") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    auto values = make_parts<float>(ranks, 130);
    const auto make = [&](int rank) { return Tensors{tensor_of(values[static_cast<std::size_t>(rank)])}; };
    std::vector<float> expected = tree(values);
    for (float& value : expected) value /= static_cast<float>(ranks);
    CHECK(all_equal(after_all_reduce(ranks, make, ReduceOp::mean), 0, expected));
  }
}

TEST_CASE("reduce_to_one gives its root the bits that an all-reduce gives everyone") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const std::int64_t count : {1000, 10'000}) {
      const auto values = make_parts<double>(ranks, count);
      const auto make = [&](int rank) { return Tensors{tensor_of(values[static_cast<std::size_t>(rank)])}; };
      for (int root = 0; root < ranks; ++root) {
        const ReduceOp op = root % 2 ? ReduceOp::sum : ReduceOp::mean;
        const auto results = after(ranks, make, [&](Reductions& ops, std::span<const TensorView> tensors) {
          ops.reduce_to_one(op, tensors, root);
        });
        const auto everywhere = after_all_reduce(ranks, make, op);
        CAPTURE(ranks, root, name_of(op));
        CHECK(same_bits(results[static_cast<std::size_t>(root)][0].to_vector<double>(),
                        everywhere[0][0].to_vector<double>()));
      }
    }
  }
}

TEST_CASE("reduce_to_one brings scattered tensors and several buckets to its root") {
  const auto values = make_parts<float>(3, bucket + 100);
  const auto make = [&](int rank) {
    const auto& all = values[static_cast<std::size_t>(rank)];
    return Tensors{tensor_of(std::vector<float>{all.begin(), all.begin() + 50}),
                   tensor_of(std::vector<float>{all.begin() + 50, all.end()})};
  };
  const auto results = after(3, make, [](Reductions& ops, std::span<const TensorView> tensors) {
    ops.reduce_to_one(ReduceOp::sum, tensors, 2);
  });
  const auto expected = tree(values);
  CHECK(all_equal({results[2]}, 0, std::vector<float>{expected.begin(), expected.begin() + 50}));
  CHECK(all_equal({results[2]}, 1, std::vector<float>{expected.begin() + 50, expected.end()}));
}

TEST_CASE("a broadcast overwrites everyone's tensors with the root's, types mixed and scattered", "[E-10]") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int root = 0; root < ranks; ++root) {
      const auto make = [](int rank) {
        return Tensors{tensor_of(std::vector<float>{1.f * rank, 2}), tensor_of(std::vector<std::int32_t>{rank}),
                       tensor_of(std::vector<float>{3.f + rank}), tensor_of(std::vector<float>{})};
      };
      const auto results = after(
          ranks, make, [&](Reductions& ops, std::span<const TensorView> tensors) { ops.broadcast(tensors, root); });
      CHECK(all_equal<float>(results, 0, {1.f * root, 2}));
      CHECK(all_equal<std::int32_t>(results, 1, {root}));
      CHECK(all_equal<float>(results, 2, {3.f + root}));
    }
  }
}

TEST_CASE("nothing to reduce is nothing to say") {
  std::vector<Call> calls;
  (void)after_all_reduce(
      3, [](int) { return Tensors{}; }, ReduceOp::sum, &calls);
  CHECK(calls.empty());
}

TEST_CASE("one after another, large and small, by the same ops") {
  const auto large = make_parts<float>(3, 50'000);
  const auto small = make_parts<double>(3, 7);
  std::vector<std::vector<float>> large_sums(3);
  std::vector<std::vector<double>> small_sums(3);
  on_threads(3, [&](ThreadCommunicator& communicator) {
    const auto ops = lockstep::test::in_fixed_order(communicator);
    const auto rank = static_cast<std::size_t>(communicator.rank());
    for (int round = 0; round < 2; ++round) {
      const Tensor a = tensor_of(small[rank]), b = tensor_of(large[rank]);
      ops->all_reduce(ReduceOp::sum, std::vector{a.view()});
      ops->all_reduce(ReduceOp::sum, std::vector{b.view()});
      small_sums[rank] = a.to_vector<double>();
      large_sums[rank] = b.to_vector<float>();
    }
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(same_bits(large_sums[rank], tree(large)));
    CHECK(same_bits(small_sums[rank], tree(small)));
  }
}

TEST_CASE("an operation that is neither sum nor mean is refused", "[E-18]") {
  CHECK_THROWS_AS(require_reducible(static_cast<ReduceOp>(7), DType::f32), InvalidArgument);
  CHECK_THROWS_WITH(require_reducible(static_cast<ReduceOp>(7), DType::f32),
                    "`reduce_op` must be ReduceOp::sum or ReduceOp::mean, not 7");
}

TEST_CASE("sums are for types with arithmetic, means for those that have fractions") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    CHECK_NOTHROW(require_reducible(ReduceOp::sum, dtype));
    CHECK_NOTHROW(require_reducible(ReduceOp::mean, dtype));
  }
  for (const DType dtype : {DType::i32, DType::i64, DType::u8}) {
    CHECK_NOTHROW(require_reducible(ReduceOp::sum, dtype));
    CHECK_THROWS_AS(require_reducible(ReduceOp::mean, dtype), InvalidArgument);
    CHECK_THROWS_WITH(require_reducible(ReduceOp::mean, dtype),
                      Catch::StartsWith("the mean of " + std::string{name_of(dtype)} + " tensors is refused"));
  }
  CHECK_THROWS_WITH(require_reducible(ReduceOp::sum, static_cast<DType>(99)),
                    "element type 99: expected one of DType's");
}

TEST_CASE("slices cover a tensor, in order, and about evenly") {
  for (const std::int64_t count : {0, 1, 63, 64, 65, 128, 1000, 100'000}) {
    for (int slices = 1; slices <= 9; ++slices) {
      CAPTURE(count, slices);
      const auto bounds = even_slices(count, slices);
      REQUIRE(bounds.size() == static_cast<std::size_t>(slices) + 1);
      CHECK(bounds.front() == 0);
      CHECK(bounds.back() == count);
      CHECK(std::is_sorted(bounds.begin(), bounds.end()));
      for (std::size_t slice = 0; slice + 1 < bounds.size(); ++slice) {
        CHECK((bounds[slice] % 64 == 0 || bounds[slice] == count));
        CHECK(std::abs(bounds[slice + 1] - bounds[slice] - count / slices) <= 64);
      }
    }
  }
  CHECK(even_slices(10, 3, 1) == std::vector<std::int64_t>{0, 3, 6, 10});
}

TEST_CASE("the backend's order is the backend's own sum, one message a type") {
  std::vector<std::vector<float>> sums(3), means(3), at_root(3);
  std::vector<Call> calls;
  on_threads(
      3,
      [&](ThreadCommunicator& communicator) {
        const auto ops = test::in_backend_order(communicator);
        const auto rank = static_cast<std::size_t>(communicator.rank());
        const auto part = static_cast<float>(rank);
        const Tensor sum = tensor_of(std::vector<float>{part, 1}), scattered = tensor_of(std::vector<float>{2 * part});
        const Tensor mean = tensor_of(std::vector<float>{3 * part}), root = tensor_of(std::vector<float>{part + 1});
        ops->all_reduce(ReduceOp::sum, std::vector{sum.view(), scattered.view()});
        ops->all_reduce(ReduceOp::mean, std::vector{mean.view()});
        ops->reduce_to_one(ReduceOp::mean, std::vector{root.view()}, 1);
        sums[rank] = sum.to_vector<float>();
        sums[rank].push_back(scattered.to_vector<float>()[0]);
        means[rank] = mean.to_vector<float>();
        at_root[rank] = root.to_vector<float>();
      },
      &calls);
  for (const auto& sum : sums) CHECK(sum == std::vector<float>{3, 3, 6});
  for (const auto& mean : means) CHECK(mean == std::vector<float>{3});
  CHECK(at_root[1] == std::vector<float>{2});
  REQUIRE(calls.size() == 3);
  CHECK(calls[0].what == "all_reduce 12");
}

TEST_CASE("tensors go to the plane of their device, the host's first, in one part of the seam") {
  struct GpuStream final : test::ForwardingStream {
    DeviceKind kind() const override { return DeviceKind::cuda; }
  } gpu;
  struct Noted final : test::DoneCommunicator {
    Noted(std::string its_name, Stream& its_stream, std::vector<std::string>& its_notes)
        : DoneCommunicator{0, 2}, name{std::move(its_name)}, on{its_stream}, notes{its_notes} {}
    Stream& stream() override { return on; }
    Work broadcast(const TensorView& tensor, int root) override {
      return note("from " + std::to_string(root) + " " + describe(tensor));
    }
    Work all_gather(const TensorView& whole, SliceBounds) override { return note("gathered " + describe(whole)); }
    Work gather(const TensorView& whole, SliceBounds, int root) override {
      return note("gathered to " + std::to_string(root) + " " + describe(whole));
    }
    Work all_reduce(const TensorView& tensor) override { return note("summed " + describe(tensor)); }
    Work reduce(const TensorView& tensor, int root) override {
      return note("summed to " + std::to_string(root) + " " + describe(tensor));
    }
    Work note(const std::string& what) {
      notes.push_back(name + " " + what);
      return Work::done();
    }
    std::string name;
    Stream& on;
    std::vector<std::string>& notes;
  };
  std::vector<std::string> notes;
  const auto noted = [&](auto&& body) {
    notes.clear();
    body();
    return notes;
  };
  using Notes = std::vector<std::string>;
  Noted host{"host", Stream::host(), notes}, device{"gpu", gpu, notes};
  Reductions reductions{{host, &device}, {}, std::vector{0, 0}, [&](DeviceKind kind, const auto& part) {
                          notes.push_back(kind == DeviceKind::cuda ? "on the gpu" : "on the host");
                          part();
                        }};
  CHECK(reductions.name() == "sum in the backend's order");
  const Tensor memory = Tensor::zeros(DType::f32, {6});
  const auto view = [&](std::int64_t first, std::int64_t count, DeviceKind kind) {
    return TensorView{memory.view().slice(first, count).data(), {count}, DType::f32, kind};
  };
  const TensorView here = view(0, 2, DeviceKind::cpu);
  const std::vector<TensorView> mixed{view(2, 1, DeviceKind::cuda), here, view(3, 3, DeviceKind::cuda)};
  CHECK(noted([&] { reductions.all_reduce(ReduceOp::sum, mixed); }) ==
        Notes{"on the gpu", "host gathered u8[32]", "gpu summed f32[4]"});
  CHECK(noted([&] {
          reductions.all_reduce(ReduceOp::sum, {&here, 1});
        }) == Notes{"on the host", "host gathered u8[32]"});
  CHECK(noted([&] { reductions.reduce_to_one(ReduceOp::sum, std::span{mixed}.first(1), 1); }) ==
        Notes{"on the gpu", "gpu summed to 1 f32[1]"});
  CHECK(noted([&] { reductions.broadcast(mixed, 1); }) ==
        Notes{"on the gpu", "host from 1 f32[2]", "gpu from 1 f32[4]"});
  CHECK(noted([&] { reductions.start(mixed[0]).wait(); }) == Notes{"on the gpu", "gpu summed f32[1]", "on the gpu"});
  CHECK(noted([&] { reductions.start(here).wait(); }) == Notes{"on the host", "on the host", "host gathered u8[32]"});
  CHECK(noted([&] { reductions.start_all_reduce(ReduceOp::sum, mixed).wait(); }) ==
        Notes{"on the gpu", "gpu summed f32[4]", "on the gpu", "host gathered u8[32]"});
  CHECK(reductions.slice_owners() == std::vector{0, 1});
  const Sliced message{mixed[2],
                       std::make_shared<const detail::SliceMap>(std::vector<std::int64_t>{0, 1, 3}, std::vector{0, 1})};
  CHECK(noted([&] { reductions.start_scatter(message).wait(); }) ==
        Notes{"on the gpu", "gpu summed f32[3]", "on the gpu"});
  CHECK(noted([&] { reductions.gather_slices({&message, 1}); }) == Notes{"on the gpu", "gpu gathered f32[3]"});
}

TEST_CASE("a group of one moves nothing") {
  const auto communicator = make_local_communicator();
  CHECK(communicator->size() == 1);
  CHECK(communicator->rank() == 0);
  CHECK(communicator->backend() == "local");
  const Tensor value = tensor_of(std::vector<float>{1, 2});
  const Tensor received = Tensor::zeros(DType::f32, {2});
  communicator->all_to_all(value.view(), even_slices(2, 1), received.view()).wait();
  CHECK(received.to_vector<float>() == std::vector<float>{1, 2});
  const auto ops = lockstep::test::in_fixed_order(*communicator);
  ops->all_reduce(ReduceOp::mean, std::vector{value.view()});
  ops->reduce_to_one(ReduceOp::sum, std::vector{value.view()}, 0);
  ops->broadcast(std::vector{value.view()}, 0);
  CHECK(value.to_vector<float>() == std::vector<float>{1, 2});
  std::vector<Tensor> rows{value};
  ops->all_gather(rows);
  CHECK(rows[0].to_vector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("work is waited for once") {
  struct Counted final : Work::Pending {
    explicit Counted(int& counter) : waits{counter} {}
    void wait() override { ++waits; }
    int& waits;
  };
  int waits = 0;
  Work work{std::make_unique<Counted>(waits)};
  CHECK(waits == 0);
  work.wait();
  work.wait();
  CHECK(waits == 1);
  Work::done().wait();
}
