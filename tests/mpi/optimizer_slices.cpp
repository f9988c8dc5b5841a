// Optimizers whose work the ranks share in slices: the same bytes as without, and each rank keeps its part of the
// state.
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/checkpoint/checkpoint.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "mpi/shared_folder.hpp"
#include "support/noise.hpp"
#include "support/quiet_log.hpp"
#include "support/ranks.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/update/update_kernels.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

enum class Way { ready_gradients, samples, computation, reduced };

using Make = std::function<std::unique_ptr<Optimizer>()>;

/// Matrices and vectors of two types, none a whole number of blocks long, and one that is never updated. Together 24
/// blocks of f32 and 5 of f64.
struct SlicedProgram {
  explicit SlicedProgram(const ReductionOptions& reductions) : strategy{runtime().make_strategy(reductions)} {
    const QuietLog quiet;
    add("a", {211, 130});
    add("bias", {77});
    add("frozen", {9000});
    add("table", {100, 301});
    add("double", {17001}, DType::f64);
    add("c", {20001});
    strategy.seal();
  }

  /// What is in no slices: a small variable, and one that the last rank alone updates.
  void add_whole_ones() {
    const QuietLog quiet;
    add("small", {60});
    add("held", {211, 100});
    inside(variables.back()).state().holder = last();
    strategy.seal();
  }

  void add(const std::string& name, const Shape& shape, DType dtype = DType::f32) {
    const std::uint64_t seed = variables.size() + 1000;
    variables.push_back(strategy.create_variable({.name = name}, [&] { return noise(dtype, shape, seed); }));
  }

  std::vector<Variable> updated() const {
    std::vector<Variable> all;
    for (const Variable& each : variables)
      if (each.name() != "frozen") all.push_back(each);
    return all;
  }

  std::vector<Optimizer::Gradient> gradients(int step, int of_rank) {
    std::vector<Optimizer::Gradient> all;
    for (const Variable& each : updated()) {
      const std::uint64_t seed = static_cast<std::uint64_t>(100 * step + 10 * of_rank) + all.size();
      const Tensor value = noise(each.dtype(), each.shape(), seed);
      all.push_back({Tensor::copy_of(value.view(), strategy.stream()), each});
    }
    return all;
  }

  void step(Optimizer& optimizer, int number, Way way = Way::computation) {
    const auto own = gradients(number, way == Way::reduced ? 0 : rank());
    strategy.run([&](ReplicaContext& context) { apply(optimizer, context, own, way); });
    norms.push_back(optimizer.gradient_norm());
    if (way == Way::reduced) check_kept(own);
  }
  /// That the store still holds the gradients.
  void check_kept(const std::vector<Optimizer::Gradient>& gradients) {
    for (const Optimizer::Gradient& each : gradients) {
      const Tensor home = Tensor::on_host(strategy.store().gradient(each.variable));
      const Tensor given = Tensor::on_host(each.value.view());
      REQUIRE(home.view().bytes() == given.view().bytes());
      CHECK(std::memcmp(home.view().data(), given.view().data(), home.view().bytes()) == 0);
    }
  }
  void steps(Optimizer& optimizer, int first, int last) {
    for (int number = first; number < last; ++number) step(optimizer, number);
  }

  static void apply(Optimizer& optimizer, ReplicaContext& context, const std::vector<Optimizer::Gradient>& own,
                    Way way) {
    const auto compute = [&](Optimizer::AgreedStep& agreed) {
      for (auto each = own.rbegin(); each != own.rend(); ++each) agreed.ready(each->variable);
      return Optimizer::StepSums{.samples = rank() + 1, .loss = 0.1 * rank()};
    };
    switch (way) {
      case Way::ready_gradients: optimizer.apply_gradients(context, own); break;
      case Way::samples: optimizer.apply_gradients(context, own, rank() + 1); break;
      case Way::reduced: optimizer.apply_reduced_gradients(context, own); break;
      case Way::computation: {
        const auto sums = optimizer.apply_gradients(context, {.gradients = own, .computation = {compute}});
        CHECK(sums.samples == triangle());
      }
    }
  }

  std::uint64_t digest() const { return weights_digest(variables); }

  /// The elements of all slots that this rank has in memory.
  std::int64_t kept() {
    std::int64_t count = 0;
    for (const VariableStore::FlatRange& range : strategy.store().ranges(updated()))
      for (const auto& [name, slot] : range.segment->slots) count += slot.count();
    return count;
  }

  Strategy strategy;
  std::vector<MirroredVariable> variables;
  std::vector<double> norms;
};

