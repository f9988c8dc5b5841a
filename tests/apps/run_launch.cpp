// Where lockstep-run starts the ranks of a cluster spec, and what it asks of hosts before.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/allocation.hpp"
#include "apps/lockstep-run/job_command.hpp"
#include "apps/lockstep-run/placement.hpp"
#include "apps/lockstep-run/probe.hpp"
#include "apps/lockstep-run/process_tree.hpp"
#include "apps/lockstep-run/running_job.hpp"
#include "apps/lockstep-run/supervised_command.hpp"
#include "core/base/host_name.hpp"
#include "core/cluster/tf_config.hpp"
#include "run_words.hpp"
#include "support/job.hpp"
#include "support/refused_options.hpp"

namespace lockstep::test::run_launch_cases {

using namespace lockstep::run;

namespace {

/// A host with the chief and a worker, another between them, and one more.
constexpr const char* spread = R"({"cluster": {"chief": ["b:1"], "worker": {"0": "a:1", "1": "b:2", "2": "c:1"},
  "evaluator": ["a:9"]}, "replicas_per_task": 2})";

}  // namespace

TEST_CASE("each rank of a spec has the host of its task, also on the hosts that are left") {
  const Placement all{ClusterSpec::parse(spread)};
  CHECK(all.ranks() == 8);
  CHECK(all.hosts() == std::vector<Host>{{"b", 4}, {"a", 2}, {"c", 2}});
  CHECK(all.host_lines() == "b\nb\na\na\nb\nb\nc\nc\n");
  CHECK(parse_tf_config(all.tf_config()).cluster.canonical() == ClusterSpec::parse(spread).canonical());

  const Placement without_chief = all.on(std::vector<Host>{{"a", 2}, {"c", 2}}, 4);
  CHECK(without_chief.host_lines() == "a\na\nc\nc\n");
  const ClusterSpec left = parse_tf_config(without_chief.tf_config()).cluster;
  CHECK_FALSE(left.has_chief());
  CHECK(left.address({"worker", 0}) == "a:1");
  CHECK(left.address({"worker", 1}) == "c:1");
  CHECK(left.world_size() == 4);
  // Fewer ranks than the hosts have slots are the first.
  CHECK(all.on(all.hosts(), 4).host_lines() == "b\nb\na\na\n");
  CHECK_THROWS_WITH(Placement{ClusterSpec::parse(R"({"cluster": {"worker": ["[fd00::7]:1"]}})")},
                    Catch::Contains("worker:0 is at [fd00::7]:1; expected an IPv4 address"));
}

TEST_CASE("a job is started with the hosts of its ranks in a file, and its tasks in TF_CONFIG") {
  const test::TemporaryDirectory folder;
  const std::string spec = folder.write("spec.json", spread);
  CommandLine line = parse({"--cluster-spec", spec, "--network", "10.77.0.0/24", "--mpirun",
                            "mpirun --mca oob_tcp_keepalive_time 9", "--", "train it", "$HOME"});
  line.mpi = MpiKind::open_mpi_4;
  CHECK(line.ranks == 8);
  JobCommand start{line, {.ranks = 4, .hosts = {{"b", 4}}}, {"train it", "$HOME"}};
  const Texts command = start.words();
  const auto has = [&](const Texts& words) { return !std::ranges::search(command, words).empty(); };
  CHECK(has({"-n", "4", "--hostfile"}));
  CHECK(has({"--map-by", "seq", "-x", "TF_CONFIG"}));
  CHECK(has({"--mca", "btl_tcp_if_include", "10.77.0.0/24"}));
  CHECK(has({"--mca", "oob_tcp_keepalive_probes", "3"}));
  // The user's own value.
  CHECK(std::ranges::count(command, "oob_tcp_keepalive_time") == 1);
  CHECK(test::read_file(*(std::ranges::find(command, "--hostfile") + 1)) == "b\nb\nb\nb\n");
  CHECK(parse_tf_config(std::getenv("TF_CONFIG")).cluster.has_chief());
  CHECK(::unsetenv("TF_CONFIG") == 0);

  // The words of the script are those of the command, with a file that it makes itself.
  const std::string script = start.script();
  folder.write("mpirun", "#!/bin/sh\nfor word; do echo \"$word\"; done > words\ncat hosts.lockstep >> words\n");
  std::filesystem::permissions(folder.path() / "mpirun", std::filesystem::perms::owner_all);
  const test::Outcome outcome =
      test::run_command({"sh", "-c", fmt::format("cd {} && PATH=.:$PATH && {}", folder.path().string(), script)});
  REQUIRE(outcome.exit_code == 0);
  CHECK_THAT(
      test::read_file(folder.path() / "words"),
      Catch::EndsWith("--hostfile\nhosts.lockstep\n--map-by\nseq\n-x\nTF_CONFIG\ntrain it\n$HOME\nb\nb\nb\nb\n"));

  test::check_all_refused(
      {{{"--cluster-spec", spec, "-n", "3", "--", "x"}, {"-n 3: " + spec + " makes 8 ranks"}},
       {{"--cluster-spec", spec, "--host", "a:8", "--", "x"}, {"--cluster-spec was given with --host"}},
       {{"--cluster-spec", "/proc/none", "--", "x"}, {"/proc/none: there is no such file"}},
       {{"-n", "1", "--network", "eth", "--", "x"}, {"--network eth: expected a network"}},
       {{"-n", "1", "--probe", "--", "x"}, {"--probe: expected hosts to ask"}}},
      [](const Texts& words) { (void)parse(words); });
}

