// Where variables lie: flat memory, laid out at each seal.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/comm/backends.hpp"
#include "core/control/meeting_point.hpp"
#include "core/device/device.hpp"
#include "support/forwarding_stream.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/external_values.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;

namespace {

/// Elements of f32 between one variable and the next where both are small.
constexpr std::int64_t granule = VariableStore::alignment_bytes / sizeof(float);

struct StoreFixture {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  VariableStore& store = strategy.store();

  MirroredVariable make(const std::string& name, std::int64_t count, bool trainable = true, DType dtype = DType::f32) {
    return strategy.create_variable({.name = name, .trainable = trainable}, [&] {
      const Tensor tensor = Tensor::zeros(dtype, {count});
      if (dtype == DType::f32) std::ranges::fill(tensor.view().elements<float>(), 1.f);
      return tensor;
    });
  }
};

/// With no memory to give while `full`.
class FullStream final : public test::ForwardingStream {
 public:
  bool full = true;

  Buffer allocate(std::size_t bytes) override {
    if (full) throw DeviceError{"out of memory"};
    return ForwardingStream::allocate(bytes);
  }
};

std::int64_t distance(const TensorView& from, const TensorView& to) {
  return (to.data() - from.data()) / static_cast<std::int64_t>(sizeof(float));
}

std::vector<VariableStore::FlatRange> ranges(const StoreFixture& f, std::vector<Variable> variables) {
  return f.store.ranges(variables);
}

std::vector<std::int64_t> lengths(const std::vector<VariableStore::FlatRange>& ranges) {
  std::vector<std::int64_t> counts;
  for (const VariableStore::FlatRange& range : ranges) counts.push_back(range.values.count());
  return counts;
}

bool all_zero(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return value == 0; });
}

}  // namespace

TEST_CASE("variables lie in reverse order of creation, each view aligned") {
  StoreFixture f;
  const MirroredVariable a = f.make("a", 3), b = f.make("b", granule), c = f.make("c", granule + 1), d = f.make("d", 1);
  f.strategy.seal();
  CHECK(distance(d.local(), c.local()) == granule);
  CHECK(distance(c.local(), b.local()) == 2 * granule);
  CHECK(distance(b.local(), a.local()) == granule);
  for (const MirroredVariable& variable : {a, b, c, d}) {
    CHECK(reinterpret_cast<std::uintptr_t>(variable.local().data()) % VariableStore::alignment_bytes == 0);
    CHECK(variable.local().shape() == variable.shape());
  }
}

TEST_CASE("alignment is in bytes, whatever the type") {
  StoreFixture f;
  for (const DType dtype : {DType::f64, DType::u8, DType::i64, DType::bf16}) {
    const MirroredVariable first = f.make("first", 3, true, dtype), second = f.make("second", 3, true, dtype);
    f.strategy.seal();
    CHECK(first.local().data() - second.local().data() == VariableStore::alignment_bytes);
    CHECK(f.store.gradient(first).dtype() == dtype);
  }
}

TEST_CASE("padding is zero in values and gradients") {
  StoreFixture f;
  const MirroredVariable a = f.make("a", 3), b = f.make("b", 5);
  f.strategy.seal();
  const auto range = ranges(f, {a, b});
  REQUIRE(range.size() == 1);
  const auto values = range[0].values.elements<float>();
  CHECK(values.size() == static_cast<std::size_t>(2 * granule));
  CHECK(std::ranges::count(values, 1.f) == 8);
  CHECK(all_zero(values.subspan(5, granule - 5)));
  CHECK(all_zero(values.subspan(granule + 3)));
  CHECK(all_zero(range[0].gradients.elements<float>()));
  CHECK(all_zero(range[0].slot("momentum").elements<float>()));
}

TEST_CASE("a variable, its gradient and its slots are at one offset") {
  StoreFixture f;
  const MirroredVariable a = f.make("a", 3), b = f.make("b", 5), c = f.make("c", 70);
  f.strategy.seal();
  const auto all = ranges(f, {a, b, c});
  REQUIRE(all.size() == 1);
  for (const MirroredVariable& variable : {a, b, c}) {
    const std::int64_t offset = distance(all[0].values, variable.local());
    CHECK(distance(all[0].gradients, f.store.gradient(variable)) == offset);
    CHECK(f.store.gradient(variable).shape() == variable.shape());
    const auto own = ranges(f, {variable});
    REQUIRE(own.size() == 1);
    CHECK(own[0].first == offset);
    CHECK(distance(all[0].slot("momentum"), own[0].slot("momentum")) == offset);
    CHECK(own[0].slot("momentum").count() == own[0].values.count());
  }
}

