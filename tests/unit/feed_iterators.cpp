// Iterators of a program on one replica, and what they refuse.
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/tf/feed/distribute.hpp>

#include "core/order/work_ahead.hpp"
#include "support/child_process.hpp"
#include "tf/feed/batch_outline.hpp"

using namespace lockstep;

namespace {

/// Images and labels, and how many there are without counting them.
struct Samples {
  Tensor images;
  Tensor labels;
  std::string origin;
};

/// Members that begin with something.
struct Defaults {
  std::map<int, Tensor> columns = {{1, Tensor::zeros(DType::f32, {3})}};
  std::vector<float> values = {1};
  double weight = 2;
};

using Columns = std::map<std::string, Tensor>;

Tensor floats(std::vector<float> values, Shape shape) {
  return Tensor::from(values, std::move(shape));
}
Tensor ints(std::vector<std::int32_t> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {count});
}

}  // namespace

template <>
struct lockstep::Nest<Samples> {
  static constexpr auto members = std::tuple{&Samples::images, &Samples::labels};
};

template <>
struct lockstep::Nest<Defaults> {
  static constexpr auto members = std::tuple{&Defaults::columns, &Defaults::values, &Defaults::weight};
};

TEST_CASE("a batch without samples has nothing of what its struct begins with") {
  const Defaults batch{.columns = {{5, floats({1, 2}, {1, 2})}}, .values = {4, 5}, .weight = 3};
  const detail::Description& type = detail::description_of<Defaults>();
  Defaults made;
  detail::take_outline(type, &made, detail::outline_of(type, &batch), Stream::host());
  REQUIRE(made.columns.size() == 1);
  CHECK(made.columns.at(5).shape() == Shape{0, 2});
  CHECK(made.values.empty());
  CHECK(made.weight == 0);
}

TEST_CASE("an outline keeps what a batch is made of, and nothing of its samples") {
  enum class Part { left, right };
  using Batch = std::tuple<std::optional<Tensor>, std::optional<Tensor>, std::map<int, std::vector<Tensor>>,
                           std::map<Part, double>, std::vector<std::vector<int>>, std::string, Samples>;
  const Batch batch{
      floats({1, 2}, {2, 1}), std::nullopt, {{-3, {ints({1}), floats({}, {0, 4})}}, {5, {}}}, {{Part::right, 2.5}},
      {{1}, {2, 3}},          "text",       {floats({1, 2, 3}, {1, 3}), ints({9}), "a file"}};
  const detail::Description& type = detail::description_of<Batch>();
  Batch made;
  detail::take_outline(type, &made, detail::outline_of(type, &batch), Stream::host());
  const auto text = [](const Tensor& tensor) { return describe(tensor.view()); };
  REQUIRE(std::get<0>(made));
  CHECK(text(*std::get<0>(made)) == "f32[0, 1]");
  CHECK_FALSE(std::get<1>(made));
  const auto& lists = std::get<2>(made);
  REQUIRE(lists.size() == 2);
  REQUIRE(lists.at(-3).size() == 2);
  CHECK(text(lists.at(-3)[0]) == "i32[0]");
  CHECK(text(lists.at(-3)[1]) == "f32[0, 4]");
  CHECK(lists.at(5).empty());
  CHECK(std::get<3>(made) == std::map<Part, double>{{Part::right, 0}});
  CHECK(std::get<4>(made).empty());
  CHECK(std::get<5>(made).empty());
  CHECK(text(std::get<6>(made).images) == "f32[0, 3]");
  CHECK(text(std::get<6>(made).labels) == "i32[0]");
  CHECK(std::get<6>(made).origin.empty());
}

TEST_CASE("an outline of another type is refused before it is read") {
  const std::vector<Tensor> batch{ints({1})};
  const auto outline = detail::outline_of(detail::description_of<std::vector<Tensor>>(), &batch);
  Tensor made;
  CHECK_THROWS_AS(detail::take_outline(detail::description_of<Tensor>(), &made, outline, Stream::host()),
                  MismatchError);
}

TEST_CASE("arrays on the default strategy are batches in the size that was given", "[K-14]") {
  Strategy& strategy = Strategy::current();
  CHECK(strategy.num_replicas_in_sync() == 1);
  auto iterator = make_dataset_iterator(strategy, floats({0, 1, 2, 3, 4}, {5}),
                                        {.global_batch_size = 2, .num_epochs = 2, .shuffle_seed = std::nullopt});
  std::vector<std::vector<float>> batches;
  while (const auto batch = iterator.next()) batches.push_back(batch->local().to_vector<float>());
  CHECK(batches == std::vector<std::vector<float>>{{0, 1}, {2, 3}, {4, 0}, {1, 2}, {3, 4}});
}

