// The parts of lockstep-run that deal with what a job says and leaves, and with its own command line.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>

#include "apps/lockstep-run/job_report.hpp"
#include "apps/lockstep-run/job_segments.hpp"
#include "apps/lockstep-run/launcher_words.hpp"
#include "apps/lockstep-run/line_catcher.hpp"
#include "apps/lockstep-run/run_timeline.hpp"
#include "apps/lockstep-run/supervised_checkpoints.hpp"
#include "core/base/descriptor.hpp"
#include "core/base/host_name.hpp"
#include "core/base/supervised_job.hpp"
#include "run_words.hpp"
#include "support/job.hpp"
#include "support/refused_options.hpp"
#include "sync/checkpoint/left_checkpoints.hpp"

namespace lockstep::test::run_parts_cases {

using namespace lockstep::run;

namespace {

/// A file as Open MPI makes them for a job's shared memory.
class Segment {
 public:
  Segment(const test::TemporaryDirectory& folder, const std::string& job_and_rank, const std::string& host = "a")
      : path_{folder.write(fmt::format("vader_segment.{}.{}.{}", host, ::geteuid(), job_and_rank),
                           std::string(4096, 'x'))} {}

  void map() {
    const Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC)};
    memory_ = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
    REQUIRE(memory_ != MAP_FAILED);
  }
  void unmap() { ::munmap(memory_, 4096); }
  bool exists() const { return std::filesystem::exists(path_); }

 private:
  std::filesystem::path path_;
  void* memory_ = nullptr;
};

/// Of mpirun of Open MPI 4 and 5, of mpiexec -l, and of srun --label.
const Texts labels_of_launchers{"[0] ",
                                "[12] ",
                                "0: ",
                                "  7: ",
                                "[1,0]<stderr>:",
                                "Sun Nov  1 04:16:23 2026<stderr>:",
                                "Sun Nov 29 04:16:23 2026[1,0]<stderr>:",
                                "[1,0]<stderr>: ",
                                "[0]<stderr>: ",
                                "[Sun Nov 29 04:17:08 2026]<stderr>: ",
                                "[Sun Nov 29 04:17:08 2026][1,0]<stderr>: ",
                                "[Sun Nov 29 04:17:08 2026][0]<stderr>: ",
                                "[1,0][vm:18149]<stderr>: ",
                                "[Sun Nov 29 04:17:08 2026]<stderr>: [1,0][vm:18181]<stderr>: ",
                                "[prterun-a-1@1,0]<stderr>: ",
                                "[Sun Nov 29 04:17:08 2026]<stderr>: [prterun-vm-18185@1,0]<stderr>: "};

JobReport read(std::string_view text) {
  JobReader reader;
  reader.take(text);
  return reader.report();
}

}  // namespace

TEST_CASE("the chief's word that the job has begun is understood, and taken out of what the user sees") {
  const std::string told = std::string{begun_line} + "\n";
  CHECK(read(told).has_begun);
  CHECK(read("[1,0]<stderr>:" + told).has_begun);
  CHECK_FALSE(read("lockstep: the job\n").has_begun);

  const auto seen = [](const std::string& text, std::size_t piece) {
    LineCatcher catcher{begun_line};
    std::string seen;
    for (std::size_t first = 0; first < text.size(); first += piece) seen += catcher.pass(text.substr(first, piece));
    return seen + catcher.rest();
  };
  const std::string almost = told.substr(0, 20);
  for (const std::size_t piece : {1, 7, 1000}) {
    CHECK(seen(told + "step 1\rstep 2\n", piece) == "step 1\rstep 2\n");
    CHECK(seen("first\n" + told + "last", piece) == "first\nlast");
    CHECK(seen("first\r" + told + "last", piece) == "first\rlast");
    CHECK(seen(told + told, piece) == told);  // the second is the program's own
    CHECK(seen("x" + told, piece) == "x" + told);
    CHECK(seen(almost + "\n" + almost, piece) == almost + "\n" + almost);
    // As launchers label the lines of ranks, if they are asked to.
    for (const std::string& label : labels_of_launchers) {
      CHECK(seen(label + "first\n" + label + told + label, piece) == label + "first\n" + label);
      CHECK(seen(label + almost + "\n", piece) == label + almost + "\n");
    }
    for (const std::string other : {"[rank 0] ", "[0]", "0:", "12 ", "[a,b] ", "[", "[0] [0] ", "Sunday Nov 1 ",
                                    "Sun Nov 29 04:16 2026<stderr>:", "[Sun Nov 29 04:16:23 2026] "})
      CHECK(seen(other + told, piece) == other + told);
  }
  const std::string pattern = "rank-0|a.b|1> ";
  RankLabels labels;
  labels.add("rank-%r|%h|%p> ");
  LineCatcher of_pattern{begun_line, labels};
  CHECK(of_pattern.pass(pattern + told + "on") == "on");
  LineCatcher catcher{begun_line};
  CHECK(catcher.pass("lockstep: error") == "lockstep: error");
}

