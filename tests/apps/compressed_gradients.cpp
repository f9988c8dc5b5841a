// Trainings that compress gradients between nodes, on simulated ones: what their bits depend on, and what is said of
// it.
#include <filesystem>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/image_files.hpp"
#include "apps/lockstep-train/saved/training_facts.hpp"
#include "apps/simulated_training.hpp"
#include "support/child_process.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Nodes of so many ranks each.
sim::Options on(int ranks, int ranks_per_node) {
  return {.ranks = ranks, .ranks_per_node = ranks_per_node};
}

/// What the log warns of in the training.
std::vector<std::string> warnings_of(const sim::Options& job, const Arguments& arguments) {
  CapturedStderr captured;
  (void)train_simulated(job, arguments);
  return lines_starting_with(captured.text(), "[lockstep] warning: ");
}

}  // namespace

TEST_CASE("which shards share a node is told without ranks") {
  const auto bf16 = [](const std::vector<int>& node_of_rank, int shards) {
    return compression_text(DType::bf16, node_of_rank, shards);
  };
  CHECK(bf16({0, 0, 1, 1}, 8) == "bf16 between nodes of 4 shards");
  CHECK(bf16({7, 3}, 8) == "bf16 between nodes of 4 shards");
  CHECK(bf16({0, 1, 2}, 3) == "bf16 between nodes of 1 shard");
  CHECK(bf16({0, 0, 0, 1}, 8) == "bf16 between nodes of shards 0-5, 6-7");
  CHECK(bf16({0, 0, 1}, 3) == "bf16 between nodes of shards 0-1, 2");
  CHECK(bf16({4, 2, 4, 2}, 8) == "bf16 between nodes of shards 0-1+4-5, 2-3+6-7");
  CHECK(compression_text(DType::f16, std::vector{0, 1, 0}, 3) == "f16 between nodes of shards 0+2, 1");
}

TEST_CASE("a training with compressed gradients has the same bytes on the same nodes, and is warned of others") {
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const Arguments run{"--data", images.path(), "--hidden", "9", "--steps", "2", "--quiet"};
  const Arguments compressed = run + Arguments{"--compress-gradients", "bf16"};
  const auto saved = [&](const char* name) { return Arguments{"--checkpoint-dir", folder.path() / name}; };
  const auto manifest = [&](const char* name) { return read_file(folder.path() / name / "step-2/manifest.json"); };

  const std::string plain = train_simulated(on(2, 2), run + saved("plain")).digest();
  const std::string halves = train_simulated(on(4, 2), compressed + saved("halves")).digest();
  CHECK(train_simulated(on(8, 4), compressed + saved("more ranks")).digest() == halves);
  CHECK(train_simulated(on(2, 1), compressed).digest() == halves);
  CHECK(train_simulated(on(4, 1), compressed).digest() != halves);
  CHECK(halves != plain);
  CHECK(manifest("more ranks") == manifest("halves"));
  CHECK(Json::parse(manifest("halves")).at("compression") == "bf16 between nodes of 4 shards");
  // Nothing is compressed within a node.
  CHECK(train_simulated(on(4, 4), compressed + saved("one node")).digest() == plain);
  CHECK(manifest("one node") == manifest("plain"));

  const auto going_on = [&](const char* from) { return Arguments{"--resume", folder.path() / from / "step-2"}; };
  const auto warned = [&](const char* from, const char* what) {
    return std::vector{"[lockstep] warning: checkpoint " + (folder.path() / from / "step-2").string() +
                       " was computed with " + what + ": results may differ"};
  };
  CHECK(warnings_of(on(2, 1), compressed + going_on("halves")).empty());
  CHECK(warnings_of(on(4, 3), compressed + going_on("halves")) ==
        warned("halves",
               "gradients compressed to bf16 between nodes of 4 shards, and goes on with gradients compressed to bf16 "
               "between nodes of shards 0-5, 6-7"));
  CHECK(warnings_of(on(2, 1), run + going_on("halves")) ==
        warned("halves",
               "gradients compressed to bf16 between nodes of 4 shards, and goes on with uncompressed gradients"));
  CHECK(warnings_of(on(2, 1), compressed + going_on("plain")) ==
        warned("plain",
               "uncompressed gradients, and goes on with gradients compressed to bf16 between nodes of 4 shards"));
  CHECK(warnings_of(on(2, 2), compressed + going_on("plain")).empty());
}
