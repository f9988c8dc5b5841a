// What the options of lockstep-train mean: each changes what is learned, and on any number of simulated ranks the
// result is the same to the last bit. Every model, on data as small as shows it; the same over MPI is in same_bits.cpp
// and its neighbours.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/image_files.hpp"
#include "apps/lockstep-train/tasks/same_kernels.hpp"
#include "apps/simulated_training.hpp"
#include "core/base/digest.hpp"
#include "support/quiet_log.hpp"
#include "support/sim_outcome.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Data that last as long as it does, and runs on them.
struct Data {
  QuietLog quiet;
  ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  TemporaryDirectory folder;
  std::string text = folder.write("text", small_text(2000));

  Arguments mlp(const Arguments& more) const {
    return Arguments{"--data", images.path(), "--hidden", "20,9", "--learning-rate", "0.02"} + more;
  }
  Arguments convnet(const Arguments& more) const {
    return Arguments{"--data", images.path(), "--model", "convnet", "--learning-rate", "0.01"} + more;
  }
  /// 112 windows to train on.
  Arguments gpt(const Arguments& more) const {
    return Arguments{"--data",  text, "--model", "gpt", "--layers",  "2",
                     "--heads", "2",  "--embed", "32",  "--context", "16"} +
           more;
  }
};

/// Options with everything on; of the 61 or 37 samples of a batch, eight shards of three micro-batches get 2 or 3 or
/// less.
const Arguments everything{"--weight-decay", "0.05", "--schedule",   "cosine", "--warmup-steps", "2",
                           "--clip-norm",    "0.7",  "--accumulate", "3"};

void check_same_on_simulated(const std::vector<int>& rank_counts, const Arguments& arguments) {
  const Trained first = train_simulated(rank_counts.front(), arguments);
  for (std::size_t i = 1; i < rank_counts.size(); ++i) {
    INFO(rank_counts[i] << " ranks against " << rank_counts.front());
    check_same(first, train_simulated(rank_counts[i], arguments));
  }
}

const std::vector<int> all_counts{1, 3, 5, 8};

std::string digest_of(const Arguments& arguments) {
  return train_simulated(1, arguments).digest();
}

/// No two of these changes to a run end in the same weights.
void check_all_differ(const Arguments& run, const std::vector<Arguments>& changes) {
  std::vector<std::string> digests;
  for (const Arguments& change : changes) digests.push_back(digest_of(run + change));
  std::ranges::sort(digests);
  CHECK(std::ranges::adjacent_find(digests) == digests.end());
}

/// The largest relative difference between the losses of two runs.
double distance(const Trained& one, const Trained& other) {
  REQUIRE(one.metrics.size() == other.metrics.size());
  double largest = 0;
  for (std::size_t i = 0; i < one.metrics.size(); ++i) {
    const double left = one.metrics[i]["loss"].get<double>(), right = other.metrics[i]["loss"].get<double>();
    largest = std::max(largest, std::abs(left - right) / std::abs(left));
  }
  return largest;
}

}  // namespace

TEST_CASE("--run-dir is where a run writes and an evaluation reads, unless another option names a place") {
  const Arguments run{"--data", "x", "--run-dir", "run"};
  const TrainingOptions all = parse(run).training;
  CHECK(all.metrics == "run/metrics.jsonl");
  CHECK(all.checkpoints == "run/checkpoints");
  CHECK(all.exported_weights == "run/weights.safetensors");
  const TrainingOptions named =
      parse(run + Arguments{"--metrics", "m", "--checkpoint-dir", "c", "--export", "e"}).training;
  CHECK(named.metrics == "m");
  CHECK(named.checkpoints == "c");
  CHECK(named.exported_weights == "e");
  const TrainingOptions evaluated = parse(run + Arguments{"--eval-only"}).training;
  CHECK(evaluated.resume.from == Resume::From::newest);
  CHECK(evaluated.checkpoints == "run/checkpoints");
  CHECK(evaluated.metrics.empty());
  CHECK(evaluated.exported_weights.empty());
  CHECK(parse(run + Arguments{"--eval-only", "--init-from", "w"}).training.resume.from == Resume::From::none);
  CHECK(parse({"--data", "x", "--quiet", "--progress", "json"}).training.progress == ShowProgress::json);
}