TEST_CASE("each MPI's mpirun is told the same in its own words") {
  const test::TemporaryDirectory folder;
  CommandLine line = parse({"--cluster-spec", folder.write("spec.json", spread), "--network", "127.0.0.0/8", "--mpirun",
                            "mpirun", "--", "x"});
  const auto words = [&](MpiKind mpi) {
    line.mpi = mpi;
    Texts all = JobCommand{line, {.ranks = 4, .hosts = {{"b", 4}}}, {"x"}}.words();
    CHECK(::unsetenv("TF_CONFIG") == 0);
    for (std::string& each : all)
      if (each.starts_with("/proc/self/fd/")) each = "FILE";
    return all;
  };
  CHECK(words(MpiKind::open_mpi_5) == Texts{"mpirun",
                                            "--mca",
                                            "btl_tcp_if_include",
                                            "127.0.0.0/8",
                                            "--prtemca",
                                            "prte_if_include",
                                            "127.0.0.0/8",
                                            "--prtemca",
                                            "oob_tcp_keepalive_time",
                                            "3",
                                            "--prtemca",
                                            "oob_tcp_keepalive_intvl",
                                            "1",
                                            "--prtemca",
                                            "oob_tcp_keepalive_probes",
                                            "3",
                                            "--hostfile",
                                            "FILE",
                                            "--map-by",
                                            "seq",
                                            "-x",
                                            "TF_CONFIG",
                                            "-x",
                                            "LOCKSTEP_SUPERVISED",
                                            "x"});
  CHECK(words(MpiKind::mpich) == Texts{"mpirun", "-iface", "lo", "-n", "4", "-f", "FILE", "x"});
  CHECK(words(MpiKind::intel_mpi) == Texts{"mpirun", "-iface", "lo", "-n", "4", "-machinefile", "FILE", "x"});
  line.mpirun = {"mpirun", "-iface", "eth7"};
  CHECK(words(MpiKind::mpich) == Texts{"mpirun", "-iface", "eth7", "-n", "4", "-f", "FILE", "x"});
  line.mpirun = {"srun"};
  CHECK_THROWS_WITH(words(MpiKind::mpich),
                    Catch::Contains("expected mpiexec of MPICH or Intel MPI to start the ranks"));
  line.mpirun = {"mpirun"};
  line.network = "255.255.255.255/32";
  CHECK_THROWS_WITH(words(MpiKind::mpich), Catch::Contains("this host has no address there"));
}

TEST_CASE("Intel's mpiexec is told hosts in its own word") {
  CommandLine line = parse({"-n", "3", "--host", "a:2,b:1", "--mpirun", "mpirun", "--", "x"});
  const auto words = [&](MpiKind mpi) {
    line.mpi = mpi;
    return JobCommand{line, {.ranks = 3, .hosts = {{"a", 2}, {"b", 1}}}, {"x"}}.words();
  };
  CHECK(words(MpiKind::intel_mpi) == Texts{"mpirun", "-n", "3", "-ppn", "1", "-hosts", "a,a,b", "x"});
  CHECK(words(MpiKind::mpich) == Texts{"mpirun", "-n", "3", "--host", "a:2,b:1", "x"});
}

