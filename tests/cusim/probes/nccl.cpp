// NCCL with one rank on one GPU, and with two where there are two GPUs.
#include <cstdio>
#include <cstdlib>

#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels.hpp"
#include "probe.hpp"

using namespace lockstep::probes;

namespace {

void ok(const char* what, ncclResult_t result) {
  if (result != ncclSuccess) throw Differs{std::string{what} + " to succeed", ncclGetErrorString(result)};
}
#define NCCL(...) ok(#__VA_ARGS__, (__VA_ARGS__))

ncclUniqueId unique_id() {
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  return id;
}

/// A communicator that is finalized and destroyed, or aborted by a probe that differs.
class Communicator {
 public:
  explicit Communicator(bool blocking = true, int size = 1, int rank = 0, const ncclUniqueId& id = unique_id()) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    settle("ncclCommInitRankConfig", ncclCommInitRankConfig(&comm_, size, id, rank, &config));
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() {
    if (comm_) (void)ncclCommAbort(comm_);
  }
  operator ncclComm_t() const { return comm_; }
  ncclComm_t release() { return std::exchange(comm_, nullptr); }

  /// Waits until a call that may be in progress is done.
  void settle(const char* what, ncclResult_t result) const {
    const bool in_time = within_limit([&] {
      if (result == ncclInProgress)
        if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result); asked != ncclSuccess) result = asked;
      return result != ncclInProgress;
    });
    if (!in_time) throw Differs{std::string{what} + " to end", "ncclInProgress for the whole limit"};
    ok(what, result);
  }
  void finish() {
    settle("ncclCommFinalize", ncclCommFinalize(comm_));
    NCCL(ncclCommDestroy(release()));
  }

 private:
  ncclComm_t comm_ = nullptr;
};
#define SETTLE(comm, ...) (comm).settle(#__VA_ARGS__, (__VA_ARGS__))

/// The second process, which waits for an id at the pipe.
struct Partner {
  pid_t process = -1;
  int to = -1;
} partner;

/// What each of two ranks does.
void use_two_ranks(int rank, const ncclUniqueId& id) {
  OK(cudaSetDevice(rank));
  const Stream stream;
  const Array<float> sum{std::vector<float>(1000, static_cast<float>(rank + 1))};
  const Array<int> all{std::vector<int>(4, rank)};
  const Array<int> sent{{10 + rank}};
  const Array<int> got{{-1}};
  Communicator comm{true, 2, rank, id};
  NCCL(ncclAllReduce(sum.data(), sum.data(), 1000, ncclFloat32, ncclSum, comm, stream));
  NCCL(ncclBroadcast(all.data(), all.data(), 4, ncclInt32, 1, comm, stream));
  NCCL(ncclGroupStart());
  NCCL(ncclSend(sent.data(), 1, ncclInt32, 1 - rank, comm, stream));
  NCCL(ncclRecv(got.data(), 1, ncclInt32, 1 - rank, comm, stream));
  NCCL(ncclGroupEnd());
  wait(stream);
  comm.finish();
  expect_all("sums of two ranks", sum.values(), std::vector<float>(1000, 3));
  expect_all("what rank 1 sent to all", all.values(), std::vector<int>(4, 1));
  expect("what the other rank sent", got.values()[0], 11 - rank);
}

}  // namespace

/// The partner reads the communicator's id from a pipe; without one, it ends.
void lockstep::probes::start_partner() {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  partner = {fork(), ends[1]};
  if (partner.process != 0) {
    close(ends[0]);
    return;
  }
  close(ends[1]);
  ncclUniqueId id;
  if (read(ends[0], &id, sizeof id) != sizeof id) _exit(0);
  setenv("CUSIM_RANK", "1", 1);
  alarm(25);
  try {
    use_two_ranks(1, id);
    std::exit(0);
  } catch (const Differs& differs) {
    std::fprintf(stderr, "gpu-probes: rank 1: expected %s, got %s\n", differs.expected.c_str(), differs.got.c_str());
    _exit(1);
  }
}

// NCCL User Guide, Creating a communicator; ncclCommCount, ncclCommUserRank, ncclCommCuDevice.
PROBE(communicator_knows_its_rank) {
  Communicator comm;
  int count = 0;
  int rank = -1;
  int device = -1;
  NCCL(ncclCommCount(comm, &count));
  NCCL(ncclCommUserRank(comm, &rank));
  NCCL(ncclCommCuDevice(comm, &device));
  expect("ranks:", count, 1);
  expect("the rank is", rank, 0);
  expect("the device is", device, 0);
  comm.finish();
}