TEST_CASE("ranks whose kernels are not the same say in words in what") {
  const std::vector<std::string> others{"A GPU, cuBLASLt 13.0", "A GPU", "A GPU, cuBLASLt 12.9, CUDA 13, TF32"};
  const std::vector<std::string> says{"'kernels: cuBLASLt 13.0'", "'kernels: nothing else'", "'kernels: TF32'"};
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::string first = i == 2 ? "A GPU, cuBLASLt 12.9, CUDA 13" : "A GPU, cuBLASLt 12.9";
    const SimOutcome outcome = outcome_of({.ranks = 3}, [&](Strategy& strategy, int rank) {
      require_same_kernels(strategy, rank == 2 ? others[i] : first);
    });
    CHECK(outcome.is<MismatchError>());
    CHECK_THAT(outcome.what(), Catch::Contains("replica 2 ") && Catch::Contains(says[i]));
  }
  CHECK_FALSE(
      outcome_of({.ranks = 3}, [&](Strategy& strategy, int) { require_same_kernels(strategy, others[2]); }).failed());
}

TEST_CASE("each option of the training changes what is learned") {
  const Data data;
  check_all_differ(data.mlp({"--steps", "6", "--global-batch", "61"}),
                   {{},
                    {"--seed", "2"},
                    {"--momentum", "0.8"},
                    {"--shards", "4"},
                    {"--weight-decay", "0.01"},
                    {"--schedule", "cosine"},
                    {"--warmup-steps", "3"},
                    {"--clip-norm", "0.1"},
                    {"--accumulate", "2"},
                    {"--precision", "bf16"},
                    {"--optimizer", "sgd"},
                    {"--optimizer", "adamw"},
                    {"--optimizer", "adamw", "--weight-decay", "0.01"}});
  const Arguments run{"--data", data.images.path(), "--hidden", "20", "--steps", "3"};
  check_all_differ(
      run,
      {{}, {"--learning-rate", "0.11"}, {"--optimizer", "adamw"}, {"--optimizer", "adamw", "--learning-rate", "0.1"}});
}

TEST_CASE("what is off changes nothing") {
  const Data data;
  const Arguments run{"--data", data.images.path(), "--hidden", "20", "--steps", "6", "--global-batch", "64"};
  CHECK(digest_of(run + Arguments{"--weight-decay", "0", "--schedule", "constant", "--warmup-steps", "0",
                                  "--accumulate", "1", "--clip-norm", "1e30", "--learning-rate", "0.03"}) ==
        digest_of(run));
  const Arguments adamw = run + Arguments{"--optimizer", "adamw"};
  CHECK(digest_of(adamw + Arguments{"--learning-rate", "0.001"}) == digest_of(adamw));
}

TEST_CASE("activations that are computed again change nothing") {
  const Data data;
  for (const char* precision : {"full", "bf16"}) {
    const Arguments run = data.gpt({"--steps", "3", "--global-batch", "20", "--precision", precision, "--sample", "9"});
    check_same(train_simulated(1, run), train_simulated(2, run + Arguments{"--recompute"}));
  }
}

TEST_CASE("--eval-samples changes what is evaluated, and nothing else") {
  const Data data;
  const Arguments run{"--data", data.images.path(), "--hidden", "20", "--steps", "3"};
  const Trained all = train_simulated(2, run), some = train_simulated(2, run + Arguments{"--eval-samples", "5"});
  CHECK(some.digest() == all.digest());
  CHECK(some.result["eval_loss"] != all.result["eval_loss"]);
}

TEST_CASE("each option of the convnet changes what is learned") {
  const Data data;
  const Arguments run = data.convnet({"--steps", "2", "--global-batch", "16"});
  check_all_differ(run, {{},
                         {"--batch-norm"},
                         {"--sync-batch-norm"},
                         {"--dropout", "0.25"},
                         {"--dropout", "0.5"},
                         {"--batch-norm", "--dropout", "0.25"}});
  CHECK(digest_of(run + Arguments{"--batch-norm", "--sync-batch-norm"}) ==
        digest_of(run + Arguments{"--sync-batch-norm"}));
}

TEST_CASE("each option of the gpt changes what is learned") {
  const Data data;
  const auto with = [](const char* layers, const char* heads, const char* embed, const char* context) {
    return Arguments{"--layers", layers, "--heads", heads, "--embed", embed, "--context", context};
  };
  check_all_differ(
      {"--model", "gpt", "--data", data.text, "--steps", "2", "--global-batch", "8"},
      {with("2", "2", "32", "16"), with("1", "2", "32", "16"), with("2", "4", "32", "16"), with("2", "2", "30", "16"),
       with("2", "2", "32", "15"), with("2", "2", "32", "16") + Arguments{"--seed", "2"}});
}

TEST_CASE("1, 3, 5 and 8 ranks train an mlp to the same bytes, whatever the batch") {
  const Data data;
  // Shards of 7 and 8 samples, one shard without any, and one sample alone; six whole batches of 14 and one of 6.
  const std::string batch = GENERATE("61", "7", "1", "14");
  check_same_on_simulated(all_counts, data.mlp({"--steps", "16", "--global-batch", batch, "--eval-every", "5"}));
}