TEST_CASE("how a job ended is read behind any label, whoever told the launcher to put it there") {
  const std::string gone = "lockstep: replica 1 (worker:1, host b) is gone: its process ended";
  for (const std::string& label : labels_of_launchers) {
    CAPTURE(label);
    CHECK(read(label + gone + "\n").host == "b");
  }
  // Others are known once the job has begun, of all ranks and at any time.
  const std::string begun = std::string{begun_line} + "\n";
  for (const auto& [chief, other] :
       {std::pair{"0>vm|0|0:", "10>vm-2|1|0:"},
        std::pair{"2026-11-29T04:17:08.1 r0 | ", "2026-11-30T05:00:09.22 r12 | "},
        std::pair{R"(<stderr rank="0">)", R"(<stderr rank="1">)"}, std::pair{" 0: % ", "11: % "}}) {
    CAPTURE(chief);
    const JobReport report = read(chief + begun + other + gone + "&#010;</stderr>\n");
    CHECK(report.has_begun);
    CHECK(report.host == "b");
    CHECK(report.line == gone);
    CHECK_FALSE(read(other + gone + "\n").has_spoken);
    CHECK_FALSE(read(chief + begun + "my log: " + other + gone + "\n").has_spoken);
  }
  // What the launcher says itself looks like a label here.
  CHECK(read("a: " + begun + "ssh: connect to host b port 22: No route to host\n").unreachable == Texts{"b"});
}

TEST_CASE("options and variables because of which ranks are not heard are told at the start") {
  const auto hides = [](MpiKind mpi, const Texts& words) { return what_hides_stderr(mpi, words); };
  const auto four = MpiKind::open_mpi_4, five = MpiKind::open_mpi_5;
  CHECK(hides(four, {"mpirun", "--output-filename", "logs:nocopy"}) == "--output-filename logs:nocopy");
  CHECK(hides(four, {"mpirun", "--output-filename", "logs", "--tag-output", "--merge-stderr-to-stdout"}).empty());
  CHECK(hides(four, {"mpirun", "--xterm", "0"}) == "--xterm");
  CHECK(hides(four, {"mpirun", "-xml"}) == "--xml");
  CHECK(hides(four, {"mpirun", "--mca", "orte_xml_output", "1"}) == "orte_xml_output=1");
  CHECK(hides(four, {"mpirun", "--mca", "orte_xml_output", "0"}).empty());
  CHECK(hides(five, {"mpirun", "--output", "tag,merge"}) == "--output tag,merge");
  CHECK(hides(five, {"mpirun", "--output=dir=logs"}) == "--output dir=logs");
  CHECK(hides(five, {"mpirun", "--output", "file=merged"}) == "--output file=merged");
  CHECK(hides(five, {"mpirun", "--merge-stderr-to-stdout"}) == "--merge-stderr-to-stdout");
  CHECK(hides(five, {"mpirun", "--output", "tag,timestamp", "--output", "rank"}).empty());
  for (const auto hydra : {MpiKind::mpich, MpiKind::intel_mpi}) {
    CHECK(hides(hydra, {"mpiexec", "-errfile-pattern", "e.%r"}) == "-errfile-pattern e.%r");
    CHECK(hides(hydra, {"mpiexec", "-outfile-pattern", "o.%r", "-l"}).empty());
  }
  CHECK(hides(four, {"srun", "--output=a"}) == "--output=a");
  CHECK(hides(four, {"srun", "-ofile", "-e", "b"}) == "--error=b");
  CHECK(hides(four, {"srun", "-o", "a", "--error", "all"}).empty());
  CHECK(hides(four, {"srun", "-l", "--unbuffered"}).empty());
  const auto with_variable = [&](const char* name, const char* value, MpiKind mpi, const char* launcher) {
    ::setenv(name, value, 1);
    const std::string found = hides(mpi, {launcher});
    ::unsetenv(name);
    return found;
  };
  CHECK(with_variable("SLURM_STDERRMODE", "err", four, "srun") == "SLURM_STDERRMODE=err");
  CHECK(with_variable("SLURM_STDOUTMODE", "out", four, "srun") == "SLURM_STDOUTMODE=out");
  CHECK(with_variable("OMPI_MCA_orte_output_filename", "f:nocopy", four, "mpirun") == "orte_output_filename=f:nocopy");
  CHECK(with_variable("OMPI_MCA_orte_tag_output", "1", four, "mpirun").empty());
}