TEST_CASE("ranks of several threads are bound to no core, unless somebody says how they are bound") {
  // Meson's tests have them.
  for (const char* each : {"OMPI_MCA_hwloc_base_binding_policy", "PRTE_MCA_hwloc_default_binding_policy"})
    ::unsetenv(each);
  CommandLine line = parse({"-n", "2", "--mpirun", "mpirun", "--", "x"});
  const auto words = [&](MpiKind mpi, int threads) {
    line.mpi = mpi;
    Texts all = JobCommand{line, {.ranks = 2}, {"x"}, threads}.words();
    std::erase(all, "-disable-auto-cleanup");
    return all;
  };
  for (const MpiKind mpi : {MpiKind::open_mpi_4, MpiKind::open_mpi_5}) {
    CHECK(std::ranges::count(words(mpi, 1), "--bind-to") == 0);
    const Texts threaded = words(mpi, 2);
    CHECK_FALSE(std::ranges::search(threaded, Texts{"--bind-to", "none"}).empty());
  }
  CHECK(words(MpiKind::mpich, 2) == words(MpiKind::mpich, 1));
  for (const Texts& own : {Texts{"--bind-to", "socket"}, Texts{"--map-by", "socket:PE=4"}, Texts{"-rf", "ranks"},
                           Texts{"--mca", "hwloc_base_binding_policy", "core"}}) {
    line.mpirun = {"mpirun"};
    line.mpirun.insert(line.mpirun.end(), own.begin(), own.end());
    CHECK(words(MpiKind::open_mpi_4, 2) == words(MpiKind::open_mpi_4, 1));
  }
  line.mpirun = {"mpirun"};
  ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
  CHECK(words(MpiKind::open_mpi_4, 2) == words(MpiKind::open_mpi_4, 1));
  CHECK(SupervisedCommand{{"lockstep-train", "--data", "d", "--checkpoint-dir", "c", "--threads", "3"}}.threads() == 3);
  CHECK(SupervisedCommand{{"other", "--threads", "3"}}.threads() == 1);
  const Texts on_gpus{"lockstep-train", "--data", "d", "--checkpoint-dir", "c", "--device", "cuda"};
  CHECK(SupervisedCommand{on_gpus}.needs_gpus());
  Texts shared = on_gpus;
  shared.emplace_back("--allow-shared-gpu");
  CHECK_FALSE(SupervisedCommand{shared}.needs_gpus());
}

TEST_CASE("MPICH's mpiexec is told to let the others speak when a rank has died, on this host alone") {
  const auto words = [](const Texts& given) {
    CommandLine line = parse(given);
    line.mpi = MpiKind::mpich;
    return JobCommand{line, {.ranks = line.ranks, .hosts = line.hosts}, {"x"}}.words();
  };
  const auto is_told = [&](const Texts& given) {
    return std::ranges::count(words(given), "-disable-auto-cleanup") == 1;
  };
  CHECK(words({"-n", "2", "--mpirun", "a/mpiexec", "--", "x"}) ==
        Texts{"a/mpiexec", "-disable-auto-cleanup", "-n", "2", "x"});
  CHECK(is_told({"--host", "localhost:2", "--mpirun", "mpirun", "--", "x"}));
  CHECK(is_told({"-n", "2", "--mpirun", "mpirun -disable-auto-cleanup", "--", "x"}));
  CHECK_FALSE(is_told({"--host", "a:2", "--mpirun", "mpirun", "--", "x"}));
  CHECK_FALSE(is_told({"-n", "2", "--mpirun", "mpirun -f hosts", "--", "x"}));
  CHECK_FALSE(is_told({"-n", "2", "--mpirun", "mpirun --hosts a,b", "--", "x"}));
  CHECK_FALSE(is_told({"-n", "2", "--mpirun", "srun", "--", "x"}));
}