TEST_CASE("on the default strategy a dataset comes as it is, and an input function's pipeline is the only one",
          "[F-30]") {
  Strategy& strategy = Strategy::current();
  auto dataset = make_dataset_iterator<Tensor>(strategy,
                                               [] {
                                                 return [next = 0]() mutable -> std::optional<Tensor> {
                                                   if (next == 2) return std::nullopt;
                                                   const float first = static_cast<float>(next++);
                                                   return floats({first, first + 1}, {2, 1});
                                                 };
                                               },
                                               {.global_batch_size = 2});
  for (int time = 0; time < 2; ++time) {
    for (const float first : {0.f, 1.f}) {
      const auto batch = dataset.next();
      REQUIRE(batch);
      CHECK(batch->local().shape() == Shape{2, 1});
      CHECK(batch->local().to_vector<float>() == std::vector<float>{first, first + 1});
    }
    CHECK_FALSE(dataset.next());
    dataset.initialize();
  }
  int calls = 0;
  (void)make_input_fn_iterator<int>(strategy, [&](const InputContext& context) {
    ++calls;
    CHECK(context.num_input_pipelines() == 1);
    CHECK(context.input_pipeline_id() == 0);
    CHECK(context.num_replicas_in_sync() == 1);
    return [] { return std::optional<int>{}; };
  });
  CHECK(calls == 1);
}

TEST_CASE("one global batch may be all there is, of whatever size it is called") {
  auto iterator = make_dataset_iterator(
      Strategy::current(), floats({0, 1, 2}, {3}),
      {.global_batch_size = std::numeric_limits<std::int64_t>::max(), .num_epochs = 2, .shuffle_seed = std::nullopt});
  CHECK(iterator.next()->local().to_vector<float>() == std::vector<float>{0, 1, 2, 0, 1, 2});
  CHECK_FALSE(iterator.next());
}

TEST_CASE("arrays may be a struct or a map, and what a struct's nest does not name goes along") {
  Strategy& strategy = Strategy::current();
  auto samples = make_dataset_iterator(strategy, Samples{floats({0, 1, 10, 11}, {2, 2}), ints({7, 8}), "a file"},
                                       {.global_batch_size = 1, .shuffle_seed = std::nullopt});
  (void)samples.next();
  const Samples second = samples.next()->local();
  CHECK(second.images.shape() == Shape{1, 2});
  CHECK(second.images.to_vector<float>() == std::vector<float>{10, 11});
  CHECK(second.labels.to_vector<std::int32_t>() == std::vector<std::int32_t>{8});
  CHECK(second.origin == "a file");

  auto columns = make_dataset_iterator(strategy, Columns{{"x", ints({1, 2})}, {"empty", floats({}, {2, 0})}},
                                       {.global_batch_size = 2, .shuffle_seed = std::nullopt});
  const Columns batch = columns.next()->local();
  CHECK(batch.at("x").to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 2});
  CHECK(batch.at("empty").shape() == Shape{2, 0});
}