TEST_CASE("shared memory is known to be a job's by its name, and no living job's is removed") {
  CHECK(job_of_segment("/dev/shm/vader_segment.node1.1000.f4970001.12") ==
        "/dev/shm/vader_segment.node1.1000.f4970001.");
  CHECK(job_of_segment("/x/sm_segment.a.cluster.0.1.0") == "/x/sm_segment.a.cluster.0.1.");
  for (const char* other : {"", "/dev/shm/vader_segment.a.0.1", "/dev/shm/vader_segment.a.0.1.", "/lib/libc.so.6",
                            "/dev/shm/vader_segment.a.0.1.0 (deleted)", "/dev/shm/my_vader_segment.a.0.1.0"})
    CHECK(job_of_segment(other).empty());

  // As Open MPI 4.1.4 numbers its jobs.
  CHECK(job_family("bha", 14465) == 0xfca9);
  CHECK(job_family("bha", 14418) == 0xfc7a);

  const test::TemporaryDirectory folder;
  Segment first{folder, "f1.0"};
  const Segment sibling{folder, "f1.11"}, other{folder, "f11.0"}, another{folder, "f2.0"};
  JobSegments segments;
  first.map();
  segments.learn({::getpid()});
  segments.remove(1);
  CHECK(first.exists());  // a living process has it
  first.unmap();
  segments.remove(1);
  CHECK_FALSE(first.exists());
  CHECK_FALSE(sibling.exists());
  CHECK((other.exists() && another.exists()));

  // Of an mpirun that died before anybody looked. Not another user's, nor one of another host that shares the memory.
  const std::string here{first_label(host_name())};
  const std::string job = fmt::format("{:x}0001.0", job_family(here, 4321));
  const Segment unknown{folder, job, here};
  const Segment elsewhere{folder, fmt::format("{:x}0001.0", job_family(here + "x", 4321)), here + "x"};
  const auto others = folder.write(fmt::format("vader_segment.{}.1{}.{}", here, ::geteuid(), job), "");
  ::setenv("OMPI_MCA_btl_vader_backing_directory", folder.path().c_str(), 1);
  JobSegments{}.remove(4322);
  CHECK(unknown.exists());
  JobSegments{}.remove(4321);
  ::unsetenv("OMPI_MCA_btl_vader_backing_directory");
  CHECK_FALSE(unknown.exists());
  CHECK((std::filesystem::exists(others) && other.exists() && another.exists() && elsewhere.exists()));
}

TEST_CASE("the shards are those of the newest checkpoint that can be read, and a pipe is not waited for") {
  const test::TemporaryDirectory folder;
  const SupervisedCheckpoints seen{folder.path()};
  CHECK_FALSE(seen.seen().shards);
  Strategy& strategy = Strategy::current();
  for (const int step : {1, 2, 3}) {
    CheckpointManager checkpoints{
        strategy, {.folder = folder.path(), .training = {{"shards", step == 1 ? "12" : "x"}}, .kernels = {}}};
    checkpoints.save(step);
    checkpoints.finish();
  }
  CHECK_THAT(seen.newest_made(), Catch::StartsWith("step-3 "));
  CHECK(seen.seen().written);
  CHECK_FALSE(seen.seen().shards);
  const auto manifest_of = [&](const char* step) { return folder.path() / step / "manifest.json"; };
  std::filesystem::resize_file(manifest_of("step-2"), 30);
  std::filesystem::remove(manifest_of("step-3"));
  REQUIRE(::mkfifo(manifest_of("step-3").c_str(), 0600) == 0);
  CHECK(seen.seen().shards == 12);
  CHECK_FALSE(SupervisedCheckpoints{{}}.seen().written);
}

