// Reductions among ranks that are threads: every rank's values differ, and the results are compared to the bit.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>

#include "comm/backends.hpp"
#include "comm/communicator.hpp"
#include "comm/slices.hpp"
#include "device/device.hpp"
#include "device/devices.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/implementations.hpp"
#include "reduce/slice_map.hpp"
#include "reduce_support.hpp"
#include "support/thread_communicator.hpp"

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
                           const std::function<void(CrossDeviceOps&, std::span<const TensorView>)>& operation,
                           std::vector<Call>* calls = nullptr) {
  std::vector<Tensors> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(make(rank));
  on_threads(
      ranks,
      [&](ThreadCommunicator& communicator) {
        const auto ops = make_fixed_order_ops(communicator);
        const auto mine = views(all[static_cast<std::size_t>(communicator.rank())]);
        operation(*ops, mine);
      },
      calls);
  return all;
}

std::vector<Tensors> after_all_reduce(int ranks, const std::function<Tensors(int)>& make, ReduceOp op = ReduceOp::sum,
                                      std::vector<Call>* calls = nullptr) {
  return after(
      ranks, make, [op](CrossDeviceOps& ops, std::span<const TensorView> tensors) { ops.all_reduce(op, tensors); },
      calls);
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
    tensors.emplace_back(buffer, TensorView{data, {length}, DType::f32});
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
        const auto results = after(ranks, make, [&](CrossDeviceOps& ops, std::span<const TensorView> tensors) {
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
  const auto results = after(3, make, [](CrossDeviceOps& ops, std::span<const TensorView> tensors) {
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
          ranks, make, [&](CrossDeviceOps& ops, std::span<const TensorView> tensors) { ops.broadcast(tensors, root); });
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
    const auto ops = make_fixed_order_ops(communicator);
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
        const auto ops = make_backend_order_ops(communicator);
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

TEST_CASE("tensors go to the plane of their device, the host's first") {
  struct Noted final : CrossDeviceOps {
    Noted(std::string_view its_name, std::vector<std::string>& its_notes) : own_name{its_name}, notes{its_notes} {}
    std::string_view name() const override { return own_name; }
    const Packing& packing() const override { return packs; }
    Work start(const TensorView& message) override {
      note("started", {&message, 1});
      return Work::done();
    }
    Work start_all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
      note("began the " + std::string{name_of(op)} + " of", tensors);
      return Work::later([this, all = std::vector(tensors.begin(), tensors.end())] { note("ended", all); });
    }
    std::vector<int> slice_owners() const override { return {own_name == "gpu" ? 1 : 0}; }
    Work start_scatter(const Sliced& message) override {
      note("scattered", {&message.memory, 1});
      return Work::done();
    }
    void gather_slices(std::span<const Sliced> messages) override { note("gathered", {&messages[0].memory, 1}); }
    void note(std::string_view what, std::span<const TensorView> tensors) {
      std::string text = std::string{own_name} + " " + std::string{what};
      for (const TensorView& tensor : tensors) text += " " + describe(tensor);
      notes.push_back(text);
    }
    void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override { note(name_of(op), tensors); }
    void reduce_to_one(ReduceOp, std::span<const TensorView> tensors, int root) override {
      note("to " + std::to_string(root), tensors);
    }
    void broadcast(std::span<const TensorView> tensors, int root) override {
      note("from " + std::to_string(root), tensors);
    }
    void note_slices(std::string_view what, std::span<IndexedSlices> slices) {
      notes.push_back(std::string{own_name} + " " + std::string{what} + " of slices " + std::to_string(slices.size()));
    }
    void all_reduce(ReduceOp op, std::span<IndexedSlices> slices) override { note_slices(name_of(op), slices); }
    void reduce_to_one(ReduceOp, std::span<IndexedSlices> slices, int) override { note_slices("to", slices); }
    void broadcast(std::span<IndexedSlices> slices, int) override { note_slices("from", slices); }
    void all_gather(std::span<Tensor> tensors) override {
      notes.push_back(std::string{own_name} + " gathers " + std::to_string(tensors.size()));
    }
    std::string_view own_name;
    std::vector<std::string>& notes;
    Packing packs;
  };
  std::vector<std::string> notes;
  const auto ops = make_ops_by_device(std::make_unique<Noted>("host", notes), std::make_unique<Noted>("gpu", notes));
  CHECK(ops->name() == "gpu");
  const auto view = [](std::int64_t count, DeviceKind device) {
    return TensorView{nullptr, {count}, DType::f32, device};
  };
  const std::vector<TensorView> mixed{view(1, DeviceKind::cuda), view(2, DeviceKind::cpu), view(3, DeviceKind::cuda)};
  ops->all_reduce(ReduceOp::mean, mixed);
  ops->reduce_to_one(ReduceOp::sum, std::span{mixed}.first(1), 3);
  ops->broadcast(std::span{mixed}.subspan(1, 1), 2);
  ops->start(mixed[0]).wait();
  ops->start(mixed[1]).wait();
  ops->start_all_reduce(ReduceOp::mean, mixed).wait();
  CHECK(ops->slice_owners() == std::vector{1});  // variables are on the device
  const Sliced message{mixed[0], {}};
  ops->start_scatter(message).wait();
  ops->gather_slices({&message, 1});
  std::vector<IndexedSlices> slices(3);
  slices[1].values = Tensor{nullptr, view(0, DeviceKind::cuda)};
  ops->all_reduce(ReduceOp::sum, slices);
  ops->reduce_to_one(ReduceOp::sum, std::span{slices}.first(1), 0);
  ops->broadcast(std::span{slices}.subspan(1, 1), 0);
  std::vector<Tensor> gathered{slices[1].values, slices[0].values, slices[1].values};
  ops->all_gather(gathered);
  CHECK(notes == std::vector<std::string>{
                     "host mean f32[2]", "gpu mean f32[1] f32[3]", "gpu to 3 f32[1]", "host from 2 f32[2]",
                     "gpu started f32[1]", "host started f32[2]", "host began the mean of f32[2]",
                     "gpu began the mean of f32[1] f32[3]", "host ended f32[2]", "gpu ended f32[1] f32[3]",
                     "gpu scattered f32[1]", "gpu gathered f32[1]", "host sum of slices 2", "gpu sum of slices 1",
                     "host to of slices 1", "gpu from of slices 1", "host gathers 1", "gpu gathers 2"});
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
  const auto ops = make_fixed_order_ops(*communicator);
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
