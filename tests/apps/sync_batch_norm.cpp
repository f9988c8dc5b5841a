// Batch norm over all shards of all ranks, end to end: the same bytes on any number of ranks. More of it is
// in training_options.cpp.
#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

const Arguments all_options{"--model",
                            "convnet",
                            "--sync-batch-norm",
                            "--learning-rate",
                            "0.01",
                            "--dropout",
                            "0.5",
                            "--optimizer",
                            "adamw",
                            "--clip-norm",
                            "0.5",
                            "--weight-decay",
                            "0.01"};

}  // namespace

TEST_CASE("1, 2, 4 and 8 ranks normalise micro-batches to the same bytes, with everything on") {
  // 61 samples do not divide among 8 shards.
  check_same_on({1, 2, 4, 8}, all_options + Arguments{"--accumulate", "3", "--steps", "2", "--global-batch", "61",
                                                      "--eval-samples", "101"});
}

TEST_CASE("1 and 8 ranks normalise a batch to the same bytes where shards and ranks have no samples", "[extended]") {
  check_same_on({1, 8}, all_options + Arguments{"--steps", "4", "--global-batch", "5", "--eval-every", "3"});
}