TEST_CASE("1, 3, 5 and 8 ranks train an mlp to the same bytes with every optimizer and everything on") {
  const Data data;
  const std::string optimizer = GENERATE("sgd", "momentum", "adamw");
  const std::string type = GENERATE("f32", "f64");
  const Arguments run =
      data.mlp(everything) + Arguments{"--optimizer", optimizer, "--steps", "8",         "--global-batch",
                                       "61",          "--dtype", type,      "--kernels", "reference"};
  check_same_on_simulated(all_counts, run);
  CHECK(train_simulated(2, run + Arguments{"--shards", "ranks"}).digest() ==
        digest_of(run + Arguments{"--shards", "2"}));
}

TEST_CASE("1, 3, 5 and 8 ranks train an mlp to the same bytes with other layers and kernels, and any seed") {
  const Data data;
  check_same_on_simulated(
      all_counts, {"--data", data.images.path(), "--steps", "10", "--optimizer", "sgd", "--learning-rate", "0.05",
                   "--hidden", "33,7,100", "--global-batch", "50", "--seed", "18446744073709551615"});
}

TEST_CASE("a batch larger than the data set is the whole of it, on any number of ranks") {
  const Data data;
  const Trained trained = train_simulated(1, data.mlp({"--epochs", "2", "--global-batch", "1000000000000"}));
  CHECK(trained.result["steps"] == 2);
  CHECK(trained.result["samples"] == 180);
  check_same_on_simulated({1, 8}, data.mlp({"--epochs", "2", "--global-batch", "9223372036854775807"}));
}

TEST_CASE("a chosen number of shards fixes the bytes as well, and as many as ranks is one of them") {
  const Data data;
  const Arguments run = data.mlp({"--steps", "6", "--global-batch", "61"});
  check_same_on_simulated({1, 2, 4}, run + Arguments{"--shards", "4"});
  check_same_on_simulated({1, 8}, run + Arguments{"--shards", "16"});
  // Of up to three subtrees, which the sums of a joint model take too.
  check_same_on_simulated({1, 5, 7}, run + Arguments{"--shards", "32"});
  check_same_on_simulated({1, 5}, data.convnet({"--sync-batch-norm", "--steps", "2", "--shards", "32"}));
  const Trained trained = train_simulated(2, run + Arguments{"--shards", "ranks"});
  CHECK(trained.result["shards"] == 2);
  CHECK(trained.digest() == digest_of(run + Arguments{"--shards", "2"}));
}

TEST_CASE("nodes of three ranks end in the bytes of one rank, whatever the ranks do besides") {
  const Data data;
  const sim::Options two_nodes{.ranks = 6, .ranks_per_node = 3};
  for (const Arguments& run :
       {data.mlp({"--steps", "6", "--global-batch", "61", "--audit-every", "2"}),
        data.mlp({"--steps", "2", "--accumulate", "2"}), data.mlp({"--steps", "2", "--threads", "2"}),
        data.mlp({"--steps", "2", "--shard-optimizer"}), data.mlp({"--steps", "2", "--shards", "16"}),
        data.convnet({"--sync-batch-norm", "--steps", "2", "--shards", "16"})})
    CHECK(train_simulated(two_nodes, run).digest() == digest_of(run));
}

TEST_CASE("3 shards are within rounding of 8, and sum in another order") {
  const Data data;
  const Arguments run = data.mlp(
      {"--dtype", "f64", "--kernels", "reference", "--steps", "50", "--global-batch", "61", "--eval-every", "10"});
  const Trained three = train_simulated(3, run + Arguments{"--shards", "ranks"}), one = train_simulated(1, run);
  CHECK(three.result["shards"] == 3);
  const double apart = distance(three, one);
  CHECK(apart < 1e-9);
  // Another order of summation was taken, or this test proves nothing.
  CHECK(apart > 0);
}

TEST_CASE("1, 3, 5 and 8 ranks train a convnet to the same bytes with every kind of norm, dropout, or neither") {
  const Data data;
  const Arguments options =
      GENERATE(Arguments{}, Arguments{"--batch-norm"}, Arguments{"--sync-batch-norm"}, Arguments{"--dropout", "0.25"});
  check_same_on_simulated(all_counts, data.convnet(options + Arguments{"--steps", "3", "--global-batch", "61"}));
}

