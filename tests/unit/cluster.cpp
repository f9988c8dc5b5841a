// Cluster specs, TF_CONFIG, which rank is which task, and which device a rank uses.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/cluster/cluster_spec.hpp"
#include "core/cluster/device_binding.hpp"
#include "core/cluster/rank_map.hpp"
#include "core/cluster/tf_config.hpp"

using namespace lockstep;
using Tasks = std::vector<Task>;

namespace {

const std::string three_tasks =
    R"({"cluster": {"worker": ["b:2222", "c:2222"], "chief": ["a:2222"]}, "replicas_per_task": 4})";

RankMap twelve_ranks() {
  return {ClusterSpec::parse(three_tasks, "cluster.json"), 12};
}

ClusterSpec workers(int count) {
  return ClusterSpec::one_task_per_rank(count);
}

}  // namespace

// --- the spec ---

TEST_CASE("a spec lists its chief first, then its workers, whatever the order of the text", "[D-15]") {
  const ClusterSpec spec = ClusterSpec::parse(three_tasks);
  CHECK(spec.tasks() == Tasks{{"chief", 0}, {"worker", 0}, {"worker", 1}});
  CHECK(spec.has_chief());
  CHECK(spec.num_workers() == 2);
  CHECK(spec.num_tasks() == 3);
  CHECK(spec.replicas_per_task() == 4);
  CHECK(spec.world_size() == 12);
  CHECK(spec.address({"chief", 0}) == "a:2222");
  CHECK(spec.address({"worker", 1}) == "c:2222");
  CHECK(to_string(Task{"worker", 3}) == "worker:3");
}

TEST_CASE("replicas_per_task is 1 unless given, and a job may do without a chief or without workers", "[D-16]") {
  const ClusterSpec no_chief = ClusterSpec::parse(R"({"cluster": {"worker": ["a:1", "b:1"]}})");
  CHECK(no_chief.replicas_per_task() == 1);
  CHECK_FALSE(no_chief.has_chief());
  CHECK(no_chief.tasks() == Tasks{{"worker", 0}, {"worker", 1}});
  const ClusterSpec only_chief = ClusterSpec::parse(R"({"cluster": {"chief": ["a:1"], "worker": []}})");
  CHECK(only_chief.tasks() == Tasks{{"chief", 0}});
}

TEST_CASE("an evaluator has an address but is no rank", "[D-15][D-24]") {
  const ClusterSpec spec = ClusterSpec::parse(R"({"cluster": {"worker": ["a:1"], "evaluator": ["e:1"]}})");
  CHECK(spec.has_evaluator());
  CHECK(spec.tasks() == Tasks{{"worker", 0}});
  CHECK(spec.world_size() == 1);
  CHECK(spec.address({"evaluator", 0}) == "e:1");
}

TEST_CASE("a job by index is ordered by number: task 10 after task 2", "[D-19][D-40]") {
  std::string job;
  for (const char* index : {"10", "9", "1", "0", "2", "11", "3", "8", "7", "6", "5", "4"})
    job += std::string{job.empty() ? "" : ", "} + "\"" + index + "\": \"host-" + index + ":2222\"";
  const ClusterSpec spec = ClusterSpec::parse(R"({"cluster": {"worker": {)" + job + "}}}");
  CHECK(spec.num_workers() == 12);
  CHECK(spec.tasks()[2] == Task{"worker", 2});
  CHECK(spec.tasks()[10] == Task{"worker", 10});
  CHECK(spec.address({"worker", 2}) == "host-2:2222");
  CHECK(spec.address({"worker", 10}) == "host-10:2222");
}

TEST_CASE("names, IPv4 and bracketed IPv6 are addresses") {
  const ClusterSpec spec = ClusterSpec::parse(
      R"({"cluster": {"worker": ["localhost:1", "10.0.0.1:65535", "[::1]:22", "[fe80::1%eth0]:22",
                                 "node_1.rack-2.example.org:2222", "localhost:2"]}})");
  CHECK(spec.num_workers() == 6);
  CHECK(spec.address({"worker", 3}) == "[fe80::1%eth0]:22");
}

TEST_CASE("the other keys of TF_CONFIG are accepted and change nothing", "[D-44]") {
  const ClusterSpec spec = ClusterSpec::parse(
      R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}, "rpc_layer": "grpc",
          "session_master": "", "environment": {"cloud": true}})");
  CHECK(spec.world_size() == 1);
}