TEST_CASE("what a scheduler gave the job is its size and its hosts, and what is asked for has to fit") {
  CHECK(expand_hosts("a[1-3,07],rack[0-1]n[9-10],b", "L") ==
        Texts{"a1", "a2", "a3", "a07", "rack0n9", "rack0n10", "rack1n9", "rack1n10", "b"});
  CHECK(expand_hosts("n[008-010]", "L") == Texts{"n008", "n009", "n010"});
  CHECK(expand_counts("2(x10),5", "C").size() == 11);
  CHECK(expand_counts("2(x3),5", "C") == std::vector{2, 2, 2, 5});
  for (const char* wrong : {"", "a[", "a]", "a[1-]", "a[3-1]", "a[x]", "a,,b", "a[0-99999999]"})
    CHECK_THROWS_WITH(expand_hosts(wrong, "L"), Catch::StartsWith("L ") && Catch::Contains(": expected hosts such as"));
  for (const char* wrong : {"", "2(x", "2(x)", "0", "2(x0)", "-1", "2(x99999999)", "2147483647(x2)"})
    CHECK_THROWS_WITH(expand_counts(wrong, "C"), Catch::Contains(": expected numbers such as"));

  const test::TemporaryDirectory folder;
  using Variables = std::map<std::string, std::string>;
  const auto read = [&](const Variables& variables, const Texts& words) {
    return parse(words, [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  const Variables slurm{
      {"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NODELIST", "n[1-2],big"}, {"SLURM_TASKS_PER_NODE", "2(x2),4"}};
  const Variables pbs{{"PBS_NODEFILE", folder.write("nodes", "a\nb\na\n")}};
  const Variables operated{{"OMPI_MCA_orte_default_hostfile",
                            folder.write("hostfile", "x-worker-0.x.ns.svc slots=2\nx-worker-1.x.ns.svc:3\n")}};
  CommandLine line = read(slurm, {"--", "x"});
  CHECK(line.ranks == 8);
  CHECK(line.hosts == std::vector<Host>{{"n1", 2}, {"n2", 2}, {"big", 4}});
  CHECK(line.allocation == "Slurm job 12 has 8 slots on n1:2,n2:2,big:4");
  // MPI's launcher knows them itself, but not which of them are left.
  const auto names_hosts = [&](const Start& start) {
    const Texts command = JobCommand{line, start, {"x"}}.words();
    return std::ranges::find(command, line.mpi == MpiKind::intel_mpi ? "-hosts" : "--host") != command.end();
  };
  CHECK_FALSE(names_hosts({.ranks = 8, .hosts = line.hosts}));
  CHECK(names_hosts({.ranks = 4, .hosts = {{"big", 4}}}));
  const auto has_word = [](const CommandLine& of, const char* word) {
    const Texts command = JobCommand{of, {.ranks = of.ranks, .hosts = of.hosts}, {"x"}}.words();
    return std::ranges::find(command, word) != command.end();
  };
  CHECK(has_word(read(pbs, {"--", "x"}), "--host") == is_open_mpi(line.mpi));
  CHECK_FALSE(has_word(read(slurm, {"--mpirun", "srun", "--", "x"}), "-x"));
  // srun takes the host of each rank.
  const CommandLine by_srun = read(slurm, {"--mpirun", "srun --mpi=pmix", "--", "x"});
  CHECK(JobCommand{by_srun, {.ranks = 3, .hosts = {{"n2", 2}, {"big", 4}}}, {"x"}}.words() ==
        Texts{"srun", "--mpi=pmix", "-n", "3", "--distribution=arbitrary", "--nodelist", "n2,n2,big", "x"});
  const std::string spec = folder.write("spec.json", R"({"cluster": {"worker": ["big:1", "n1:1"]}})");
  const CommandLine placed = read(slurm, {"--mpirun", "srun", "--cluster-spec", spec, "--", "x"});
  CHECK_THAT((JobCommand{placed, {.ranks = 2, .hosts = placed.hosts}, {"x"}}.script()),
             Catch::EndsWith("\nsrun -n 2 --distribution=arbitrary --nodelist big,n1 x\n"));
  CHECK(read(pbs, {"--", "x"}).hosts == std::vector<Host>{{"a", 2}, {"b", 1}});
  CHECK(read(operated, {"-n", "4", "--", "x"}).ranks == 4);
  CHECK(read(operated, {"--", "x"}).ranks == 5);
  CHECK(read({{"SLURM_JOB_NODELIST", host_name()}, {"SLURM_TASKS_PER_NODE", "2"}}, {"--host", "localhost:2", "--", "x"})
            .ranks == 2);
  CHECK(read(slurm, {"--ignore-scheduler", "-n", "9", "--", "x"}).allocation == "");
  // Options count before the allocation, within it.
  line = read(slurm, {"--host", "n2.cluster:1,big:4", "--", "x"});
  CHECK(line.ranks == 5);
  CHECK(line.allocation == "");
  const auto refusal = [&](Variables variables, const Variables& other, const Texts& words) -> std::string {
    for (const auto& [name, value] : other) variables[name] = value;
    try {
      (void)read(variables, words);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal(slurm, {}, {"-n", "9", "--", "x"}) ==
        "-n 9: Slurm job 12 has 8 slots on n1:2,n2:2,big:4; expected at most as many ranks, or --ignore-scheduler");
  CHECK(refusal(slurm, {}, {"--host", "n1:3", "--", "x"}) ==
        "host n1 is to take 3 ranks, and has 2 in Slurm job 12; expected at most as many, or --ignore-scheduler");
  CHECK_THAT(refusal(slurm, {}, {"--host", "c:1", "--", "x"}), Catch::StartsWith("host c is not in Slurm job 12"));
  CHECK_THAT(refusal(slurm, {{"SLURM_TASKS_PER_NODE", "2"}}, {"--", "x"}),
             Catch::StartsWith("SLURM_TASKS_PER_NODE 2: expected a number for each of the 3 nodes"));
  CHECK_THAT(refusal(pbs, {{"PBS_NODEFILE", "/proc/none"}}, {"--", "x"}),
             Catch::StartsWith("PBS_NODEFILE /proc/none: "));
}

TEST_CASE("a host is told apart that has another version, no data, no room or no GPU, or does not answer") {
  adopt_orphans();
  const test::TemporaryDirectory folder;
  const auto program = [&](const std::string& host, const std::string& says) {
    std::filesystem::create_directories(folder.path() / host);
    folder.write(host + "/train", fmt::format("#!/bin/sh\n{}\n", says));
    std::filesystem::permissions(folder.path() / host / "train", std::filesystem::perms::owner_all);
  };
  for (const char* host : {"old", "new", "newer"}) program(host, fmt::format("echo train {}", host[0] == 'o' ? 1 : 2));
  program("broken", "echo no libmpi >&2; exit 127");
  // As mpirun -n 1 --host HOST PROGRAM…, where each host has its own programs.
  const Texts mpirun{
      "sh", "-c",
      fmt::format("case $3 in gone) exit 255;; mute) exec sleep 1000;; esac; shift; shift; PATH={}/$1:/usr/bin:/bin; "
                  "export PATH; shift; exec \"$@\"",
                  folder.path().string())};
  const auto lines = [&](const std::vector<Host>& hosts, const ProbeOptions& more) {
    ProbeOptions options = more;
    options.mpirun = mpirun;
    options.hosts = hosts;
    options.program = "train";
    return probe(options);
  };
  CHECK(lines({{"new", 2}, {"newer", 2}}, {}).empty());
  const Texts some = lines({{"old", 1}, {"new", 1}, {"newer", 1}, {"broken", 1}, {"gone", 1}, {"mute", 1}, {"none", 1}},
                           {.patience = std::chrono::seconds{3}});
  REQUIRE(some.size() == 5);
  CHECK(some[0] == "host old: has train 1, and the others have train 2");
  CHECK(some[1] == "host broken: train does not run there: no libmpi");
  CHECK(some[2] == "host gone: cannot be reached");
  CHECK(some[3] == "host mute: does not answer");
  CHECK_THAT(some[4], Catch::StartsWith("host none: train does not run there: ") && Catch::EndsWith("not found"));
  const std::string here = folder.path();
  CHECK(lines({{"new", 1}}, {.paths = {here, here + "/data of mine"}}) ==
        Texts{"host new: " + here + "/data of mine is not there"});
  const Texts greedy = lines({{"new", 3}}, {.needs_gpus = true, .shared_bytes_of_rank = std::int64_t{1} << 50});
  REQUIRE(greedy.size() == 1);
  CHECK_THAT(greedy.front(),
             Catch::StartsWith("host new: /dev/shm has ") && Catch::EndsWith("; GPUs: nvidia-smi finds 0; expected 3"));
  // A program of somebody else need not know --version, nor lie in the same folder.
  program("new", "exit 1");
  CHECK(lines({{"new", 1}, {"newer", 1}}, {.has_version = false}).empty());
  CHECK(lines({{"none", 1}}, {.has_version = false}) == Texts{"host none: train does not run there: not found"});
  // Whoever is told to stop hears nothing more.
  CHECK(lines({{"mute", 1}}, {.wait = [](std::chrono::milliseconds) { return false; }}).empty());
}

TEST_CASE("what a training needs on each host is what it reads, and the part of its folder that is there") {
  const test::TemporaryDirectory there;
  const SupervisedCommand command{{"lockstep-train", "--data", "d", "--checkpoint-dir", there.path() / "a/b/"}};
  CHECK(command.needed_paths() == std::vector<std::filesystem::path>{"d", there.path()});
  const SupervisedCommand with_folder{{"lockstep-train", "--data", "d", "--run-dir", there.path() / "run"}};
  CHECK(with_folder.checkpoints() == there.path() / "run/checkpoints");
  CHECK(with_folder.needed_paths() == command.needed_paths());
  const Texts words{"lockstep-train", "--data", "d", "--checkpoint-dir", "c", "--device", "cuda"};
  CHECK(SupervisedCommand{words}.needs_gpus());
}

}  // namespace lockstep::test::run_launch_cases
