// Shards that an mlp takes all at once: the bits of one after the other, whichever kernels compute.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "models/input/batches.hpp"
#include "models/nn/joint_model.hpp"
#include "models/nn/mlp.hpp"
#include "nn_support.hpp"
#include "odd_kernels.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::test::nn_shards_cases {

using namespace lockstep::nn;

namespace {

/// Wide enough that a library takes other ways for other numbers of rows.
MlpOptions wide(DType dtype, Model::Precision precision) {
  return {.inputs = 40, .hidden = {33, 20}, .classes = 10, .dtype = dtype, .seed = 3, .precision = precision};
}

struct ShardRun {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  Mlp model;

  ShardRun(DType dtype, SharedKernels kernels, Model::Precision precision = Model::Precision::full)
      : model{strategy, wide(dtype, precision), std::move(kernels)} {
    strategy.seal();
  }

  GradientBuffer buffer() { return {strategy.store(), model.variables()}; }
};

/// Shards of these numbers of samples, side by side.
SampleBatch::Group group_of(const std::vector<std::int64_t>& samples, std::int64_t capacity, DType dtype) {
  const auto shards = std::ssize(samples);
  SampleBatch::Group group = make_batch_group(make_batch(shards * capacity, 40, dtype), shards);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const SampleBatch shard = samples_from(first, samples[i], capacity, dtype, {40, 10});
    copy(shard.inputs.view(), group.batches[i].inputs.view());
    copy(shard.labels.view(), group.batches[i].labels.view());
    group.batches[i].samples = samples[i];
    first += samples[i];
  }
  return group;
}

/// As a step deals `total` samples to `shards` shards: as many as go into the first ones, then fewer, then none.
std::vector<std::int64_t> dealt(std::int64_t total, std::int64_t shards, std::int64_t capacity) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < shards; ++i)
    samples.push_back(std::clamp<std::int64_t>(total - i * capacity, 0, capacity));
  return samples;
}

struct Trained {
  ops::Kernels::BatchLoss losses;
  Tensor gradients;
};

Trained at_once(ShardRun& program, const SampleBatch::Group& group) {
  const GradientBuffer buffer = program.buffer();
  for (const Variable& variable : program.model.variables())
    fill(buffer.of(variable), std::numeric_limits<double>::quiet_NaN());
  const std::vector<Model::ShardPlace> places(group.batches.size());
  const ops::Kernels::BatchLoss losses = program.model.train_shards(group, places, buffer);
  return {losses, Tensor::copy_of(buffer.flat())};
}

/// By the way that every model has.
Trained one_by_one(ShardRun& program, const SampleBatch::Group& group) {
  const GradientBuffer buffer = program.buffer();
  const std::vector<Model::ShardPlace> places(group.batches.size());
  const ops::Kernels::BatchLoss losses = program.model.Model::train_shards(group, places, buffer);
  return {losses, Tensor::copy_of(buffer.flat())};
}

/// Remembers the gradients of some shards, each variable's bytes in the order in which they are shown.
class Watch final : public ShardWatch {
 public:
  Watch(std::vector<std::int64_t> wanted, bool in_parts, std::int64_t audited = 0)
      : wanted_{std::move(wanted)}, in_parts_{in_parts}, audited_{audited} {}

  bool wants(std::int64_t shard) const override { return std::ranges::find(wanted_, shard) != wanted_.end(); }
  bool takes_parts(std::int64_t) const override { return in_parts_; }
  std::int64_t audited() const override { return audited_; }
  void on_gradient(std::int64_t shard, std::size_t variable, const TensorView& part) override {
    const std::span<const std::byte> bytes{part.data(), part.bytes()};
    std::vector<std::byte>& seen = gradients[{shard, variable}];
    seen.insert(seen.end(), bytes.begin(), bytes.end());
  }
  void on_statistics(std::int64_t, const TensorView&) override {}
  void on_loss(std::int64_t shard, const ops::Kernels::BatchLoss& loss) override { losses[shard] = loss.loss_sum; }

  std::map<std::int64_t, double> losses;
  std::map<std::pair<std::int64_t, std::size_t>, std::vector<std::byte>> gradients;

 private:
  std::vector<std::int64_t> wanted_;
  bool in_parts_;
  std::int64_t audited_;
};

Trained watched(ShardRun& program, const SampleBatch::Group& group, Watch& watch) {
  const GradientBuffer buffer = program.buffer();
  const std::vector<Model::ShardPlace> places(group.batches.size());
  const ops::Kernels::BatchLoss losses = inside(program.model).train_watched(group, places, buffer, watch);
  return {losses, Tensor::copy_of(buffer.flat())};
}

Trained watched_one_by_one(ShardRun& program, const SampleBatch::Group& group, Watch& watch) {
  const GradientBuffer buffer = program.buffer();
  const std::vector<Model::ShardPlace> places(group.batches.size());
  const ops::Kernels::BatchLoss losses = inside(program.model).train_watched_one_by_one(group, places, buffer, watch);
  return {losses, Tensor::copy_of(buffer.flat())};
}

