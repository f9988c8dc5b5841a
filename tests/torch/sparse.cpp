// Tables whose gradients are sparse. Inputs differ on every rank; sums are exact unless a test is about rounding.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <array>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/torch/sync_batch_norm.hpp>
#include <lockstep/training.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;
using libtorch::Loss;

namespace {

using torch::nn::EmbeddingBagOptions;
using torch::nn::EmbeddingOptions;

/// The gradient of `words(rows) * factor` names these rows.
struct Words : torch::nn::Module {
  explicit Words(const EmbeddingOptions& options = EmbeddingOptions{12, 2}.sparse(true)) {
    torch::manual_seed(1 + static_cast<std::uint64_t>(rank()));
    table = register_module("table", torch::nn::Embedding{options});
    to(at::kDouble);
  }
  at::Tensor forward(const std::vector<std::int64_t>& rows, double factor) {
    return (table(torch::tensor(rows, at::kLong)) * factor).sum();
  }
  at::Tensor gradient() { return table->weight.grad(); }
  torch::nn::Embedding table{nullptr};
};

/// A dense [12, 2] with those rows.
Values rows(const std::vector<std::pair<std::size_t, double>>& values) {
  Values all(24);
  for (const auto& [row, value] : values) all[2 * row] = all[2 * row + 1] = value;
  return all;
}

Values dense_values(const at::Tensor& gradient) {
  return values_of(gradient.is_sparse() ? gradient.to_dense() : gradient);
}

template <class Net>
void step_of(Strategy& strategy, Net& net, const Loss& loss) {
  strategy.run([&](ReplicaContext& context) { net.backward(context, loss); });
}

}  // namespace

TEST_CASE("a sparse gradient has the rows that any rank has looked up") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Words{}};
  torch::optim::SGD sgd{net.parameters(), 1.0};
  const at::Tensor before = net->table->weight.detach().clone();
  // Rank 0 has no samples, unless it is alone.
  const bool has = ranks() == 1 || rank() > 0;
  const auto own = static_cast<std::int64_t>(rank());
  step_of(strategy, net, has ? Loss::sum(net->forward({11, 1 + own, 1 + own}, 2), 4) : Loss{});
  const double with = std::max(1, last());
  std::vector<std::pair<std::size_t, double>> expected{{11, 2 * with}};
  for (std::size_t r = ranks() == 1 ? 0 : 1; r < static_cast<std::size_t>(ranks()); ++r) expected.push_back({1 + r, 4});
  for (auto& [row, value] : expected) value /= 4 * with;
  REQUIRE(net->gradient().is_sparse());
  CHECK(net->gradient().is_coalesced());
  CHECK(net->gradient()._nnz() == with + 1);
  CHECK(dense_values(net->gradient()) == rows(expected));
  sgd.step();
  CHECK(values_of(net->table->weight) == values_of(before - torch::tensor(rows(expected), at::kDouble).view({12, 2})));
  CHECK_NOTHROW(strategy.attest());

  net.zero_grad();
  step_of(strategy, net, Loss{});
  CHECK_FALSE(net->gradient().defined());
}

TEST_CASE("rows of one index are added up in the order of ranks") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Words{}};
  // Adding 1 to the first number changes nothing; adding two of them first would.
  const double first = 9007199254740992;
  step_of(strategy, net, Loss::sum(net->forward({3}, rank() == 0 ? first : 1), 1));
  CHECK(dense_values(net->gradient()) == rows({{3, first / ranks()}}));
}