TEST_CASE("a slot keeps what is written to it; another name is another slot") {
  StoreFixture f;
  const MirroredVariable a = f.make("a", 3);
  f.strategy.seal();
  const auto range = ranges(f, {a});
  range[0].slot("momentum").elements<float>()[2] = 5;
  CHECK(ranges(f, {a})[0].slot("momentum").elements<float>()[2] == 5);
  CHECK(range[0].slot("variance").elements<float>()[2] == 0);
  CHECK(a.local().elements<float>()[2] == 1);
}

TEST_CASE("ranges merge neighbours and are split by what lies between them") {
  StoreFixture f;
  const MirroredVariable a = f.make("a", 1), b = f.make("b", 2), c = f.make("c", 3), d = f.make("d", granule + 1);
  f.strategy.seal();  // in memory: d d c b a
  CHECK(lengths(ranges(f, {a, b, c, d})) == std::vector<std::int64_t>{5 * granule});
  CHECK(lengths(ranges(f, {c, a, d, b})) == std::vector<std::int64_t>{5 * granule});  // in whatever order
  CHECK(lengths(ranges(f, {b})) == std::vector<std::int64_t>{granule});
  CHECK(lengths(ranges(f, {a, c, d})) == std::vector<std::int64_t>{3 * granule, granule});
  CHECK(lengths(ranges(f, {b, d})) == std::vector<std::int64_t>{2 * granule, granule});
  CHECK(ranges(f, {}).empty());
  const auto split = ranges(f, {a, c});
  CHECK(split[0].values.data() == c.local().data());
  CHECK(split[1].values.data() == a.local().data());
  CHECK(split[1].gradients.data() == f.store.gradient(a).data());
}

TEST_CASE("variables without elements neither take memory nor split a range") {
  StoreFixture f;
  const MirroredVariable a = f.make("a", 1), none = f.make("none", 0), b = f.make("b", 2), also = f.make("also", 0),
                         c = f.make("c", 3);
  f.strategy.seal();
  CHECK(distance(b.local(), a.local()) == granule);
  CHECK(none.local().count() == 0);
  for (const auto& order : {std::vector<Variable>{a, none, b, also, c}, {also, none, a, b, c}, {c, b, a, none, also}})
    CHECK(lengths(ranges(f, order)) == std::vector<std::int64_t>{3 * granule});
  CHECK(lengths(ranges(f, {none})) == std::vector<std::int64_t>{0});
}

TEST_CASE("types, and what is trainable, are kept apart") {
  StoreFixture f;
  const MirroredVariable w = f.make("w", 2), frozen = f.make("frozen", 2, false),
                         count = f.make("count", 2, false, DType::i64), v = f.make("v", 2),
                         exact = f.make("exact", 2, true, DType::f64);
  f.strategy.seal();
  CHECK(lengths(ranges(f, {w, v})) == std::vector<std::int64_t>{2 * granule});  // neighbours though others lay between
  CHECK(ranges(f, {w, frozen, count, exact}).size() == 4);
  CHECK(inside(f.store).mirrored_values().size() == 4);
  CHECK(ranges(f, {frozen})[0].gradients.count() == 0);
  CHECK_THROWS_AS(f.store.gradient(frozen), InvalidArgument);
  CHECK_THROWS_WITH(f.store.gradient(frozen), "variable 'frozen' is not trainable");
  CHECK(f.store.gradient(exact).dtype() == DType::f64);
}

TEST_CASE("before it is sealed a variable is known but has no memory", "[C-44]") {
  StoreFixture f;
  const MirroredVariable w = f.strategy.create_variable({.name = "w", .trainable = false}, [] {
    return Tensor::zeros(DType::i64, {2, 3});
  });
  const MirroredVariable v = f.make("v", 1);
  CHECK(w.name() == "w");
  CHECK(w.shape() == Shape{2, 3});
  CHECK(w.dtype() == DType::i64);
  CHECK_FALSE(w.trainable());
  CHECK(v.trainable());
  CHECK(inside(f.store).has_unsealed());
  CHECK_FALSE(w.is_initialized());
  CHECK_FALSE(v.is_initialized());
  const std::string none_yet =
      "variable 'v' has no memory yet: call seal() after the last variable is created, or run() first";
  const auto refused = Catch::Predicate<std::string>(
      [&](const std::string& told) {
        return told.starts_with("strategy_store.cpp:") && told.ends_with(": " + none_yet);
      },
      "strategy_store.cpp:…: " + none_yet);
  CHECK_THROWS_AS(v.local(), ContextError);
  CHECK_THROWS_WITH(v.local(), refused);
  CHECK_THROWS_WITH(f.store.gradient(v), refused);
  CHECK_THROWS_WITH(ranges(f, {v}), refused);
  CHECK_THROWS_WITH(v.assign(Tensor::from({1.f}, {1})), refused);
  CHECK_THROWS_WITH(StrategyExtended{f.strategy}.read_var(v), refused);
  CHECK(inside(f.store).mirrored_values().empty());
  f.strategy.rebroadcast();  // nothing to broadcast yet
  f.strategy.seal();
  CHECK_FALSE(inside(f.store).has_unsealed());
  CHECK(w.is_initialized());
  CHECK(v.is_initialized());
  CHECK_FALSE(f.make("later", 1).is_initialized());
  CHECK(w.local().shape() == Shape{2, 3});
}