TEST_CASE("a job without a spec has one worker per rank", "[D-44]") {
  const ClusterSpec spec = workers(3);
  CHECK(spec.tasks() == Tasks{{"worker", 0}, {"worker", 1}, {"worker", 2}});
  CHECK(spec.world_size() == 3);
  CHECK(spec.address({"worker", 0}) != spec.address({"worker", 1}));
  CHECK(ClusterSpec::parse(spec.canonical()).tasks() == spec.tasks());
  CHECK_THROWS_AS(workers(0), InvalidArgument);
}

TEST_CASE("a task that the spec does not have has no address") {
  const ClusterSpec spec = ClusterSpec::parse(three_tasks, "cluster.json");
  CHECK_THROWS_WITH(spec.address({"worker", 2}), "cluster.json: there is no task worker:2");
  CHECK_THROWS_AS(spec.address({"worker", -1}), InvalidArgument);
  CHECK_THROWS_AS(spec.address({"evaluator", 0}), InvalidArgument);
  CHECK_THROWS_AS(spec.address({"ps", 0}), InvalidArgument);
}

TEST_CASE("specs that mean the same have one canonical text", "[D-18][D-20]") {
  const std::string canonical = ClusterSpec::parse(three_tasks).canonical();
  const auto canonical_of = [](const std::string& text) { return ClusterSpec::parse(text, "other").canonical(); };
  CHECK(canonical_of(R"({"replicas_per_task":4,"rpc_layer":"grpc",
                         "cluster":{"chief":["a:2222"],"worker":{"1":"c:2222","0":"b:2222"},"evaluator":[]}})") ==
        canonical);
  CHECK(canonical_of(canonical) == canonical);
  CHECK(canonical_of(R"({"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}})") != canonical);
  CHECK(canonical_of(R"({"cluster": {"chief": ["a:2222"], "worker": ["c:2222", "b:2222"]},
                         "replicas_per_task": 4})") != canonical);
}

// --- ranks ---

TEST_CASE("ranks are the chief, then workers by number, and inside a task by replica",
          "[D-15][D-17][D-22][D-23][D-31]") {
  const RankMap ranks = twelve_ranks();
  CHECK(ranks.size() == 12);
  CHECK(ranks.task_of(0) == Task{"chief", 0});
  CHECK(ranks.task_of(3) == Task{"chief", 0});
  CHECK(ranks.task_of(4) == Task{"worker", 0});
  CHECK(ranks.task_of(11) == Task{"worker", 1});
  CHECK(ranks.replica_in_task(11) == 3);
  for (int rank = 0; rank < ranks.size(); ++rank) CHECK(ranks.replica_in_task(rank) == rank % 4);
}

TEST_CASE("with eleven workers, worker 10 is rank 10 and worker 2 is rank 2", "[D-22][D-40]") {
  const RankMap ranks{workers(11), 11};
  CHECK(ranks.task_of(10) == Task{"worker", 10});
  CHECK(ranks.task_of(2) == Task{"worker", 2});
}

TEST_CASE("an evaluator leaves no gap in the ranks", "[D-23]") {
  const RankMap ranks{ClusterSpec::parse(R"({"cluster": {"chief": ["a:1"], "evaluator": ["e:1"], "worker": ["b:1"]}})"),
                      2};
  CHECK(ranks.task_of(1) == Task{"worker", 0});
  CHECK(ranks.size() == 2);
}