TEST_CASE("sparse gradients accumulate, are added to earlier ones, and are forgotten") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Words{}};
  torch::optim::SGD sgd{net.parameters(), 1.0};
  const auto own = static_cast<std::int64_t>(rank() % 4);
  for (const char* const zeroed : {"never", "to none", "to zero"}) {
    CAPTURE(zeroed);
    net.zero_grad();
    net.accumulate(Loss::sum(net->forward({7, 7}, 1), 2));
    net.accumulate(Loss::sum(net->forward({7, 8}, 1), 2));
    if (zeroed == std::string{"to none"}) sgd.zero_grad();
    if (zeroed == std::string{"to zero"}) net->zero_grad(false);
    const bool kept = zeroed == std::string{"never"};
    step_of(strategy, net, Loss::sum(net->forward({7}, 4), 4));
    CHECK(dense_values(net->gradient()) == rows({{7, kept ? 7. / 8 : 1}, {8, kept ? 1. / 8 : 0}}));
    CHECK(net->gradient()._nnz() == (kept ? 2 : 1));
  }
  step_of(strategy, net, Loss::sum(net->forward({own, 7}, 2), 1));
  double twos = 0;
  for (int r = 0; r < ranks(); ++r) twos += r % 4 == 0 ? 2 : 0;
  CHECK(dense_values(net->gradient())[0] == twos / ranks());
  CHECK(dense_values(net->gradient())[14] == 3);
  CHECK(net->gradient().is_coalesced());

  // Rows that none of the samples has touched count for the mean all the same.
  net.zero_grad();
  net.accumulate(Loss::sum(net->forward({7}, 0), 2));
  step_of(strategy, net, Loss::sum(net->forward({7}, 4), 2));
  CHECK(dense_values(net->gradient())[14] == 1);

  net->table->weight.requires_grad_(false);
  net.zero_grad();
  step_of(strategy, net, Loss{});
  CHECK_FALSE(net->gradient().defined());
}

TEST_CASE("the norm of a sparse gradient is that of its rows") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Words{EmbeddingOptions{12, 2}.sparse(true)}};
  step_of(strategy, net, Loss::sum(net->forward({1, 2}, 4), 1));
  CHECK(net.clip_norm(4) == 8);
  CHECK(net->gradient()._nnz() == 2);
  CHECK(dense_values(net->gradient()) == rows({{1, 2}, {2, 2}}));
}

namespace {

struct TiedTable : torch::nn::Module {
  enum class How : std::uint8_t { registered, used };
  explicit TiedTable(How how) {
    words = register_module("words", torch::nn::Embedding{EmbeddingOptions{12, 2}.sparse(true)});
    if (how == How::registered) register_parameter("last", words->weight);
  }
  at::Tensor forward(std::int64_t row, bool through_both) {
    const at::Tensor sum = words(torch::tensor({row}, at::kLong)).sum();
    return through_both ? sum + torch::linear(torch::ones({1, 2}), words->weight).sum() : sum;
  }
  torch::nn::Embedding words{nullptr};
};

}  // namespace

TEST_CASE("a tied table is dense: from wrapping on, or from the step on in which a rank finds out") {
  Strategy strategy = runtime().make_strategy();
  auto registered = libtorch::DataParallel{strategy, TiedTable{TiedTable::How::registered}};
  step_of(strategy, registered, Loss::sum(registered->forward(3, false), 1));
  CHECK_FALSE(registered->words->weight.grad().is_sparse());
  CHECK(values_of(registered->words->weight.grad()) == rows({{3, 1}}));

  for (const bool in_shards : {false, true}) {
    auto net =
        libtorch::DataParallel{strategy, TiedTable{TiedTable::How::used}, {.name = in_shards ? "shards" : "batch"}};
    const auto step = [&](bool tied) {
      net.zero_grad();
      strategy.run([&](ReplicaContext& context) {
        const auto loss = [&](int shard) {
          return Loss::sum(net->forward(3, tied && (in_shards ? shard == 6 : odd_one())), 1);
        };
        in_shards ? net.backward_shards(context, 8, loss) : net.backward(context, loss(0));
      });
    };
    step(false);
    CHECK(net->words->weight.grad().is_sparse());
    for (int i = 0; i < 2; ++i) {
      step(true);
      CHECK_FALSE(net->words->weight.grad().is_sparse());
      const double samples = in_shards ? 8 : ranks();
      Values expected(24, 1 / samples);
      expected[6] = expected[7] = (samples + 1) / samples;
      const at::Tensor gradient = net->words->weight.grad();
      CHECK(gradient.allclose(torch::tensor(expected, at::kFloat).view({12, 2}), 1e-6));
    }
    step(false);
    CHECK_FALSE(net->words->weight.grad().is_sparse());
    CHECK_NOTHROW(strategy.attest());
  }
}