const LearningRate falling_rate{{.peak = 0.1, .warmup_steps = 2, .decay_steps = 5}};

const std::vector<Make> all_optimizers{
    [] { return std::make_unique<Sgd>(Sgd::Options{.learning_rate = 0.1}); },
    [] {
      return std::make_unique<Sgd>(
          Sgd::Options{.learning_rate = falling_rate, .momentum = 0.9, .weight_decay = 0.01, .clip_norm = 3.0});
    },
    [] { return std::make_unique<AdamW>(AdamW::Options{.learning_rate = falling_rate}); },
    [] {
      return std::make_unique<AdamW>(
          AdamW::Options{.learning_rate = falling_rate, .weight_decay = 0.1, .clip_norm = 2.0});
    }};

const Make make_adamw = all_optimizers.back();

ReductionOptions with_slices(ReductionOptions options = {}) {
  options.shard_optimizer = true;
  return options;
}

void check_same(const SlicedProgram& a, const SlicedProgram& b) {
  CHECK(a.digest() == b.digest());
  CHECK(a.norms == b.norms);
}

/// Does not say that it updates element by element.
class Nameless : public Optimizer {
 public:
  Nameless() : Optimizer{{.learning_rate = 1}, nullptr} {}

 protected:
  std::vector<std::string_view> slots() const override { return {"moment"}; }
  void update(const Kernels&, const VariableStore::FlatRange&, const UpdateStep&) override {}
};

/// Keeps the squares of all gradients, and changes nothing where one is zero. On the host.
class Adagrad final : public Optimizer {
 public:
  Adagrad() : Optimizer{{.learning_rate = 0.1}, nullptr} {}

 protected:
  std::vector<std::string_view> slots() const override { return {"squares"}; }
  bool keeps_zero_gradients() const override { return true; }
  bool updates_by_element() const override { return true; }
  void update(const Kernels&, const VariableStore::FlatRange& range, const UpdateStep& step) override {
    range.values.dtype() == DType::f32 ? update_as<float>(range, step) : update_as<double>(range, step);
  }

 private:
  template <class T>
  static void update_as(const VariableStore::FlatRange& range, const UpdateStep& step) {
    const TensorView slot = range.slot("squares");
    T* const values = range.values.elements<T>().data();
    T* const squares = slot.elements<T>().data();
    const T* const gradients = range.gradients.elements<T>().data();
    for (std::int64_t i = 0; i < range.values.count(); ++i) {
      const T gradient = gradients[i] / static_cast<T>(step.divisor);
      squares[i] += gradient * gradient;
      if (gradient != 0) values[i] -= static_cast<T>(step.learning_rate) * gradient / std::sqrt(squares[i]);
    }
  }
};

/// With a slot that the ranks may name differently.
class NamedSlot final : public Nameless {
 public:
  explicit NamedSlot(std::string_view slot) : slot_{slot} {}

 protected:
  std::vector<std::string_view> slots() const override { return {slot_}; }
  bool updates_by_element() const override { return true; }

 private:
  std::string_view slot_;
};

/// Cannot update on one rank.
class FailingInSlices final : public Nameless {
 protected:
  bool updates_by_element() const override { return true; }
  void update(const Kernels&, const VariableStore::FlatRange&, const UpdateStep&) override {
    if (odd_one()) throw std::runtime_error{"on purpose"};
  }
};

}  // namespace

TEST_CASE("an optimizer in slices makes the same values and norms, whatever it is and however it gets its gradients") {
  for (const Make& make : all_optimizers) {
    SlicedProgram whole{{}}, parts{with_slices()};
    // Beside slices, variables that every rank updates whole, or one rank alone.
    for (SlicedProgram* const each : {&whole, &parts}) each->add_whole_ones();
    const auto one = make(), other = make();
    int number = 0;
    for (const Way way : {Way::computation, Way::samples, Way::ready_gradients, Way::reduced, Way::computation}) {
      whole.step(*one, number, way);
      parts.step(*other, number++, way);
      check_same(whole, parts);
    }
    CHECK(one->learning_rate() == other->learning_rate());
    parts.strategy.attest();
  }
}

TEST_CASE("each rank keeps its part of the state of an optimizer in slices, and no two keep the same") {
  SlicedProgram whole{{}}, parts{with_slices()};
  const auto one = make_adamw(), other = make_adamw();
  whole.steps(*one, 0, 1);
  other->prepare(parts.strategy, parts.updated());
  const auto prepared = parts.kept();
  parts.steps(*other, 0, 1);
  const auto kept = parts.kept();
  CHECK(kept == prepared);
  CHECK(runtime().strategy().reduce(ReduceOp::sum, PerReplica<std::int64_t>{kept}) == whole.kept());
  // An even share, but for at most a block of each type for each slot.
  if (ranks() > 1) CHECK(std::abs(kept - whole.kept() / ranks()) <= 4 * 4096);
}