// NCCL User Guide, ncclGetVersion: 10000 major + 100 minor + patch.
PROBE(nccl_has_a_version) {
  int version = 0;
  NCCL(ncclGetVersion(&version));
  expect("the version is of the major one that this was built for", version / 10000 == NCCL_MAJOR);
}

// NCCL User Guide, In-place operations: the buffer may be sent and received at once; ncclAllReduce: each rank gets the
// sum, which for one rank is its own data.
PROBE(all_reduce_in_place_and_out_of_place) {
  const Stream stream;
  const Array<float> from{{1, 2.5f, -3}};
  const Array<float> to{{0, 0, 0}};
  Communicator comm;
  NCCL(ncclAllReduce(from.data(), from.data(), 3, ncclFloat32, ncclSum, comm, stream));
  NCCL(ncclAllReduce(from.data(), to.data(), 3, ncclFloat32, ncclSum, comm, stream));
  wait(stream);
  comm.finish();
  expect_all("in place", from.values(), {1, 2.5f, -3});
  expect_all("out of place", to.values(), {1, 2.5f, -3});
}

// NCCL User Guide, ncclRedOp_t: all operations over one rank give its data, the average too.
PROBE(operations_over_one_rank_give_its_data) {
  const Stream stream;
  const Array<double> from{{1, 2.5, -3}};
  Communicator comm;
  for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
    const Array<double> to{{0, 0, 0}};
    NCCL(ncclAllReduce(from.data(), to.data(), 3, ncclFloat64, op, comm, stream));
    wait(stream);
    expect_all("the result", to.values(), {1, 2.5, -3});
  }
  comm.finish();
}

// NCCL User Guide, ncclBroadcast, ncclReduce, ncclAllGather, ncclReduceScatter: to or from the root, or all ranks.
PROBE(collectives_over_one_rank_copy) {
  const Stream stream;
  const Array<int> from{{4, 5}};
  const Array<int> to{std::vector<int>(8, 0)};
  Communicator comm;
  NCCL(ncclBroadcast(from.data(), to.data(), 2, ncclInt32, 0, comm, stream));
  NCCL(ncclReduce(from.data(), to.data() + 2, 2, ncclInt32, ncclSum, 0, comm, stream));
  NCCL(ncclAllGather(from.data(), to.data() + 4, 2, ncclInt32, comm, stream));
  NCCL(ncclReduceScatter(from.data(), to.data() + 6, 2, ncclInt32, ncclSum, comm, stream));
  wait(stream);
  comm.finish();
  expect_all("four copies", to.values(), {4, 5, 4, 5, 4, 5, 4, 5});
}

// NCCL User Guide, Point-to-point communication: a rank may send to itself in a group with the receive.
PROBE(rank_sends_to_itself_in_a_group) {
  const Stream stream;
  const Array<int> from{{4, 5}};
  const Array<int> to{{0, 0}};
  Communicator comm;
  NCCL(ncclGroupStart());
  NCCL(ncclSend(from.data(), 2, ncclInt32, 0, comm, stream));
  NCCL(ncclRecv(to.data(), 2, ncclInt32, 0, comm, stream));
  NCCL(ncclGroupEnd());
  wait(stream);
  comm.finish();
  expect_all("what was received", to.values(), {4, 5});
}

// NCCL User Guide, Group calls: groups may be nested; the work is enqueued at the end of the outermost.
PROBE(groups_may_be_nested) {
  const Stream stream;
  const Array<int> from{{4}};
  const Array<int> to{{0, 0}};
  Communicator comm;
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(from.data(), to.data(), 1, ncclInt32, ncclSum, comm, stream));
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(from.data(), to.data() + 1, 1, ncclInt32, ncclSum, comm, stream));
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupEnd());
  wait(stream);
  comm.finish();
  expect_all("two sums", to.values(), {4, 4});
}

// NCCL User Guide, CUDA stream semantics: calls return once the operation is enqueued, which then comes in the stream's
// order.
PROBE(collectives_come_in_order) {
  const Stream stream;
  const Array<int> from{{1}};
  const Array<int> to{{0}};
  Communicator comm;
  // The first may set things up for which it waits.
  NCCL(ncclAllReduce(from.data(), to.data(), 1, ncclInt32, ncclSum, comm, stream));
  wait(stream);
  {
    Gate gate{stream};
    OK(launch_fill(from.data(), 1, 2, stream));
    NCCL(ncclAllReduce(from.data(), to.data(), 1, ncclInt32, ncclSum, comm, stream));
    OK(launch_fill(from.data(), 1, 3, stream));
    OK(launch_append(to.data(), 1, stream));
    expect_waits("the stream answers", stream);
    gate.open();
    wait(stream);
  }
  comm.finish();
  expect("the sum and a kernel make", to.values()[0], 5);
}

