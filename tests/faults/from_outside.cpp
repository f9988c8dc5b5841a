// Signals that reach a job from outside while it trains.
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>

#include <catch2/catch.hpp>

#include "apps/image_files.hpp"
#include "faults/running_job.hpp"

using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

/// Sends a signal to one process of a job on `ranks` ranks; nothing may be left of it.
End send_to(std::optional<int> rank, int signal, int ranks) {
  return end_of(on_this_host(ranks), [&](RunningJob& job) { job.send(signal, rank); });
}

}  // namespace

TEST_CASE("a rank that is killed at any moment is named, and the job ends within 5 s", "[B-46][K-22]") {
  const int rank = GENERATE(0, 1, 2);
  // A process cannot tell of these. MPICH's launcher returns the bits of all ranks' codes, 1 among them.
  const int signal = rank == 1 ? SIGPROF : SIGKILL;
  const End end = send_to(rank, signal, 3);
  INFO("rank: " << rank << "\nstderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code == code_of_killed(signal));
  CHECK(end.after < on_this_machine(5s));
  check_blames(end.outcome.err, rank, signal == SIGPROF ? "is gone: SIGPROF ended it" : "is gone: its process ended");
}

TEST_CASE("a rank that is stopped at any moment is named, and the job ends within 5 s of the stall timeout", "[B-45]") {
  const int rank = GENERATE(0, 1);
  const End end = send_to(rank, SIGSTOP, 2);
  INFO("rank: " << rank << "\nstderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code == 5);
  CHECK(end.after > 1.5s);
  CHECK(end.after < on_this_machine(2s + 5s));
  check_blames(end.outcome.err, rank, "has stopped: no sign of life for 2 s");
}

TEST_CASE("a stop that is only observed makes one warning, and once continued the job ends with the same bytes") {
  const Arguments run{"--steps", "300", "--eval-every", "1000000"};
  const TemporaryDirectory folder;
  const std::string file = folder.path() / "stderr";
  const SharedMemory memory;
  RunningJob job{with_stderr_in(file, {"mpirun", "-n", "2", program("LOCKSTEP_TRAIN")}),
                 run + Arguments{"--on-stall", "observe"}, memory};
  job.wait_until_it_trains();
  job.send(SIGSTOP, 1);
  const auto told = [&] {
    auto lines = lines_starting_with(read_file(file), "[rank 0] warning: replica 1 (");
    // A busy machine may slow that rank down, of which another warning tells.
    std::erase_if(lines, [](const std::string& line) { return line.find("): the others waited ") != line.npos; });
    return lines;
  };
  job.wait_until([&] { return !told().empty(); });
  job.send(SIGCONT, 1);
  std::chrono::duration<double> after{0};
  const Outcome outcome = job.end(after);
  INFO("stderr: " << read_file(file));
  CHECK(outcome.exit_code == 0);
  REQUIRE(told().size() == 1);
  CHECK_THAT(told().front(), Catch::Contains(" has stopped: no sign of life for 2 s; it was "));
  CHECK(lines_starting_with(read_file(file), "lockstep:").empty());
  const Arguments plain = Arguments{"--data", small_data(), "--hidden", "16"} + run;
  CHECK(Json::parse(outcome.out).at("weights_digest") == train(1, plain).digest());
}

TEST_CASE("a rank that is terminated alone is named") {
  const End end = send_to(1, SIGTERM, 3);
  INFO("stderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code != 0);
  CHECK(end.after < on_this_machine(5s));
  check_blames(end.outcome.err, 1, "is gone: SIGTERM ended it");
}

TEST_CASE("mpirun that is interrupted or terminated takes the whole job along, and one line says in which step") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  const End end = send_to(std::nullopt, signal, 3);
  INFO("signal: " << signal << "\nstderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code != 0);
  CHECK(end.after < on_this_machine(5s));
  check_interrupted(end.outcome.err);
}

TEST_CASE("a file that becomes shorter while its samples are read from it ends the job with one line") {
  const ImageFiles images{{.train = 2000, .test = 10, .rows = 8, .columns = 8}};
  const SharedMemory memory;
  RunningJob job{
      on_this_host(2), without_end(), memory, {"--data", images.path(), "--hidden", "16", "--data-memory", "1"}};
  job.wait_until_it_trains();
  job.suffer([&] { std::filesystem::resize_file(images.path() + "/" + train_images, 100); });
  std::chrono::duration<double> after{0};
  const Outcome outcome = job.end(after);
  INFO("stderr: " << outcome.err);
  CHECK_FALSE(outcome.timed_out);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::Contains(train_images + ": has become shorter while it was in use"));
  CHECK(outcome.exit_code == 2);
}
