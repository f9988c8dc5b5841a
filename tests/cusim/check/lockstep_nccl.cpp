// What lockstep asks of NCCL itself, on the simulated one: the other tests of its communicator have an NCCL of their
// own.
#include <catch2/catch.hpp>
#include <nccl.h>
#include <unistd.h>

#include "core/comm/nccl/nccl_api.hpp"
#include "support/child_process.hpp"

using namespace lockstep;

TEST_CASE("the start of a communicator returns before the other ranks have come, and can be given up") {
  test::ChildProcess process{[] {
    ::alarm(20);  // ends it if a call waits for them
    const auto api = real_nccl_api();
    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    ncclResult_t state = ncclSuccess;
    if (api->get_unique_id(&id) != ncclSuccess) return 1;
    if (api->comm_init(&comm, 2, id, 0) != ncclInProgress) return 2;
    if (api->comm_get_async_error(comm, &state) != ncclSuccess || state != ncclInProgress) return 3;
    return api->comm_abort(comm) == ncclSuccess ? 0 : 4;
  }};
  CHECK(process.wait() == 0);
}