TEST_CASE("another number of ranks than the spec makes is refused with both sides", "[D-21][D-24]") {
  const auto message = [](const std::string& text, int world_size) -> std::string {
    try {
      const RankMap ranks{ClusterSpec::parse(text, "cluster.json"), world_size};
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(three_tasks, 3) ==
        "cluster.json: 1 chief + 2 workers with 4 replicas each make 12 ranks, but the job has 3; expected "
        "mpirun "
        "-n 12");
  CHECK(message(three_tasks, 13) != "");
  CHECK(message(R"({"cluster": {"worker": ["a:1"], "evaluator": ["b:1"]}})", 2) ==
        "cluster.json: 1 worker makes 1 rank (the evaluator is not a rank), but the job has 2; expected mpirun -n 1");
  CHECK(message(R"({"cluster": {"chief": ["a:1"]}, "replicas_per_task": 2})", 1) ==
        "cluster.json: 1 chief with 2 replicas makes 2 ranks, but the job has 1; expected mpirun -n 2");
  CHECK(message(R"({"cluster": {"worker": ["a:1", "b:1"]}})", 0) ==
        "cluster.json: 2 workers make 2 ranks, but the job has 0; expected mpirun -n 2");
}

TEST_CASE("a rank outside the job is refused") {
  const RankMap ranks = twelve_ranks();
  CHECK_THROWS_WITH(ranks.task_of(12), "there is no rank 12 in a job of 12 ranks");
  CHECK_THROWS_AS(ranks.replica_in_task(-1), InvalidArgument);
  CHECK_THROWS_AS(ranks.device_name(12, DeviceKind::cpu), InvalidArgument);
}

TEST_CASE("a device is named by its task, a GPU also by its replica", "[D-16][D-39][K-19]") {
  const RankMap ranks = twelve_ranks();
  CHECK(ranks.device_name(0, DeviceKind::cuda) == "/job:chief/task:0/device:GPU:0");
  CHECK(ranks.device_name(9, DeviceKind::cuda) == "/job:worker/task:1/device:GPU:1");
  CHECK(ranks.device_name(9, DeviceKind::cpu) == "/job:worker/task:1/device:CPU:0");
}

TEST_CASE("a replica is described by rank, task and host") {
  CHECK(twelve_ranks().describe_replica(9, "b") == "replica 9 (worker:1, host b)");
  CHECK(RankMap{workers(4), 4}.describe_replica(3, "node-7") == "replica 3 (worker:3, host node-7)");
  CHECK(twelve_ranks().describe_replica(9, "b", 21) == "replica 9 (worker:1, world rank 21, host b)");
}

TEST_CASE("the replicas of a task must share a node, tasks may") {
  const RankMap ranks{
      ClusterSpec::parse(R"({"cluster": {"worker": ["a:1", "b:1"]}, "replicas_per_task": 2})", "cluster.json"), 4};
  using Hosts = std::vector<std::string>;
  CHECK_NOTHROW(ranks.require_tasks_on_one_node(Hosts{"a", "a", "b", "b"}));
  CHECK_NOTHROW(ranks.require_tasks_on_one_node(Hosts{"a", "a", "a", "a"}));
  CHECK_THROWS_AS(ranks.require_tasks_on_one_node(Hosts{"a", "b", "a", "b"}), ConfigError);
  CHECK_THROWS_WITH(
      ranks.require_tasks_on_one_node(Hosts{"a", "a", "a", "b"}),
      "cluster.json: worker:1 is spread over several hosts, such as rank 2 on a and rank 3 on b; expected all 2 "
      "replicas of a task on one host");
  CHECK_THROWS_AS(ranks.require_tasks_on_one_node(Hosts{"a", "a"}), InvalidArgument);
}

TEST_CASE("a task that runs on another node than the spec names is refused if that one is in the job") {
  const RankMap ranks{
      ClusterSpec::parse(R"({"cluster": {"worker": ["a:1", "b.site:1"]}, "replicas_per_task": 2})", "cluster.json"), 4};
  using Hosts = std::vector<std::string>;
  CHECK_NOTHROW(ranks.require_tasks_where_named(Hosts{"a.site", "a.site", "b", "b"}));
  CHECK_NOTHROW(ranks.require_tasks_where_named(Hosts{"x", "x", "y", "y"}));
  CHECK_THROWS_AS(ranks.require_tasks_where_named(Hosts{"B", "B", "A", "A"}), ConfigError);
  CHECK_THROWS_AS(ranks.require_tasks_where_named(Hosts{"b.site", "b.site", "a.site", "a.site"}), ConfigError);
  // Each name is that of the only node it can be, with a domain or without.
  CHECK_THROWS_WITH(ranks.require_tasks_where_named(Hosts{"x", "x", "a.site", "a.site"}), Catch::Contains("worker:0"));
  CHECK_THROWS_WITH(ranks.require_tasks_where_named(Hosts{"b", "b", "x", "x"}), Catch::Contains("worker:1"));
  CHECK_THROWS_WITH(
      ranks.require_tasks_where_named(Hosts{"b", "b", "a", "a"}),
      "cluster.json: worker:0 is named to be on a, but mpirun started it on b; expected a hostfile in the "
      "order of the spec");
}

TEST_CASE("a task on the node of another task is doubted, unless its own name may be one of that node") {
  using Hosts = std::vector<std::string>;
  const auto doubt = [](const std::string& first, const std::string& second, const Hosts& hosts) {
    const std::string text = R"({"cluster": {"worker": [")" + first + R"(", ")" + second + R"("]}})";
    const RankMap ranks{ClusterSpec::parse(text, "cluster.json"), 2};
    ranks.require_tasks_where_named(hosts);
    return ranks.doubt_about_nodes(hosts);
  };
  CHECK(doubt("a:1", "b:1", Hosts{"b", "b"}) ==
        "cluster.json: worker:0 is named to be on a, but runs on b, the node of worker:1; expected a hostfile in the "
        "order of the spec, unless a is another name of that node");
  CHECK(doubt("a:1", "b:1", Hosts{"a", "b"}).empty());
  CHECK(doubt("a.one:1", "b:1", Hosts{"x", "a.two"}).empty());  // another domain is another node
  CHECK(doubt("a:1", "b:1", Hosts{"x", "x"}).empty());
  CHECK(doubt("localhost:1", "localhost:2", Hosts{"x", "x"}).empty());
  CHECK(doubt("10.0.0.1:1", "10.0.0.2:1", Hosts{"a", "b"}).empty());
  CHECK(doubt("[fe80::1]:1", "[fe80::2]:1", Hosts{"a", "b"}).empty());
}

// --- TF_CONFIG ---

TEST_CASE("TF_CONFIG holds a cluster and possibly a task, whose index may be text", "[D-44][D-45]") {
  const auto task_in = [](const std::string& task) {
    return parse_tf_config(R"({"cluster": {"worker": ["a:1", "b:1"], "evaluator": ["e:1"]})" + task + "}").task;
  };
  CHECK(task_in(R"(, "task": {"type": "worker", "index": 1})") == Task{"worker", 1});
  CHECK(task_in(R"(, "task": {"type": "worker", "index": "1", "trial": "x"})") == Task{"worker", 1});
  CHECK(task_in(R"(, "task": {"type": "evaluator", "index": 0})") == Task{"evaluator", 0});
  CHECK(task_in(R"(, "task": {})") == std::nullopt);
  CHECK(task_in("") == std::nullopt);
  CHECK(parse_tf_config(three_tasks).cluster.world_size() == 12);
  CHECK_THROWS_WITH(parse_tf_config("{"), Catch::StartsWith("TF_CONFIG: "));
}

TEST_CASE("a task that is the same on all ranks means nothing, any other must match its rank", "[D-43]") {
  const RankMap ranks{ClusterSpec::parse(R"({"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}})", "TF_CONFIG"),
                      3};
  using Given = std::vector<std::optional<Task>>;
  const Task chief{"chief", 0};
  const Task first{"worker", 0};
  const Task second{"worker", 1};
  CHECK_NOTHROW(require_tasks_match_ranks(Given{first, first, first}, ranks));
  CHECK_NOTHROW(require_tasks_match_ranks(Given{{}, {}, {}}, ranks));
  CHECK_NOTHROW(require_tasks_match_ranks(Given{chief, first, second}, ranks));
  CHECK_NOTHROW(require_tasks_match_ranks(Given{chief, {}, second}, ranks));
  CHECK_THROWS_AS(require_tasks_match_ranks(Given{{}, {}, first}, ranks), ConfigError);
  CHECK_THROWS_AS(require_tasks_match_ranks(Given{first, chief, second}, ranks), ConfigError);
  CHECK_THROWS_WITH(require_tasks_match_ranks(Given{chief, second, second}, ranks),
                    "TF_CONFIG: key \"task\": rank 1 was given worker:1; expected worker:0, or the same task on all "
                    "ranks");
  CHECK_THROWS_AS(require_tasks_match_ranks(Given{chief}, ranks), InvalidArgument);
}