namespace {

/// Sums and means of rows, some behind a layer that is dense.
struct Bags : torch::nn::Module {
  enum class Norm : std::uint8_t { none, over_all_shards, over_the_batch };
  explicit Bags(Norm kind) {
    torch::manual_seed(5);
    words = register_module("words", torch::nn::Embedding{EmbeddingOptions{20, 3}.padding_idx(2).sparse(true)});
    sum = register_module(
        "sum", torch::nn::EmbeddingBag{EmbeddingBagOptions{20, 3}.mode(torch::kSum).sparse(true).padding_idx(1)});
    mean = register_module("mean", torch::nn::EmbeddingBag{EmbeddingBagOptions{20, 3}.mode(torch::kMean).sparse(true)});
    last = register_module("last", torch::nn::Linear{3, 1});
    if (kind == Norm::over_all_shards) shared_norm = register_module("norm", libtorch::SyncBatchNorm{3});
    if (kind == Norm::over_the_batch) norm = register_module("norm", torch::nn::BatchNorm1d{3});
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& bags, const at::Tensor& weights) {
    const at::Tensor offsets = torch::arange(bags.size(0)) * bags.size(1);
    at::Tensor x =
        torch::tanh(words(bags).sum(1) + sum->forward(bags, {}, weights) * mean->forward(bags.flatten(), offsets));
    if (shared_norm) x = shared_norm(x);
    if (norm) x = norm(x);
    return last(x);
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::EmbeddingBag sum{nullptr}, mean{nullptr};
  torch::nn::Linear last{nullptr};
  libtorch::SyncBatchNorm shared_norm{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

at::Tensor loss_of_bags(Bags& net, int step, const Range& samples) {
  torch::manual_seed(static_cast<std::uint64_t>(step));
  const at::Tensor bags = torch::randint(20, {16, 4}).narrow(0, samples.first, samples.size());
  const at::Tensor weights = torch::rand({16, 4}, at::kDouble).narrow(0, samples.first, samples.size());
  return net.forward(bags, weights).pow(2).sum();
}

/// What three steps end in.
std::string train_bags(Strategy& strategy, const std::shared_ptr<Bags>& module) {
  torch::set_num_threads(1);
  auto net = libtorch::DataParallel{strategy, module};
  torch::optim::Adagrad adagrad{net.parameters(), torch::optim::AdagradOptions{0.1}};
  std::string losses;
  for (int step = 0; step < 3; ++step)
    strategy.run([&](ReplicaContext& context) {
      adagrad.zero_grad();
      const auto loss = [&](int shard) {
        const Range samples = Range::of_shard(16, 8, shard);
        return Loss::sum(loss_of_bags(*net, step, samples), static_cast<double>(samples.size()));
      };
      losses += std::to_string(net.backward_shards(context, 8, loss).mean) + " ";
      CHECK(net->mean->weight.grad().is_sparse());
      adagrad.step();
    });
  return losses + to_hex(weights_digest(net.variables()));
}

}  // namespace

TEST_CASE("sparse steps in shards end in the same bytes on one rank and on this many, and where LibTorch ends alone") {
  for (const bool joint : {false, true}) {
    CAPTURE(joint);
    const auto make = [&] { return std::make_shared<Bags>(joint ? Bags::Norm::over_all_shards : Bags::Norm::none); };
    Strategy strategy = runtime().make_strategy();
    std::string alone;
    sim::run({.ranks = 1}, [&](Strategy& one, int) { alone = train_bags(one, make()); });
    const auto net = make();
    CHECK(train_bags(strategy, net) == alone);
    CHECK_NOTHROW(strategy.attest());

    Bags plain{joint ? Bags::Norm::over_the_batch : Bags::Norm::none};
    torch::optim::Adagrad adagrad{plain.parameters(), torch::optim::AdagradOptions{0.1}};
    for (int step = 0; step < 3; ++step) {
      adagrad.zero_grad();
      (loss_of_bags(plain, step, {0, 16}) / 16).backward();
      adagrad.step();
    }
    for (const auto& each : plain.named_parameters())
      CHECK(each.value().allclose(net->named_parameters()[each.key()], 0, 1e-9));
  }
}

TEST_CASE("a ReplicatedModule::Optimizer makes the steps of the dense gradient") {
  const auto train = [&](bool sparse, const auto& options) {
    Strategy strategy = runtime().make_strategy();
    auto net = libtorch::DataParallel{strategy, Words{EmbeddingOptions{12, 2}.sparse(sparse)}};
    libtorch::ReplicatedModule::Optimizer optimizer = net.optimizer(options);
    for (std::int64_t step = 0; step < 3; ++step)
      strategy.run([&](ReplicaContext& context) {
        optimizer.zero_grad();
        net.backward(context, Loss::sum(net->forward({rank() % 4, 4 + 2 * step}, 2), 1));
        CHECK(net->gradient().is_sparse() == sparse);
        optimizer.step(context);
      });
    CHECK_NOTHROW(strategy.attest());
    return values_of(net->table->weight);
  };
  const AdamW::Options adamw{.learning_rate = 0.1, .weight_decay = 0.01, .clip_norm = 0.5};
  CHECK(train(true, adamw) == train(false, adamw));
  const Sgd::Options sgd{.learning_rate = 0.1};
  CHECK(train(true, sgd) == train(false, sgd));
}

TEST_CASE("the rows of a table of 16 bits are rounded once") {
  Strategy strategy = runtime().make_strategy();
  Words words;
  words.to(at::kBFloat16);
  auto net = libtorch::DataParallel{strategy, words};
  // In bf16 256 + 1 is 256.
  step_of(strategy, net, Loss::sum(net->forward({3}, rank() == 0 ? 256 : 1), 1.0 / ranks()));
  CHECK(net->gradient().scalar_type() == at::kBFloat16);
  CHECK(dense_values(net->gradient())[6] == values_of(torch::tensor({255. + ranks()}).to(at::kBFloat16))[0]);
}

TEST_CASE("ranks that differ in what is sparse, and a max_norm on several ranks, are refused by name") {
  Strategy strategy = runtime().make_strategy();
  const bool other = ranks() > 1 && odd_one();
  const auto wrap = [&](const EmbeddingOptions& options) { return libtorch::DataParallel{strategy, Words{options}}; };
  const std::string differing = mismatch_of([&] { wrap(EmbeddingOptions{12, 2}.sparse(!other)); });
  CHECK((differing.find("1 sparse (digest") != std::string::npos &&
         differing.find("'table.weight'") != std::string::npos) == ranks() > 1);
  const std::string refused = message_of<InvalidArgument>([&] {
    wrap(EmbeddingOptions{12, 2}.max_norm(1).sparse(true));
  });
  CHECK((refused.find("parameter 'table.weight' has a max_norm") == 0) == ranks() > 1);
  expect_in_step();
}

TEST_CASE("what travels is little more than the rows that were touched") {
  if (ranks() > 1) return;
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    std::int64_t bytes = 0;
    bool in_step = false;
    const std::regex collective{"replica 0: (?:all|reduce|gather|broad)\\w+ of (f64|i64|u8)\\[(\\d+)\\].*"};
    const auto count = [&](std::string_view line) {
      std::smatch found;
      const std::string text{line.substr(line.find(' ', line.find(' ') + 1) + 1)};
      if (in_step && std::regex_match(text, found, collective))
        bytes += std::stoll(found[2]) * (found[1] == "u8" ? 1 : 8);
    };
    sim::run({.ranks = ranks, .trace = count}, [&](Strategy& strategy, int rank) {
      auto net = libtorch::DataParallel{strategy, Words{EmbeddingOptions{100000, 32}.sparse(true)}};
      std::vector<std::int64_t> read;
      for (std::int64_t i = 0; i < 50; ++i) read.insert(read.end(), 3, i * i + rank);
      in_step = true;
      step_of(strategy, net, Loss::sum(net->forward(read, 1), 1));
      in_step = false;
    });
    const double touched = ranks * 50 * (8 + 32 * 8);
    CHECK(static_cast<double>(bytes) >= touched);
    CHECK(static_cast<double>(bytes) <= 1.1 * touched);
  }
}