void check_same(const Trained& a, const Trained& b) {
  CHECK(a.losses.loss_sum == b.losses.loss_sum);
  CHECK(a.losses.correct == b.losses.correct);
  CHECK(same_bits(a.gradients.view(), b.gradients.view()));
}

/// What products an mlp asks for.
struct Asked {
  std::int64_t most_rows = 0;  ///< of a product of activations
  int sums = 0;                ///< of products
};

/// Kernels of any kind that remember what they are asked.
template <class Base>
class Counting final : public Base {
 public:
  explicit Counting(Base base) : Base{std::move(base)} {}

  void matmul(const ops::Kernels::Matrix& a, ops::Kernels::Transpose transpose_a, const ops::Kernels::Matrix& b,
              ops::Kernels::Transpose transpose_b, const ops::Kernels::Matrix& c) const override {
    if (transpose_a == ops::Kernels::Transpose::no) asked.most_rows = std::max(asked.most_rows, c.rows());
    Base::matmul(a, transpose_a, b, transpose_b, c);
  }
  void sum_of_products(std::span<const ops::Kernels::Factors> factors, const TensorView& c) const override {
    ++asked.sums;
    Base::sum_of_products(factors, c);
  }

  mutable Asked asked;
};

/// What is asked for in a step behind the first, in which the kernels are tried out; the step has the same bits as one
/// shard after the other.
template <class Base>
Asked asked_in_a_step(std::int64_t capacity, Base base = {}, Model::Precision precision = Model::Precision::full) {
  const auto kernels = std::make_shared<const Counting<Base>>(std::move(base));
  ShardRun program{DType::f32, kernels, precision};
  const SampleBatch::Group group = group_of(dealt(4 * capacity - 1, 4, capacity), capacity, DType::f32);
  const Trained expected = one_by_one(program, group);
  check_same(at_once(program, group), expected);
  kernels->asked = {};
  check_same(at_once(program, group), expected);
  return kernels->asked;
}

}  // namespace

TEST_CASE("shards at once have the bits of one shard after the other, at every size") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const SharedKernels& kernels : {reference(), automatic()}) {
      ShardRun program{dtype, kernels};
      for (std::size_t i = 1; i < 6; i += 2) fill_noise(program.model.variables()[i].local(), i);
      for (const std::int64_t capacity : {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 40})
        for (std::int64_t shards = 1; shards <= 8; ++shards) {
          const SampleBatch::Group group =
              group_of(dealt(shards * capacity - capacity / 2, shards, capacity), capacity, dtype);
          CAPTURE(kernels->name(), static_cast<int>(dtype), capacity, shards);
          check_same(at_once(program, group), one_by_one(program, group));
        }
    }
}

TEST_CASE("shards that are computed at once show the gradients of those that are wanted, and keep their bits") {
  // Of three layers, whose weights' gradients one product each adds up.
  const auto kernels = std::make_shared<const Counting<ops::ReferenceKernels>>(ops::ReferenceKernels{});
  for (const SharedKernels& each : {SharedKernels{kernels}, automatic()}) {
    ShardRun program{DType::f32, each};
    const SampleBatch::Group group = group_of({16, 16, 0, 16, 7}, 16, DType::f32);
    const Trained expected = one_by_one(program, group);
    for (const std::vector<std::int64_t>& wanted : {std::vector<std::int64_t>{0}, {1}, {2}, {4}, {0, 1, 2, 3, 4}}) {
      Watch whole{wanted, false}, in_parts{wanted, true};
      check_same(watched(program, group, whole), expected);
      kernels->asked = {};
      check_same(watched(program, group, in_parts), expected);
      if (each == kernels) CHECK(kernels->asked.sums == 3);
      CHECK(whole.gradients.size() == 6 * wanted.size());
      CHECK(in_parts.gradients == whole.gradients);
    }
  }
}

TEST_CASE("an audited shard shows what it yields among others, and reaches no sum") {
  const auto kernels = std::make_shared<const Counting<ops::ReferenceKernels>>(ops::ReferenceKernels{});
  for (const SharedKernels& each : {SharedKernels{kernels}, automatic()}) {
    ShardRun program{DType::f32, each};
    for (const std::vector<std::int64_t>& own : {std::vector<std::int64_t>{16}, {16, 7}, {16, 0, 16, 16, 9}}) {
      const Trained expected = one_by_one(program, group_of(own, 16, DType::f32));
      for (const std::int64_t of_audited : {16, 5, 0}) {
        std::vector<std::int64_t> samples = own;
        samples.push_back(of_audited);
        const SampleBatch::Group group = group_of(samples, 16, DType::f32);
        const auto audited = std::ssize(own);
        Watch all{{audited}, true};
        watched(program, group, all);
        kernels->asked = {};
        Watch at_once{{audited}, true, 1}, whole{{audited}, false, 1}, one_by_one{{audited}, true, 1};
        check_same(watched(program, group, at_once), expected);
        if (each == kernels) CHECK(kernels->asked.most_rows == 16 * std::ssize(samples));
        check_same(watched(program, group, whole), expected);
        check_same(watched_one_by_one(program, group, one_by_one), expected);
        for (const Watch& watch : {at_once, whole, one_by_one}) {
          CHECK(watch.gradients == all.gradients);
          CHECK(watch.losses == all.losses);
        }
      }
    }
  }
}