TEST_CASE("an optimizer in slices makes the same values with every reduction and packing") {
  SlicedProgram whole{{}};
  const auto one = make_adamw();
  whole.steps(*one, 0, 2);
  std::vector<ReductionOptions> all;
  for (const ReductionOptions::Kind kind :
       {ReductionOptions::Kind::fixed_order, ReductionOptions::Kind::hierarchical, ReductionOptions::Kind::to_one_rank})
    all.push_back({.kind = kind});
  for (const int packs : {3, 100}) all.push_back({.packing = ReductionOptions::into_packs(packs)});
  all.push_back({.packing = ReductionOptions::group_small(1000, 2)});
  all.push_back({.packing = ReductionOptions::unpacked()});
  all.push_back({.smaller = {{.up_to_bytes = 200'000, .kind = ReductionOptions::Kind::to_one_rank}}});
  if (runtime().strategy().stream().kind() != DeviceKind::cpu) all.resize(1);
  for (const ReductionOptions& options : all) {
    SlicedProgram each{options}, parts{with_slices(options)};
    const auto other = make_adamw(), third = make_adamw();
    each.steps(*third, 0, 2);
    parts.steps(*other, 0, 2);
    check_same(each, parts);
    if (runtime().strategy().stream().kind() == DeviceKind::cpu) check_same(whole, parts);
  }
}

TEST_CASE("rows of a gradient meet an optimizer in slices") {
  std::vector<Make> all = all_optimizers;
  if (runtime().strategy().stream().kind() == DeviceKind::cpu)
    all.emplace_back([] { return std::make_unique<Adagrad>(); });
  for (const Make& make : all) {
    SlicedProgram whole{{}}, parts{with_slices()};
    for (SlicedProgram* const each : {&whole, &parts}) {
      const auto optimizer = make();
      for (int number = 0; number < 3; ++number) {
        auto gradients = each->gradients(number, rank());
        const std::int64_t rows = rank() + number;
        const Tensor values = noise(DType::f32, {rows, 301}, static_cast<std::uint64_t>(rows));
        std::vector<std::int64_t> indices;
        for (std::int64_t row = 0; row < rows; ++row) indices.push_back((row * 37 + rank()) % 100);
        for (Optimizer::Gradient& gradient : gradients)
          if (gradient.variable.name() == "table")
            gradient.value =
                IndexedSlices{Tensor::copy_of(values.view(), each->strategy.stream()),
                              Tensor::copy_of(Tensor::from(indices, {rows}).view(), each->strategy.stream()),
                              {100, 301}};
        each->strategy.run(
            [&](ReplicaContext& context) { optimizer->apply_gradients(context, gradients, std::int64_t{rank() + 1}); });
        each->norms.push_back(optimizer->gradient_norm());
      }
    }
    check_same(whole, parts);
  }
}

TEST_CASE("copies for reading follow an optimizer in slices") {
  SlicedProgram whole{{}}, parts{with_slices()};
  const auto one = make_adamw(), other = make_adamw();
  const auto copies_of = [](SlicedProgram& program) {
    std::vector<float> all;
    for (const Variable& each : program.updated()) {
      if (each.dtype() != DType::f32) continue;
      for (const BFloat16 value : Tensor::on_host(each.for_reading(DType::bf16)).to_vector<BFloat16>())
        all.push_back(static_cast<float>(value));
    }
    return all;
  };
  const bool equal_before = copies_of(whole) == copies_of(parts);
  whole.steps(*one, 0, 2);
  parts.steps(*other, 0, 2);
  const bool equal = copies_of(whole) == copies_of(parts);
  CHECK(equal_before);
  CHECK(equal);
}

TEST_CASE("a step without samples changes nothing that is in slices") {
  SlicedProgram parts{with_slices()};
  const auto optimizer = make_adamw();
  parts.steps(*optimizer, 0, 1);
  const auto before = parts.digest();
  const auto own = parts.gradients(1, rank());
  parts.strategy.run([&](ReplicaContext& context) { optimizer->apply_gradients(context, own, std::int64_t{0}); });
  CHECK(parts.digest() == before);
  CHECK(optimizer->gradient_norm() == 0);
  CHECK(optimizer->steps(parts.strategy) == 1);
}

TEST_CASE("an optimizer in slices writes the same checkpoint, and each goes on from the other's") {
  const SharedFolder folder;
  SlicedProgram whole{{}}, parts{with_slices()};
  for (SlicedProgram* const each : {&whole, &parts}) each->add_whole_ones();
  const auto one = make_adamw(), other = make_adamw();
  whole.steps(*one, 0, 2);
  parts.steps(*other, 0, 2);
  save_checkpoint(whole.strategy, folder / "whole");
  save_checkpoint(parts.strategy, folder / "parts");
  if (runtime().is_chief()) CHECK(read_file(folder / "parts") == read_file(folder / "whole"));
  whole.steps(*one, 2, 4);
  for (const bool in_slices : {false, true}) {
    // Made in another state, which the checkpoint replaces on every rank.
    SlicedProgram resumed{in_slices ? with_slices() : ReductionOptions{}};
    resumed.add_whole_ones();
    const auto third = make_adamw();
    if (in_slices) {
      third->prepare(resumed.strategy, resumed.updated());
    } else {
      resumed.steps(*third, 7, 8);
    }
    restore_checkpoint(resumed.strategy, folder / "parts");
    CHECK(third->steps(resumed.strategy) == 2);
    resumed.steps(*third, 2, 4);
    CHECK(resumed.digest() == whole.digest());
    resumed.strategy.attest();
  }
}

TEST_CASE("a checkpoint of weights alone leaves the slices of state as they are") {
  const SharedFolder folder;
  const auto continued = [&](const ReductionOptions& options) {
    SlicedProgram program{options};
    const auto optimizer = make_adamw();
    program.steps(*optimizer, 0, 2);
    CheckpointManager checkpoints{program.strategy, {.folder = folder / "all", .weights_only = true}};
    checkpoints.save(2);
    checkpoints.finish();
    program.steps(*optimizer, 2, 3);
    CHECK(checkpoints.resume_latest()->step == 2);
    program.steps(*optimizer, 3, 4);
    return program.digest();
  };
  CHECK(continued(with_slices()) == continued({}));
}

TEST_CASE("a rank that cannot update its slices keeps nobody waiting") {
  if (ranks() == 1) return;
  for (const Way way : {Way::ready_gradients, Way::computation}) {
    SlicedProgram parts{with_slices()};
    FailingInSlices failing;
    const auto own = parts.gradients(0, rank());
    const auto step = [&] {
      parts.strategy.run([&](ReplicaContext& context) { SlicedProgram::apply(failing, context, own, way); });
    };
    if (odd_one()) {
      CHECK(message_of<std::runtime_error>(step) == "on purpose");
    } else {
      CHECK_THAT(message_of<PeerError>(step), Catch::EndsWith("on purpose"));
    }
    expect_in_step();
  }
}

TEST_CASE("ranks with other slots in slices write no checkpoint") {
  if (ranks() == 1) return;
  const SharedFolder folder;
  SlicedProgram parts{with_slices()};
  const NamedSlot own{odd_one() ? "odd" : "even"};
  own.prepare(parts.strategy, parts.updated());
  CHECK_THAT(message_of<MismatchError>([&] { save_checkpoint(parts.strategy, folder / "parts"); }),
             Catch::Contains("slots in slices: a@odd") && Catch::Contains("slots in slices: a@even"));
}

TEST_CASE("what cannot work in slices is refused") {
  const auto sum = [](std::span<const TensorView>, const TensorView&, Stream&) {};
  CHECK_THAT(
      message_of<InvalidArgument>([&] {
        (void)runtime().make_strategy(with_slices({.kind = ReductionOptions::Kind::to_one_rank, .accumulate = sum}));
      }),
      Catch::Contains("an optimizer in slices, with a function that accumulates"));
  if (ranks() == 1) return;
  SlicedProgram parts{with_slices()};
  Nameless nameless;
  const auto own = parts.gradients(0, rank());
  const std::string expected =
      "the strategy shares the work of optimizers in slices (shard_optimizer), and this optimizer does not say that it "
      "updates element by element (updates_by_element)";
  CHECK_THAT(message_of<InvalidArgument>([&] { nameless.prepare(parts.strategy, parts.updated()); }),
             Catch::EndsWith(expected));
  parts.strategy.run([&](ReplicaContext& context) {
    CHECK_THAT(message_of<InvalidArgument>([&] { nameless.apply_gradients(context, own); }), Catch::EndsWith(expected));
  });
  expect_in_step();
}