TEST_CASE("a variable has the initial value as it was when it was created") {
  StoreFixture f;
  const Tensor source = Tensor::from({1.f, 2.f, 3.f, 4.f}, {2, 2});
  const MirroredVariable w = f.strategy.create_variable({.name = "w"}, [&] { return source; });
  source.view().elements<float>()[0] = 100;
  f.strategy.seal();
  CHECK(w.local().to_vector<float>() == std::vector<float>{1, 2, 3, 4});
  const Tensor copy = StrategyExtended{f.strategy}.read_var(w);
  w.local().elements<float>()[0] = 9;
  CHECK(copy.to_vector<float>() == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("the first outermost run after a creation seals, and no other") {
  StoreFixture f;
  const MirroredVariable first = f.make("first", 1);
  const auto before = f.group->meeting().meetings();
  f.strategy.run([&](ReplicaContext&) { CHECK(first.local().count() == 1); });
  CHECK(f.group->meeting().meetings() - before == 3);  // two of the seal, and the end of the run
  f.strategy.run([](ReplicaContext&) {});
  CHECK(f.group->meeting().meetings() - before == 4);

  std::optional<MirroredVariable> second;
  f.strategy.run([&](ReplicaContext& context) {
    second = f.make("second", 1);
    CHECK_THROWS_AS(second->local(), ContextError);
    context.merge_call([&](Strategy& strategy) { strategy.run([](ReplicaContext&) {}); });
    CHECK_THROWS_AS(second->local(), ContextError);  // a nested run lays nothing out
  });
  f.strategy.run([&](ReplicaContext&) { CHECK(second->local().count() == 1); });
}

TEST_CASE("a seal lays out what is new and leaves what is sealed where it is") {
  StoreFixture f;
  const MirroredVariable first = f.make("first", 1);
  f.strategy.seal();
  first.local().elements<float>()[0] = 42;
  const std::byte* const home = first.local().data();
  const MirroredVariable second = f.make("second", 1);
  f.strategy.seal();
  f.strategy.seal();  // nothing new
  CHECK(first.local().data() == home);
  CHECK(first.local().elements<float>()[0] == 42);
  CHECK(second.local().elements<float>()[0] == 1);
  CHECK(inside(f.store).mirrored_values().size() == 2);
  CHECK(lengths(ranges(f, {second, first})) == std::vector<std::int64_t>{granule, granule});
  CHECK(ranges(f, {second, first})[0].values.data() == home);  // older memory first
  REQUIRE(inside(f.store).variables().size() == 2);
  CHECK(inside(f.store).variables()[0]->name == "first");
}

TEST_CASE("a handle keeps its variable's memory") {
  std::optional<MirroredVariable> kept;
  {
    StoreFixture f;
    kept = f.make("kept", 2);
    f.strategy.seal();
  }
  CHECK(kept->local().to_vector<float>() == std::vector<float>{1, 1});
  CHECK(kept->name() == "kept");
}

TEST_CASE("variables for which there is no memory stay unsealed, with their initial values") {
  const std::unique_ptr<ReplicaGroup> group = make_local_group();
  auto owned = std::make_unique<FullStream>();
  FullStream& stream = *owned;
  group->add_device_plane(std::move(owned), make_local_communicator());
  Strategy strategy = strategy_on(*group);
  const MirroredVariable variable = strategy.create_variable({.name = "v"}, [] {
    return Tensor::from<float>({1, 2}, {2});
  });
  CHECK_THROWS_WITH(strategy.seal(), Catch::Contains("out of memory"));
  CHECK_THROWS_AS(variable.local(), ContextError);
  stream.full = false;
  strategy.seal();
  CHECK(variable.local().to_vector<float>() == std::vector<float>{1, 2});
}

namespace {

std::vector<float> rounded(const Variable& variable) {
  const auto numbers = variable.for_reading(DType::bf16).to_vector<BFloat16>();
  return {numbers.begin(), numbers.end()};
}

}  // namespace

TEST_CASE("a variable is read in bf16 from a copy, which follows whoever may write it") {
  StoreFixture f;
  const MirroredVariable first = f.make("first", 2), v = f.make("v", 2);
  CHECK_THROWS_AS(v.for_reading(DType::bf16), ContextError);
  f.strategy.seal();
  CHECK(v.for_reading(DType::f32).data() == v.local().data());
  CHECK(rounded(v) == std::vector<float>{1, 1});
  const TensorView copy = v.for_reading(DType::bf16);
  CHECK(copy.shape() == v.shape());
  CHECK(v.for_reading(DType::bf16).data() == copy.data());
  CHECK(copy.data() - first.for_reading(DType::bf16).data() ==
        (v.local().data() - first.local().data()) / 2);  // in the layout of the values

  SECTION("local") {
    v.local().elements<float>()[0] = 1.00390625f * 3;  // not a bf16
    CHECK(rounded(v)[0] == static_cast<float>(BFloat16{1.00390625f * 3}));
  }
  SECTION("assignments") {
    v.assign(Tensor::from<float>({2, 3}, {2}));
    CHECK(rounded(v) == std::vector<float>{2, 3});
    v.assign_add(Tensor::from<float>({1, 1}, {2}));
    CHECK(rounded(v) == std::vector<float>{3, 4});
    StrategyExtended{f.strategy}.update(v, [](const Variable& own) {
      own.assign_sub(Tensor::from<float>({1, 1}, {2}));
    });
    CHECK(rounded(v) == std::vector<float>{2, 3});
  }
  SECTION("a broadcast of all values") {
    const std::span<float> kept = v.local().elements<float>();
    CHECK(rounded(v) == std::vector<float>{1, 1});
    kept[1] = 5;
    f.strategy.rebroadcast();
    CHECK(rounded(v) == std::vector<float>{1, 5});
  }
  SECTION("a later seal") {
    const MirroredVariable later = f.make("later", 3);
    f.strategy.seal();
    CHECK(rounded(later) == std::vector<float>{1, 1, 1});
    CHECK(rounded(v) == std::vector<float>{1, 1});
  }
  SECTION("a range that somebody has written") {
    const VariableStore::FlatRange range = ranges(f, {v}).front();
    std::ranges::fill(range.values.elements<float>(), 7.f);
    range.values_changed();
    CHECK(rounded(v) == std::vector<float>{7, 7});
    CHECK(rounded(first) == std::vector<float>{1, 1});
  }
}

TEST_CASE(
    "whoever keeps values elsewhere is asked around each use of values and optimizer state, as long as it lives") {
  struct Elsewhere : detail::ExternalValues {
    std::string calls;
    double value = 0;
    void bring_values_home() override { calls += "v"; }
    void bring_state_home() override { calls += "s"; }
    std::vector<detail::OptimizerState> state() override {
      return {{"theirs", TensorView{reinterpret_cast<std::byte*>(&value), {}, DType::f64}}};
    }
    void take_over() override { calls += "t"; }
  };
  StoreFixture f;
  const MirroredVariable v = f.make("v", 1);
  f.strategy.seal();
  auto external = std::make_shared<Elsewhere>();
  inside(f.store).add_external_values(external);
  const auto calls_of = [&](const auto& use) {
    external->calls.clear();
    use();
    return external->calls;
  };
  CHECK(calls_of([&] { (void)v.local(); }) == "v");
  CHECK(calls_of([&] { (void)v.for_reading(DType::f32); }).empty());
  CHECK(calls_of([&] { f.strategy.attest(); }) == "vs");
  CHECK(calls_of([&] { f.strategy.rebroadcast(); }) == "vst");
  CHECK(inside(f.store).optimizer_state().front().name == "theirs");
  CHECK(inside(f.store).optimizer_values().size() == 1);
  external.reset();
  CHECK(inside(f.store).optimizer_state().empty());
  CHECK_NOTHROW(f.strategy.attest());
}

TEST_CASE("only f32 is read in bf16") {
  StoreFixture f;
  const MirroredVariable wide = f.make("wide", 1, true, DType::f64), v = f.make("v", 1);
  f.strategy.seal();
  CHECK_THROWS_WITH(wide.for_reading(DType::bf16), Catch::Contains("f64[32]") && Catch::Contains("expected f32"));
  CHECK_THROWS_WITH(v.for_reading(DType::f64), Catch::Contains("variable 'v' is f32; it cannot be read as f64"));
  CHECK(wide.for_reading(DType::f64).data() == wide.local().data());
}