// --- devices ---

namespace {

/// What the ranks see where each sees all GPUs of the node.
std::vector<VisibleGpus> all_see(int ranks, int gpus) {
  VisibleGpus all;
  for (int gpu = 0; gpu < gpus; ++gpu) all.push_back("gpu" + std::to_string(gpu));
  return std::vector<VisibleGpus>(static_cast<std::size_t>(ranks), all);
}

/// The GPU of each rank by its number in that rank's process.
std::vector<int> bound(NodePlace place) {
  std::vector<int> indices;
  for (const auto& unused : place.visible) {
    (void)unused;
    const DeviceBinding binding = bind_device(place);
    CHECK(binding.kind == DeviceKind::cuda);
    indices.push_back(binding.index);
    ++place.rank_in_node;
  }
  return indices;
}

}  // namespace

TEST_CASE("each rank of a node takes the GPU of its number", "[D-1][D-37]") {
  for (const DeviceRequest request : {DeviceRequest{}, DeviceRequest{DeviceKind::cuda}})
    CHECK(bound({.requested = request, .visible = all_see(4, 4)}) == std::vector{0, 1, 2, 3});
  // Fewer ranks than GPUs leave some idle.
  CHECK(bound({.visible = all_see(2, 8)}) == std::vector{0, 1});
}