TEST_CASE("a training has written a checkpoint when there is a new one, also of an old step and without links") {
  const test::TemporaryDirectory folder;
  Strategy& strategy = Strategy::current();
  const auto save = [&](std::int64_t step) {
    CheckpointManager checkpoints{strategy, {.folder = folder.path(), .keep = 9}};
    checkpoints.save(step);
    checkpoints.finish();
  };
  for (const int step : {20, 25, 30}) save(step);
  const SupervisedCheckpoints seen{folder.path()};
  CHECK_FALSE(seen.seen().written);
  (void)set_aside_after(folder.path(), 20, {});
  CHECK_FALSE(seen.seen().written);
  CHECK(seen.newest_made().empty());  // step-20, to which latest points, was there
  save(25);
  CHECK(seen.seen().written);
  save(30);
  std::filesystem::remove(folder.path() / "latest");
  CHECK_THAT(seen.newest_made(), Catch::StartsWith("step-30 "));
}

TEST_CASE("the command line of lockstep-run names ranks and hosts, and what follows -- is never taken apart") {
  const CommandLine line =
      parse({"-n", "4", "--min-ranks", "2", "--max-restarts", "7", "--mpirun", "mpirun -q --oversubscribe",
             "--start-timeout", "5", "--", "lockstep-train", "--data", "a b; $(c) *"});
  CHECK(line.ranks == 4);
  CHECK(line.min_ranks == 2);
  CHECK(line.max_restarts == 7);
  CHECK(line.start_timeout == std::chrono::seconds{5});
  CHECK_FALSE(line.skips_wrong_hosts);
  CHECK(parse({"-n", "4", "--on-miscompute", "skip-host", "--", "x"}).skips_wrong_hosts);
  CHECK_FALSE(parse({"-n", "4", "--on-miscompute", "stop", "--", "x"}).skips_wrong_hosts);
  CHECK(line.mpirun == Texts{"mpirun", "-q", "--oversubscribe"});
  CHECK(line.command == Texts{"lockstep-train", "--data", "a b; $(c) *"});
  CHECK(parse({"--host", "a:2,b:2", "--", "x"}).ranks == 4);
  // The chief may be elsewhere without --host.
  for (const MpiKind open_mpi : {MpiKind::open_mpi_4, MpiKind::open_mpi_5}) {
    CHECK(gives_no_variables(open_mpi, {"env", "A=b", "/opt/bin/mpirun", "--hostfile", "h"}, {}));
    CHECK_FALSE(gives_no_variables(open_mpi, {"srun"}, {}));
  }
  CHECK_FALSE(gives_no_variables(MpiKind::mpich, {"mpirun"}, {}));
  CHECK(parse({"--help"}).answer);
  test::check_all_refused(
      {{{"-n", "4"}},
       {{"--", "x"}},
       {{"-n", "0", "--", "x"}},
       {{"-n", "4", "lockstep-train", "--", "x"}},
       {{"-n", "4", "--host", "a:4", "--hostfile", "/proc/none", "--", "x"}},
       {{"-n", "4", "--mpirun", " ", "--", "x"}},
       {{"-n", "4", "--on-miscompute", "skip", "--", "x"}, {"--on-miscompute skip: expected stop or skip-host"}},
       {{"--hostfile", "/proc/none", "--", "x"}, {"--hostfile /proc/none: cannot be read: No such file or directory"}},
       {{"--hostfile", "/dev/null", "--", "x"}, {"--hostfile /dev/null: is a device, not a regular file"}}},
      [](const Texts& words) { (void)parse(words); });
}

TEST_CASE("a job's failure goes to the timeline of its run if the job began there, and did not say how it ended") {
  const lockstep::test::TemporaryDirectory folder;
  const auto path =
      folder.write("timeline.jsonl", "{\"kind\":\"start\",\"start\":1}\n{\"kind\":\"end\",\"start\":1}\n");
  folder.write("run.json", "{}");
  const std::string earlier = lockstep::test::read_file(path);
  RunTimeline timeline{folder.path()};
  timeline.begin();
  timeline.end("it was refused", 2);
  CHECK(lockstep::test::read_file(path) == earlier);
  const auto says = [&](const char* line) { std::ofstream{path, std::ios::app} << line << '\n'; };
  says(R"({"kind":"start","start":2})");
  timeline.end("nobody is left", 137);
  CHECK(lockstep::test::lines_starting_with(lockstep::test::read_file(path), R"({"kind":"failure",)").size() == 1);
  timeline.begin();
  says(R"({"kind":"start","start":3})");
  says(R"({"kind":"stop","start":3})");
  timeline.end("it has said that", 75);
  CHECK(lockstep::test::lines_starting_with(lockstep::test::read_file(path), R"({"kind":"failure",)").size() == 1);
}

}  // namespace lockstep::test::run_parts_cases