TEST_CASE("empty shards, wherever they are, add zeros to shards that are computed at once") {
  for (const SharedKernels& kernels : {reference(), automatic()}) {
    ShardRun program{DType::f32, kernels};
    // In the first shard, on the left and on the right of a pair, a whole pair, and all.
    for (const std::vector<std::int64_t>& samples : {std::vector<std::int64_t>{0, 5, 5, 5},
                                                     {5, 0, 5, 3},
                                                     {5, 5, 0, 2},
                                                     {5, 2, 0, 0},
                                                     {0, 0, 1, 0},
                                                     {0, 0, 0, 0}}) {
      const SampleBatch::Group group = group_of(samples, 5, DType::f32);
      check_same(at_once(program, group), one_by_one(program, group));
    }
    const Trained none = at_once(program, group_of({0, 0}, 16, DType::f32));
    CHECK(none.losses.loss_sum == 0);
    CHECK(same_bits(none.gradients.view(), Tensor::zeros(DType::f32, none.gradients.shape()).view()));
  }
}

TEST_CASE("what lies in the rows of an empty shard reaches no gradient") {
  ShardRun program{DType::f32, reference()};
  const SampleBatch::Group group = group_of({3, 0, 2, 1}, 4, DType::f32);
  const Trained expected = one_by_one(program, group);
  fill(group.batches[1].inputs.view(), std::numeric_limits<double>::quiet_NaN());
  check_same(at_once(program, group), expected);
}

TEST_CASE("kernels whose rows do not depend on others get the rows of all shards at once, and sum products") {
  const Asked asked = asked_in_a_step<ops::ReferenceKernels>(6);
  CHECK(asked.most_rows == 4 * 6);
  CHECK(asked.sums == 3);  // a layer each
}

TEST_CASE("kernels whose rows have other bits among more rows get one shard after the other") {
  const Asked asked = asked_in_a_step(6, ops::RowCountingKernels{6});
  CHECK(asked.most_rows == 6);
  CHECK(asked.sums == 3);
}

TEST_CASE("kernels whose sums of products are not the tree are not asked for them") {
  const Asked asked = asked_in_a_step<ops::TermwiseKernels>(6);
  CHECK(asked.most_rows == 4 * 6);
  CHECK(asked.sums == 0);
}

TEST_CASE("shards in bf16 are computed one after the other, as their sums are seldom seen to differ") {
  const Asked asked = asked_in_a_step(6, ops::ReferenceKernels{}, Model::Precision::bf16);
  CHECK(asked.most_rows == 6);
  CHECK(asked.sums == 0);
}

TEST_CASE("kernels that do not repeat their bits train nothing") {
  for (const SharedKernels& kernels : {SharedKernels{std::make_shared<ops::ForgetfulKernels>()},
                                       SharedKernels{std::make_shared<ops::PlaceMindedKernels>()}}) {
    ShardRun program{DType::f32, kernels};
    CHECK_THROWS_AS(at_once(program, group_of({3, 3}, 3, DType::f32)), DeviceError);
    CHECK_THROWS_AS(at_once(program, group_of({3}, 3, DType::f32)), DeviceError);
    CHECK_THROWS_AS(program.model.evaluate_shard(samples_from(0, 3, 3, DType::f32, {40, 10})), DeviceError);
  }
}

TEST_CASE("a step after one that was refused does not remember its shards") {
  ShardRun program{DType::f32, reference()};
  const SampleBatch::Group good = group_of({3, 3, 3, 3}, 3, DType::f32);
  const Trained expected = one_by_one(program, good);
  const SampleBatch::Group bad = group_of({3, 3, 3, 3}, 3, DType::f32);
  bad.batches[2].labels.view().elements<std::int32_t>()[0] = 10;
  CHECK_THROWS_AS(at_once(program, bad), InvalidArgument);
  check_same(at_once(program, good), expected);
  CHECK_THROWS_AS(one_by_one(program, bad), InvalidArgument);
  check_same(one_by_one(program, good), expected);
}

TEST_CASE("shards need a place each, and there must be one") {
  ShardRun program{DType::f32, reference()};
  const SampleBatch::Group group = group_of({3, 3}, 3, DType::f32);
  const std::vector<Model::ShardPlace> one(1);
  CHECK_THROWS_WITH(program.model.train_shards(group, one, program.buffer()),
                    "2 shards with 1 places; expected one or more, and a place for each");
  CHECK_THROWS_AS(program.model.Model::train_shards(group, one, program.buffer()), InvalidArgument);
  CHECK_THROWS_AS(program.model.train_shards({}, {}, program.buffer()), InvalidArgument);
}

}  // namespace lockstep::test::nn_shards_cases
