// Lists of devices: what users may write, and which GPU each rank takes for it.
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/cluster/device_list.hpp"

using namespace lockstep;

namespace {

using Numbers = std::vector<int>;

/// Workers 0 and 1 with two replicas each: ranks 0 to 3.
RankMap two_by_two() {
  return {ClusterSpec::parse(R"({"cluster": {"worker": ["a:1", "b:1"]}, "replicas_per_task": 2})"), 4};
}

/// Of a node with ranks 0 and 1, for a list of numbers.
Numbers numbers_of(const std::string& list) {
  Numbers numbers;
  for (const ChosenGpu& gpu : DeviceList::parse(list).gpus_of({0, 1}, two_by_two())) {
    CHECK(gpu.uuid.empty());
    numbers.push_back(gpu.number);
  }
  return numbers;
}

void check_refused(const std::string& list, const std::string& why) {
  INFO(list);
  CHECK_THROWS_WITH(DeviceList::parse(list).gpus_of({0, 1}, two_by_two()), Catch::Contains(why));
  CHECK_THROWS_AS(DeviceList::parse(list).gpus_of({0, 1}, two_by_two()), ConfigError);
  CHECK_THROWS_WITH(DeviceList::parse(list).gpus_of({0, 1}, two_by_two()), Catch::StartsWith("--devices: "));
}

/// What each rank of a node is bound to that sees these GPUs.
Numbers bound(const std::vector<ChosenGpu>& chosen, std::vector<VisibleGpus> visible, bool shared = false) {
  Numbers indices;
  for (int rank = 0; rank < static_cast<int>(visible.size()); ++rank)
    indices.push_back(bind_device({.requested = DeviceKind::cuda,
                                   .rank_in_node = rank,
                                   .visible = visible,
                                   .chosen = chosen,
                                   .allow_shared_gpu = shared})
                          .index);
  return indices;
}

const VisibleGpus four{"0a11", "0b22", "0b33", "0c44"};

}  // namespace

TEST_CASE("what a device's name leaves out is filled in", "[D-7]") {
  for (const char* list : {"0,2", "GPU:0,GPU:2", "GPU,2", "/device:GPU:0,/device:GPU:2",
                           "/job:localhost/device:GPU,GPU:2", "/job:localhost/replica:0/task:0/device:GPU:0,2"}) {
    INFO(list);
    CHECK(numbers_of(list) == Numbers{0, 2});
  }
  const std::vector<ChosenGpu> uuids{{.uuid = "0b22ffee"}, {.number = 3}};
  CHECK(DeviceList::parse("GPU-0B22-ffee,3").gpus_of({2, 3}, two_by_two()) == uuids);
  CHECK(DeviceList::parse("1").kind() == DeviceKind::cuda);
}

TEST_CASE("the CPU is one device, for one rank or all", "[D-7]") {
  for (const char* list : {"CPU", "CPU:0", "CPU:0,CPU:0",
                           "/job:worker/task:0/device:CPU:0,/job:worker/task:1/device:CPU,"
                           "/job:worker/task:1/device:CPU,/job:worker/task:0/device:CPU"}) {
    INFO(list);
    CHECK(DeviceList::parse(list).kind() == DeviceKind::cpu);
    CHECK(numbers_of(list).empty());
  }
  check_refused("CPU:1", "the CPU is one device, CPU:0");
  check_refused("CPU:0,CPU:0,CPU:0", "3 devices for this node, which runs 2 ranks");
}

TEST_CASE("types of devices are spelt in capitals", "[D-8]") {
  for (const char* list : {"gpu:0,gpu:1", "/device:gpu:0", "cpu"})
    check_refused(list, "written in capitals: GPU or CPU");
  for (const char* list :
       {"TPU:0,TPU:1", "GPU:,1", "GPU:x,1", "-1,0", "1.5,0", "/device:GPU:0/device:GPU:1,1", "/,1", "/job:worker,1",
        "/GPU:0,1", "GPU:0/task:1,1", "/device,1", "/replica:1/device:GPU:0,1", "99999999999,1"})
    check_refused(list, "expected a device such as 0, GPU:0, GPU-<UUID>, CPU:0 or /job:worker/task:0/device:GPU:0");
  check_refused("GPU-,1", "expected a UUID as nvidia-smi -L prints it");
}

