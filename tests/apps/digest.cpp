// weights_digest is what the issue of the numbers says: xxHash64 over the bytes of every variable, in order, and of
// nothing else (no padding, no optimizer's slots).
#include <cstdlib>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <xxhash.h>

#include "support/training_job.hpp"

using namespace lockstep::test;

TEST_CASE("weights_digest is xxHash64 over the weights and biases, layer by layer") {
  const char* const program = std::getenv("LOCKSTEP_TRAIN_AND_DUMP");
  REQUIRE(program);
  const TemporaryDirectory folder;
  const std::string dump = folder.path() / "weights";
  Environment environment = mpi_environment();
  environment["LOCKSTEP_DUMP"] = dump;
  const Outcome outcome = run_command({"mpirun", "-n", "2", program}, {.environment = environment});
  INFO("stderr: " << outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.out ==
        "dense_0/weight 23520\ndense_0/bias 30\ndense_1/weight 600\ndense_1/bias 20\ndense_2/weight "
        "200\ndense_2/bias 10\n");

  const std::string bytes = read_file(dump);
  REQUIRE(bytes.size() == 4 * (784 * 30 + 30 + 30 * 20 + 20 + 20 * 10 + 10));
  const Trained trained = train(1, {"--hidden", "30,20", "--seed", "3", "--learning-rate", "0.05", "--momentum", "0.8",
                                    "--global-batch", "100", "--steps", "7", "--shards", "4"});
  CHECK(trained.digest() == fmt::format("{:016x}", XXH64(bytes.data(), bytes.size(), 0)));
}