TEST_CASE("ranks that see other GPUs than their neighbours take different ones", "[D-5]") {
  // A launcher may show each rank its own GPU, which is number 0 there.
  CHECK(bound({.visible = {{"a"}, {"b"}, {"c"}}}) == std::vector{0, 0, 0});
  CHECK(bound({.visible = {{"a", "b"}, {"b", "a"}}}) == std::vector{0, 0});
  CHECK(bound({.visible = {{"a", "b"}, {"a", "b"}, {"b", "c"}}}) == std::vector{0, 1, 1});
  // The first could take any; the others see one each.
  CHECK(bound({.visible = {{"a", "b", "c"}, {"a"}, {"b"}}}) == std::vector{2, 0, 0});
  for (int rank = 0; rank < 2; ++rank) {
    CHECK_THROWS_WITH(
        bind_device({.rank_in_node = rank, .visible = {{"a"}, {"a"}}}),
        "--device auto: 2 ranks on this node, which has 1 GPU; expected one for each rank, or --device cpu");
    CHECK_THROWS_WITH(bind_device({.rank_in_node = rank, .visible = {{"a"}, {"a"}, {"b"}}}),
                      Catch::Contains("3 ranks on this node, which has 2 GPUs"));
  }
  CHECK(bound({.visible = {{"a"}, {"a"}, {"b"}}, .allow_shared_gpu = true}) == std::vector{0, 0, 0});
}

TEST_CASE("ranks share a GPU only where there are fewer GPUs than ranks") {
  const auto shared = [](std::vector<VisibleGpus> visible) {
    return shares_gpu({.visible = std::move(visible), .allow_shared_gpu = true});
  };
  CHECK_FALSE(shared({{"a"}, {"b"}}));
  CHECK_FALSE(shared(all_see(2, 2)));
  CHECK(shared({{"a"}, {"a"}}));
  CHECK(shared(all_see(3, 2)));
  CHECK_FALSE(shares_gpu({.requested = DeviceKind::cpu, .visible = all_see(3, 2)}));
}

TEST_CASE("without GPUs auto takes the CPU and cuda is refused", "[D-1][D-33][D-37]") {
  CHECK(bind_device({.rank_in_node = 3, .visible = all_see(4, 0)}) == DeviceBinding{DeviceKind::cpu, 0});
  CHECK_THROWS_AS(bind_device({.requested = DeviceKind::cuda, .visible = all_see(1, 0)}), ConfigError);
  CHECK_THROWS_WITH(bind_device({.requested = DeviceKind::cuda, .visible = all_see(2, 0), .allow_shared_gpu = true}),
                    Catch::StartsWith("--device cuda: this node has no GPU"));
  // On each rank of the node, also on one that sees a GPU.
  for (int rank = 0; rank < 3; ++rank)
    CHECK_THROWS_WITH(bind_device({.requested = DeviceKind::cuda, .rank_in_node = rank, .visible = {{"a"}, {}, {"b"}}}),
                      Catch::StartsWith("--device cuda: of 3 ranks on this node, 1 sees no GPU"));
  CHECK_THROWS_WITH(
      bind_device({.requested = DeviceKind::cuda, .visible = {{"a"}, {}, {}}, .why_none = {"", "of this", "of that"}}),
      "--device cuda: of 3 ranks on this node, 2 see no GPU that can be used: of this; expected one for "
      "each rank, or --device cpu");
}

