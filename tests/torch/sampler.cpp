// The samples of a step, alone and in torch's data loaders.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <map>
#include <sstream>
#include <vector>

#include <torch/data.h>
#include <torch/serialize.h>

#include <lockstep/core/order/range.hpp>
#include <lockstep/torch/sampler.hpp>

#include "core/order/sample_order.hpp"
#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Rows = std::vector<std::int64_t>;

/// What all ranks draw in one step, in their order. Every rank calls it.
Rows drawn(Strategy& strategy, const c10::optional<std::vector<std::size_t>>& own, std::int64_t count) {
  // A rank writes 1 + a sample at its place behind those of lower ranks.
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks()));
  sizes[static_cast<std::size_t>(rank())] = own ? static_cast<std::int64_t>(own->size()) : 0;
  const auto sum = [&](const Rows& values) {
    return strategy.reduce(ReduceOp::sum, PerReplica{Tensor::from(values, {std::ssize(values)})})
        .to_vector<std::int64_t>();
  };
  sizes = sum(sizes);
  Rows all(static_cast<std::size_t>(count));
  std::size_t at = 0;
  for (int r = 0; r < rank(); ++r) at += static_cast<std::size_t>(sizes[static_cast<std::size_t>(r)]);
  if (own)
    for (const std::size_t row : *own) all[at++] = static_cast<std::int64_t>(row) + 1;
  all = sum(all);
  Rows rows;
  for (const std::int64_t each : all)
    if (each > 0) rows.push_back(each - 1);
  return rows;
}

Rows part_of(const Rows& order, std::size_t first, std::size_t last) {
  return {order.begin() + static_cast<std::ptrdiff_t>(first), order.begin() + static_cast<std::ptrdiff_t>(last)};
}

/// Whose samples are their own numbers.
struct Numbers : torch::data::datasets::BatchDataset<Numbers, std::vector<std::size_t>> {
  std::vector<std::size_t> get_batch(c10::ArrayRef<std::size_t> rows) override { return rows.vec(); }
  c10::optional<std::size_t> size() const override { return 28; }
};

}  // namespace

TEST_CASE("a Sampler cuts each epoch's order into global batches, and these among the ranks") {
  Strategy strategy = runtime().make_strategy();
  libtorch::Sampler sampler{strategy, 13, {.seed = 5}};
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    sampler.reset();
    const Rows order = sample_order(13, 5, epoch);
    CHECK(sampler.epoch() == epoch);
    CHECK(drawn(strategy, sampler.next(5), 5) == part_of(order, 0, 5));
    const auto second = sampler.next(5);
    REQUIRE(second);
    CHECK(static_cast<std::int64_t>(second->size()) == Range::of_shard(5, ranks(), rank()).size());
    CHECK(drawn(strategy, second, 5) == part_of(order, 5, 10));
    CHECK(drawn(strategy, sampler.next(5), 5) == part_of(order, 10, 13));  // on 4 ranks one has none
    CHECK_FALSE(sampler.next(5));
  }
  libtorch::Sampler ordered{strategy, 7, {.drop_last = true}};
  CHECK(drawn(strategy, ordered.next(4), 4) == Rows{0, 1, 2, 3});
  CHECK_FALSE(ordered.next(4));
  libtorch::Sampler few{strategy, 3};
  CHECK(drawn(strategy, few.next(100), 100) == Rows{0, 1, 2});
  CHECK_FALSE(few.next(100));
  CHECK_FALSE(libtorch::Sampler{strategy, 0}.next(4));
}

TEST_CASE("a Sampler goes on where options or an archive say") {
  Strategy strategy = runtime().make_strategy();
  const Rows order = sample_order(13, 5, 3);
  libtorch::Sampler sampler{strategy, 13, {.seed = 5, .epoch = 3, .step = 1}};
  std::stringstream file;
  {
    torch::serialize::OutputArchive archive;
    sampler.save(archive);
    archive.save_to(file);
  }
  sampler.reset();  // as a loader does before its first step
  CHECK(drawn(strategy, sampler.next(4), 4) == part_of(order, 4, 8));
  libtorch::Sampler restored{strategy, 13, {.seed = 5}};
  (void)restored.next(4);
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  restored.load(archive);
  CHECK(drawn(strategy, restored.next(4), 4) == part_of(order, 4, 8));
  CHECK(restored.step() == 2);
  restored.reset(20);
  CHECK(drawn(strategy, restored.next(20), 20) == sample_order(20, 5, 4));
}

TEST_CASE("a loader of torch draws by a Sampler, one epoch after the other") {
  Strategy strategy = runtime().make_strategy();
  // Loaders refuse an empty part, and the last batch of 28 has a sample for each of 8 ranks.
  const auto loader = torch::data::make_data_loader(Numbers{}, libtorch::Sampler{strategy, 28, {.seed = 2}},
                                                    torch::data::DataLoaderOptions(10).workers(0));
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    Rows all;
    for (const std::vector<std::size_t>& own : *loader)
      for (const std::int64_t row : drawn(strategy, own, 10)) all.push_back(row);
    CHECK(all == sample_order(28, 2, epoch));
  }
}

TEST_CASE("a Sampler refuses numbers below 0, and batches of none") {
  Strategy strategy = runtime().make_strategy();
  CHECK(message_of<InvalidArgument>([&] {
          libtorch::Sampler{strategy, -1};
        }) == "a Sampler of -1 samples at step 0 of epoch 0; expected 0 or more of each");
  libtorch::Sampler sampler{strategy, 3};
  CHECK(message_of<InvalidArgument>([&] { (void)sampler.next(0); }) ==
        "a global batch of 0 samples; expected 1 or more");
}