// NCCL User Guide, Using NCCL with CUDA Graphs: operations can be captured.
PROBE(collectives_can_be_captured) {
  const Stream stream;
  const Array<int> from{{1}};
  const Array<int> to{{0}};
  Communicator comm;
  NCCL(ncclAllReduce(from.data(), to.data(), 1, ncclInt32, ncclSum, comm, stream));
  wait(stream);
  Capture capture{stream};
  NCCL(ncclAllReduce(from.data(), to.data(), 1, ncclInt32, ncclSum, comm, stream));
  {
    const Graph graph{capture.end()};
    OK(launch_fill(from.data(), 1, 7, stream));
    graph.launch(stream);
    wait(stream);
  }
  comm.finish();
  expect("the graph's sum is", to.values()[0], 7);
}

// NCCL User Guide, ncclConfig_t, blocking = 0: calls may return ncclInProgress; ncclCommGetAsyncError then tells when
// they are done.
PROBE(non_blocking_communicator_gets_ready) {
  const Stream stream;
  const Array<int> data{{6}};
  Communicator comm{false};
  ncclResult_t state = ncclInternalError;
  NCCL(ncclCommGetAsyncError(comm, &state));
  expect("the state is", int{state}, int{ncclSuccess});
  SETTLE(comm, ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, comm, stream));
  wait(stream);
  expect("the sum is", data.values()[0], 6);
  comm.finish();
}

// NCCL User Guide, ncclCommFinalize: waits for what was enqueued; afterwards ncclCommDestroy frees the communicator.
PROBE(finalize_waits_and_destroy_frees) {
  const Stream stream;
  const Array<int> data{{6}};
  for (const bool blocking : {true, false}) {
    Communicator comm{blocking};
    SETTLE(comm, ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, comm, stream));
    SETTLE(comm, ncclCommFinalize(comm));
    NCCL(ncclCommDestroy(comm.release()));
    wait(stream);
  }
}

// NCCL User Guide, ncclCommAbort: frees a communicator, also one on which operations were enqueued.
PROBE(abort_frees) {
  const Stream stream;
  const Array<int> data{{6}};
  for (const bool blocking : {true, false}) {
    Communicator comm{blocking};
    SETTLE(comm, ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, comm, stream));
    wait(stream);
    NCCL(ncclCommAbort(comm.release()));
  }
}

// NCCL User Guide, ncclCommInitRank: the rank must be from 0 to the number of ranks - 1; ncclInvalidArgument: an
// argument is invalid.
PROBE(rank_outside_of_the_ranks_is_refused) {
  ncclComm_t comm = nullptr;
  expect("rank 1 of 1 is", int{ncclCommInitRank(&comm, 1, unique_id(), 1)}, int{ncclInvalidArgument});
  expect("rank -1 of 1 is", int{ncclCommInitRank(&comm, 1, unique_id(), -1)}, int{ncclInvalidArgument});
}

// NCCL User Guide, ncclResult_t: an invalid argument, here the root, is refused in the call.
PROBE(root_outside_of_the_ranks_is_refused) {
  const Stream stream;
  const Array<int> data{{6}};
  Communicator comm;
  expect("a broadcast from rank 1 of 1 is", int{ncclBroadcast(data.data(), data.data(), 1, ncclInt32, 1, comm, stream)},
         int{ncclInvalidArgument});
}

// NCCL User Guide, ncclAllReduce, ncclBroadcast, Point-to-point communication: between two ranks on two GPUs.
PROBE_IN(with_partner, two_ranks_exchange) {
  int devices = 0;
  OK(cudaGetDeviceCount(&devices));
  if (devices < 2) throw NotTried{"there is one GPU only"};
  const ncclUniqueId id = unique_id();
  expect("the partner reads the id", write(partner.to, &id, sizeof id) == sizeof id);
  use_two_ranks(0, id);
  int status = -1;
  (void)within_limit([&] { return waitpid(partner.process, &status, WNOHANG) != 0; });
  expect("rank 1 ends with", status, 0);
}