TEST_CASE("the CPU is taken when asked for, however many GPUs and ranks there are") {
  CHECK(bind_device({.requested = DeviceKind::cpu, .rank_in_node = 3, .visible = all_see(4, 2)}) ==
        DeviceBinding{DeviceKind::cpu, 0});
}

TEST_CASE("more ranks than GPUs are refused on every rank of the node, unless GPUs may be shared", "[D-5][D-28]") {
  for (const DeviceRequest request : {DeviceRequest{}, DeviceRequest{DeviceKind::cuda}}) {
    for (int rank = 0; rank < 3; ++rank)
      CHECK_THROWS_AS(bind_device({.requested = request, .rank_in_node = rank, .visible = all_see(3, 2)}), ConfigError);
    CHECK(bound({.requested = request, .visible = all_see(3, 2), .allow_shared_gpu = true}) == std::vector{0, 1, 0});
  }
  CHECK_THROWS_WITH(
      bind_device({.visible = all_see(2, 1)}),
      "--device auto: 2 ranks on this node, which has 1 GPU; expected one for each rank, or --device cpu");
}

TEST_CASE("auto is one kind of device for all ranks: the CPU as soon as one of them finds no GPU", "[D-30][E-15]") {
  const auto settled = [](DeviceRequest requested, const std::vector<int>& gpus) {
    return settle_request(requested, gpus);
  };
  CHECK(settled(DeviceRequest{}, {4, 4, 4, 4}) == DeviceRequest{});
  CHECK(settled(DeviceRequest{}, {4, 2, 1}) == DeviceRequest{});
  CHECK(settled(DeviceRequest{}, {4, 4, 0}) == DeviceKind::cpu);
  CHECK(settled(DeviceRequest{}, {0, 4, 4}) == DeviceKind::cpu);
  CHECK(settled(DeviceRequest{}, {0, 0}) == DeviceKind::cpu);
  // What a user asks for stays, and is refused where it cannot be.
  CHECK(settled(DeviceKind::cuda, {4, 0}) == DeviceKind::cuda);
  CHECK(settled(DeviceKind::cpu, {4, 4}) == DeviceKind::cpu);
  // A rank whose node has GPUs is bound to the CPU then, also where its node has more ranks than GPUs.
  CHECK(bind_device({.requested = settled(DeviceRequest{}, {2, 0}), .visible = all_see(3, 2)}) ==
        DeviceBinding{DeviceKind::cpu, 0});
}

TEST_CASE("the GPUs of a node that no rank is bound to are known", "[E-16]") {
  CHECK(unused_gpus({.visible = all_see(2, 4)}) == std::vector{2, 3});
  CHECK(unused_gpus({.rank_in_node = 1, .visible = all_see(2, 4)}) == std::vector{2, 3});
  CHECK(unused_gpus({.visible = all_see(4, 4)}).empty());
  CHECK(unused_gpus({.visible = all_see(4, 2), .allow_shared_gpu = true}).empty());
  CHECK(unused_gpus({.requested = DeviceKind::cpu, .visible = all_see(1, 2)}) == std::vector{0, 1});
  CHECK(unused_gpus({.visible = all_see(4, 0)}).empty());
  // Each rank knows those that it sees, by its own numbers.
  const std::vector<VisibleGpus> visible{{"a", "b"}, {"c", "d", "b"}};
  CHECK(unused_gpus({.visible = visible}) == std::vector{1});
  CHECK(unused_gpus({.rank_in_node = 1, .visible = visible}) == std::vector{1, 2});
}

TEST_CASE("a place that cannot be is refused") {
  CHECK_THROWS_AS(bind_device({.rank_in_node = 2, .visible = all_see(2, 1)}), InvalidArgument);
  CHECK_THROWS_AS(bind_device({.rank_in_node = -1, .visible = all_see(1, 1)}), InvalidArgument);
  CHECK_THROWS_AS(bind_device({}), InvalidArgument);
}

TEST_CASE("device requests are known by name") {
  for (const DeviceRequest request : {DeviceRequest{}, DeviceRequest{DeviceKind::cpu}, DeviceRequest{DeviceKind::cuda}})
    CHECK(parse_device_request(name_of(request)) == request);
  CHECK_THROWS_WITH(parse_device_request("gpu"), "--device: expected auto, cpu or cuda, got \"gpu\"");
  CHECK_THROWS_AS(parse_device_request(""), ConfigError);
  CHECK_THROWS_AS(parse_device_request("CPU"), ConfigError);
}