TEST_CASE("a list is of the devices of every node, or of every task, as its first entry is", "[D-9][D-26]") {
  const std::string tasks =
      "/job:worker/task:1/device:GPU:5,/job:worker/task:0/device:GPU:3,/job:worker/task:0/device:GPU:1,"
      "/job:worker/task:1/device:GPU:4";
  const DeviceList list = DeviceList::parse(tasks);
  const auto numbers = [&](const std::vector<int>& ranks) {
    Numbers numbers;
    for (const ChosenGpu& gpu : list.gpus_of(ranks, two_by_two())) numbers.push_back(gpu.number);
    return numbers;
  };
  CHECK(numbers({0, 1}) == Numbers{3, 1});
  CHECK(numbers({2, 3}) == Numbers{5, 4});
  CHECK(numbers({0, 1, 2, 3}) == Numbers{3, 1, 5, 4});
  check_refused("/job:worker/task:0/device:GPU:3", "1 device for worker:0, which runs 2 ranks; expected one for each");
  const std::string of_one = "/job:worker/task:0/device:GPU:3,/job:worker/task:0/device:GPU:1";
  CHECK_THROWS_WITH(DeviceList::parse(of_one).gpus_of({2, 3}, two_by_two()),
                    "--devices: 0 devices for worker:1, which runs 2 ranks; expected one for each");
  check_refused(tasks + ",/job:worker/task:2/device:GPU:0", "worker:2 is no task of this job, which has 2 tasks");
  check_refused("0,1,2", "3 devices for this node, which runs 2 ranks; expected one for each");
}

TEST_CASE("a list of one kind has no entry of the other", "[D-10][D-11]") {
  check_refused("GPU:0,/job:worker/task:0/device:GPU:1",
                "has a task, but the first entry of the list has none; expected all or none");
  check_refused("/job:worker/task:0/device:GPU:0,GPU:1",
                "has no task, but the first entry of the list has one; expected all or none");
  check_refused("GPU:0,CPU:0", "the list has GPUs and CPUs; expected one kind");
}

TEST_CASE("a device of a job names its task", "[D-12]") {
  check_refused("/job:worker/device:GPU:0,/job:worker/device:GPU:1", "has a job without a task; expected both");
  check_refused("/task:0/device:GPU:0,GPU:1", "has a task without a job; expected both");
}

TEST_CASE("an empty list chooses nothing, and cannot be written", "[D-13]") {
  CHECK(DeviceList{}.empty());
  CHECK(DeviceList{}.gpus_of({0, 1}, two_by_two()).empty());
  for (const char* list : {"", ",", "0,", ",0", "0,,1"}) check_refused(list, "expected devices, separated by commas");
}

TEST_CASE("ranks take the GPUs that were chosen, by number or UUID", "[D-1]") {
  CHECK(bound({{.number = 2}, {.number = 0}}, {four, four}) == Numbers{2, 0});
  CHECK(bound({{.uuid = "0c"}, {.uuid = "0b22"}}, {four, four}) == Numbers{3, 1});
  // A rank counts the GPUs that it sees.
  CHECK(bound({{.number = 0}, {.uuid = "0a"}}, {{"0c44", "0a11"}, {"0b22", "0a11"}}) == Numbers{0, 1});
}

TEST_CASE("a chosen GPU that is not there, or that two ranks would share, is refused on every rank", "[D-5][F-5]") {
  const auto refused = [](const std::vector<ChosenGpu>& chosen, const std::string& why) {
    for (const int rank : {0, 1})
      CHECK_THROWS_WITH(
          bind_device({.requested = DeviceKind::cuda, .rank_in_node = rank, .visible = {four, four}, .chosen = chosen}),
          "--devices: " + why);
  };
  refused({{.number = 0}, {.number = 4}},
          "GPU:4 is none of 4 GPUs that a rank of this node sees; expected one of them");
  refused({{.number = 0}, {.uuid = "0d"}},
          "GPU-0d is none of 4 GPUs that a rank of this node sees; expected one of them");
  refused({{.number = 0}, {.uuid = "0b"}},
          "GPU-0b is more than one of 4 GPUs that a rank of this node sees; expected one of them");
  refused({{.number = 1}, {.uuid = "0b2"}},
          "GPU:1 and GPU-0b2 are one GPU of this node; expected another one for each rank");
  CHECK(bound({{.number = 1}, {.uuid = "0b2"}}, {four, four}, true) == Numbers{1, 1});
  CHECK_THROWS_WITH(bind_device({.requested = DeviceKind::cuda, .visible = {{}}, .chosen = {{.number = 0}}}),
                    "--devices: this node has no GPU that can be used; expected one for each rank, or --device cpu");
  CHECK_THROWS_AS(bind_device({.requested = DeviceKind::cuda, .visible = {four}, .chosen = {{}, {}}}), InvalidArgument);
}

TEST_CASE("a device has the number that was chosen") {
  const RankMap ranks = two_by_two();
  CHECK(ranks.device_name(3, DeviceKind::cuda) == "/job:worker/task:1/device:GPU:1");
  CHECK(ranks.device_name(3, DeviceKind::cuda, 5) == "/job:worker/task:1/device:GPU:5");
  CHECK(ranks.device_name(3, DeviceKind::cpu, 0) == "/job:worker/task:1/device:CPU:0");
}