TEST_CASE("a batch has memory of its own, and the arrays stay as they are") {
  const Tensor array = floats({1, 2}, {2});
  auto iterator =
      make_dataset_iterator(Strategy::current(), array, {.global_batch_size = 2, .shuffle_seed = std::nullopt});
  const Tensor batch = iterator.next()->local();
  batch.view().elements<float>()[0] = 9;
  CHECK(array.to_vector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("elements that are no batches are refused", "[F-9]") {
  Strategy& strategy = Strategy::current();
  const auto refused = [&](auto element) {
    using Element = decltype(element);
    try {
      auto iterator = make_dataset_iterator<Element>(strategy, [=] { return [=] { return std::optional{element}; }; },
                                                     {.global_batch_size = 2});
      (void)iterator.next();
    } catch (const InvalidArgument& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  const auto scalar = "is no batch: expected tensors of at least one dimension, which is that of the rows";
  CHECK(refused(Tensor::scalar(1.f)) == std::string{"f32[] "} + scalar);
  CHECK(refused(2.0) == std::string{"f64[] "} + scalar);
  CHECK(refused(IndexedSlices{}) == "slices are no batch: expected tensors");
  CHECK(refused(std::pair{ints({1, 2}), ints({1})}) == "i32[2] and i32[1] have not equally many rows");
  CHECK(refused(std::vector<Tensor>{}) == "a batch without tensors; expected 1 or more");
}

TEST_CASE("a dataset must return a source of batches") {
  const auto make = [] {
    (void)make_dataset_iterator<Tensor>(Strategy::current(), [] { return detail::Source<Tensor>{}; },
                                        {.global_batch_size = 1});
  };
  CHECK_THROWS_AS(make(), InvalidArgument);
  CHECK_THROWS_WITH(make(), "dataset must return a source of batches");
}

TEST_CASE("arrays that cannot be cut into batches are refused", "[A-33]") {
  Strategy& strategy = Strategy::current();
  const auto make = [&](auto arrays, InputOptions::Arrays options) {
    (void)make_dataset_iterator(strategy, arrays, options);
  };
  CHECK_THROWS_WITH(make(std::pair{ints({1, 2}), ints({1})}, {.global_batch_size = 1}),
                    "i32[2] and i32[1] have not equally many rows");
  CHECK_THROWS_WITH(make(ints({}), {.global_batch_size = 1}), "arrays of 0 rows; expected 1 or more");
  CHECK_THROWS_WITH(make(ints({1}), {}), "`global_batch_size` is 0; expected 1 or more");
  CHECK_THROWS_WITH(make(ints({1}), {.global_batch_size = 1, .num_epochs = 0}),
                    Catch::StartsWith("`num_epochs` is 0; expected 1 to "));
}

TEST_CASE("a vector of tensors is columns, and its rows are stacked by who asks for it", "[F-26]") {
  const std::vector<Tensor> list{ints({1, 2}), ints({3, 4})};
  auto columns = make_dataset_iterator(Strategy::current(), list, {.global_batch_size = 2, .shuffle_seed = {}});
  CHECK(columns.next()->local().at(1).to_vector<std::int32_t>() == std::vector<std::int32_t>{3, 4});
  CHECK_FALSE(columns.next());
  auto rows =
      make_dataset_iterator(Strategy::current(), Tensor::stack(list), {.global_batch_size = 1, .shuffle_seed = {}});
  CHECK(rows.next()->local().to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 2});
  CHECK(rows.next()->local().shape() == Shape{1, 2});
}

TEST_CASE("one line warns of replicas that get no file", "[F-27]") {
  const auto log_of = [](int ranks, int files, InputOptions::AutoShard shard) {
    test::CapturedStderr captured;
    sim::run({.ranks = ranks}, [&](Strategy& strategy, int) {
      auto iterator = distribute_dataset<int>(
          strategy, std::vector<std::filesystem::path>(static_cast<std::size_t>(files), "file"),
          [](const auto&) { return [] { return std::optional<int>{}; }; }, {.auto_shard = shard});
      while (iterator.next()) continue;
      iterator.initialize();
    });
    return captured.text();
  };
  const auto warns = [](const std::string& text) { return Catch::EndsWith(" warning: " + text + "\n"); };
  CHECK_THAT(log_of(4, 3, InputOptions::AutoShard::by_file), warns("3 files for 4 replicas: replica 3 gets none"));
  CHECK_THAT(log_of(4, 1, InputOptions::AutoShard::automatic),
             warns("1 file for 4 replicas: replicas 1 to 3 get none"));
  for (const InputOptions::AutoShard shard : {InputOptions::AutoShard::off, InputOptions::AutoShard::by_element})
    CHECK(log_of(4, 3, shard).empty());
  CHECK(log_of(4, 4, InputOptions::AutoShard::by_file).empty());
  const std::string log = log_of(4, 3, InputOptions::AutoShard::by_file);
  CHECK(std::ranges::count(log, '\n') == 1);
}

TEST_CASE("a thread that draws ahead for the default strategy has that of its program, which is none", "[F-3]") {
  std::optional<bool> has_one;
  auto iterator = make_input_fn_iterator<int>(
      Strategy::current(),
      [&](const InputContext&) {
        return [&, next = 0]() mutable -> std::optional<int> {
          has_one = Strategy::has_current() || !Strategy::in_cross_replica_context();
          return next < 50 ? std::optional{next++} : std::nullopt;
        };
      },
      InputOptions{.prefetch_batches = 3});
  for (int i = 0; i < 50; ++i) CHECK(iterator.next()->local() == i);
  CHECK_FALSE(iterator.next());
  CHECK(has_one == false);
}

TEST_CASE("samples are made with the floating-point modes with which a process starts, on any thread") {
  for (const auto where : {WorkAhead::Where::on_thread, WorkAhead::Where::in_turn}) {
    WorkAhead ahead{[] { return WorkAhead::Made{std::make_shared<int>(std::fegetround()), true}; }, {.where = where}};
    std::fesetround(FE_UPWARD);
    const auto mode = ahead.next();
    std::fesetround(FE_TONEAREST);
    CHECK(*static_cast<int*>(mode.get()) == FE_TONEAREST);
  }
}

TEST_CASE("a source that never returns does not keep the end of its iterator waiting for ever", "[F-3]") {
  std::promise<void> begun, returns, ended;
  std::string log;
  {
    test::CapturedStderr captured;
    {
      const std::shared_ptr<void> work{nullptr, [&](void*) { ended.set_value(); }};
      WorkAhead ahead{[&, work, pieces = 0]() mutable {
                        if (++pieces == 2) {
                          begun.set_value();
                          returns.get_future().wait();
                        }
                        return WorkAhead::Made{std::make_shared<int>(pieces)};
                      },
                      {.patience = std::chrono::milliseconds{1}}};
      CHECK(*static_cast<int*>(ahead.next().get()) == 1);
      begun.get_future().wait();
    }
    log = captured.text();
  }
  CHECK_THAT(log, Catch::Contains("a source has not returned for 0.001 s after the end of its iterator"));
  // The thread owns what it still uses, and ends with it.
  returns.set_value();
  ended.get_future().wait();
}