TEST_CASE("1, 3, 5 and 8 ranks train a convnet to the same bytes with everything on, and shards without samples") {
  const Data data;
  const std::string norm = GENERATE("--batch-norm", "--sync-batch-norm");
  const Arguments run = data.convnet({norm, "--dropout", "0.5", "--optimizer", "adamw", "--clip-norm", "0.5",
                                      "--weight-decay", "0.01", "--eval-every", "3"});
  check_same_on_simulated(all_counts, run + Arguments{"--steps", "4", "--global-batch", "5"});
  check_same_on_simulated(all_counts, run + Arguments{"--steps", "2", "--global-batch", "61", "--accumulate", "3"});
  check_same_on_simulated({1, 4}, run + Arguments{"--steps", "2", "--global-batch", "19", "--accumulate", "2",
                                                  "--dtype", "f64", "--kernels", "reference"});
}

TEST_CASE("1, 3, 5 and 8 ranks train a gpt to the same bytes with every optimizer, and shards without samples") {
  const Data data;
  // Three batches of 37, which 8 shards do not divide, and one of a single window.
  const Arguments optimizer = GENERATE(Arguments{"--optimizer", "sgd", "--learning-rate", "0.3"},
                                       Arguments{"--optimizer", "momentum", "--learning-rate", "0.05"},
                                       Arguments{"--optimizer", "adamw", "--learning-rate", "0.001"} + everything);
  check_same_on_simulated(all_counts, data.gpt(optimizer + Arguments{"--steps", "6", "--global-batch", "37",
                                                                     "--eval-every", "4", "--sample", "20"}));
}

TEST_CASE("1, 2 and 4 ranks train a gpt of sizes that nothing divides to the same bytes, in f32 and f64") {
  const Data data;
  const Arguments run{"--model", "gpt", "--data",    data.text, "--layers",       "3",  "--heads", "5",
                      "--embed", "35",  "--context", "13",      "--global-batch", "23", "--steps", "7"};
  check_same_on_simulated({1, 2, 4}, run);
  check_same_on_simulated({1, 4}, run + Arguments{"--dtype", "f64", "--kernels", "reference", "--accumulate", "2"});
}

TEST_CASE("1, 3, 5 and 8 ranks train every model in bf16 to the same bytes, and shards without samples") {
  const Data data;
  const Arguments bf16{"--precision", "bf16", "--eval-every", "2"};
  const Arguments images{"--steps", "3", "--global-batch", "5"};
  check_same_on_simulated(all_counts, data.convnet(bf16 + images + Arguments{"--dropout", "0.25"}));
  check_same_on_simulated(all_counts, data.convnet(bf16 + images + Arguments{"--sync-batch-norm"}));
  check_same_on_simulated(all_counts, data.mlp(bf16 + Arguments{"--steps", "3", "--global-batch", "19", "--accumulate",
                                                                "2", "--clip-norm", "0.5"}));
  check_same_on_simulated(all_counts, data.gpt(bf16 + Arguments{"--steps", "3", "--global-batch", "11"}));
  check_same_on_simulated({1, 4}, data.gpt(bf16 + Arguments{"--steps", "2", "--kernels", "reference"}));
}

TEST_CASE("an optimizer in slices changes no byte of a model and nothing that is told, on any number of ranks") {
  const Data data;
  const Arguments images{"--data", data.images.path(), "--steps", "4"};
  const std::vector<Arguments> runs{
      images + everything + Arguments{"--hidden", "301", "--global-batch", "61", "--optimizer", "momentum"},
      images + Arguments{"--model", "convnet", "--optimizer", "adamw", "--sync-batch-norm", "--learning-rate", "0.01"},
      data.gpt({"--steps", "4", "--global-batch", "37", "--precision", "bf16", "--freeze", "*embedding*"}) +
          everything};
  for (const Arguments& run : runs) {
    const Trained whole = train_simulated(1, run);
    for (const int ranks : {2, 4, 8}) check_same(whole, train_simulated(ranks, run + Arguments{"--shard-optimizer"}));
  }
}

TEST_CASE("a training that may diverge goes on to a result without losses, and its model writes nothing") {
  const Data data;
  const Trained trained = train_simulated(2, data.gpt({"--optimizer", "sgd", "--learning-rate", "1e30", "--steps", "4",
                                                       "--sample", "10", "--on-divergence", "continue"}));
  CHECK(trained.result["steps"] == 4);
  CHECK(trained.result["bits_per_byte"].is_null());
  CHECK(trained.written.empty());
}

TEST_CASE("a sample has as many bytes as asked for, others with another seed, and writing it changes no weights") {
  const Data data;
  const Arguments run = data.gpt({"--steps", "3"}), writes = run + Arguments{"--sample", "300"};
  const Trained one = train_simulated(1, writes);
  CHECK(bytes_of(one.written) == 300 + 1);  // and a line break
  check_same(one, train_simulated(2, writes));
  CHECK(train_simulated(1, writes + Arguments{"--seed", "2"}).written != one.written);
  CHECK(digest_of(run) == one.digest());
}
