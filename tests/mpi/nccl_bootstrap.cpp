// The start of NCCL over MPI, as far as it goes without a GPU: the library and the ranks are real.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/nccl/nccl_communicator.hpp"
#include "core/device/devices.hpp"
#include "support/ranks.hpp"

using namespace lockstep;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using namespace lockstep::test;

namespace {

constexpr std::size_t id_bytes = NCCL_UNIQUE_ID_BYTES;

/// All ranks' texts, in order.
std::vector<std::string> gathered(Communicator& host, const std::string& mine) {
  constexpr std::int64_t room = 1024;
  const Tensor all = Tensor::zeros(DType::u8, {room * ranks()});
  const auto bytes = all.view().elements<std::uint8_t>();
  std::copy_n(mine.begin(), std::min<std::size_t>(mine.size(), room - 1), bytes.begin() + room * rank());
  std::vector<std::int64_t> bounds;
  for (int r = 0; r <= ranks(); ++r) bounds.push_back(room * r);
  host.all_gather(all.view(), bounds).wait();
  std::vector<std::string> texts;
  for (int r = 0; r < ranks(); ++r) texts.emplace_back(reinterpret_cast<const char*>(&bytes[room * r]));
  return texts;
}

/// Passes on to the library, but for the calls that would need a GPU: those do as the test says.
class NcclWithoutGpu : public NcclApi {
 public:
  int version() override { return real_->version(); }
  ncclResult_t get_unique_id(ncclUniqueId* id) override {
    const ncclResult_t result = real_->get_unique_id(id);
    if (fill_id) std::replace(std::begin(id->internal), std::end(id->internal), '\0', '\x5a');
    made_id = *id;
    return result;
  }
  ncclResult_t comm_init(ncclComm_t* comm, int, const ncclUniqueId& id, int) override {
    *comm = reinterpret_cast<ncclComm_t>(this);
    seen_id = id;
    return init;
  }
  ncclResult_t comm_get_async_error(ncclComm_t, ncclResult_t* state) override {
    *state = init;
    return ncclSuccess;
  }
  ncclResult_t comm_finalize(ncclComm_t) override { return ncclSuccess; }
  ncclResult_t comm_destroy(ncclComm_t) override { return ncclSuccess; }
  ncclResult_t comm_abort(ncclComm_t) override {
    ++aborts;
    return ncclSuccess;
  }
  ncclResult_t group_start() override { return ncclSuccess; }
  ncclResult_t group_end() override { return ncclSuccess; }
  ncclResult_t send(const void*, std::size_t, ncclDataType_t, int, ncclComm_t, Stream&) override {
    return ncclInternalError;
  }
  ncclResult_t recv(void*, std::size_t, ncclDataType_t, int, ncclComm_t, Stream&) override { return ncclInternalError; }
  ncclResult_t broadcast(const void*, void*, std::size_t, ncclDataType_t, int, ncclComm_t, Stream&) override {
    return ncclInternalError;
  }
  ncclResult_t all_reduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, Stream&) override {
    return ncclInternalError;
  }
  ncclResult_t reduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, Stream&) override {
    return ncclInternalError;
  }
  std::string error_text(ncclResult_t result) override { return real_->error_text(result); }

  ncclResult_t init = ncclSuccess;
  bool fill_id = false;
  int aborts = 0;
  ncclUniqueId made_id{};
  ncclUniqueId seen_id{};

 private:
  std::shared_ptr<NcclApi> real_ = real_nccl_api();
};

/// What the start over `api` says on each rank; empty where it succeeds.
std::vector<std::string> errors_of_start(Communicator& host, std::shared_ptr<NcclApi> api, Seconds timeout) {
  const auto device = make_host_device();
  NcclTools tools = real_nccl_tools();
  tools.api = std::move(api);
  std::string error;
  try {
    (void)make_nccl_communicator(host, *device, Stream::host(), {.init_timeout = timeout}, tools);
  } catch (const CommError& caught) {
    error = caught.what();
  }
  return gathered(host, error);
}

}  // namespace

TEST_CASE("all bytes of the id that NCCL made on rank 0 arrive on every rank", "[D-25]") {
  const auto host = make_mpi_communicator();
  const auto api = std::make_shared<NcclWithoutGpu>();
  SECTION("as it is") {}
  // NCCL may leave some of them zero today, and not tomorrow.
  SECTION("with every byte in use") {
    api->fill_id = true;
  }
  (void)errors_of_start(*host, api, Seconds{20});

  const Tensor ids = Tensor::zeros(DType::u8, {static_cast<std::int64_t>(id_bytes) * ranks()});
  const auto bytes = ids.view().elements<std::uint8_t>();
  std::vector<std::int64_t> bounds;
  for (int r = 0; r <= ranks(); ++r) bounds.push_back(static_cast<std::int64_t>(id_bytes) * r);
  std::copy_n(api->seen_id.internal, id_bytes, bytes.begin() + bounds[static_cast<std::size_t>(rank())]);
  host->all_gather(ids.view(), bounds).wait();

  const std::vector<std::uint8_t> none(id_bytes);
  const std::vector<std::uint8_t> first(bytes.begin(), bytes.begin() + id_bytes);
  const std::vector<std::uint8_t> made(api->made_id.internal, api->made_id.internal + id_bytes);
  CHECK(first != none);
  CHECK(made == (rank() == 0 ? first : none));
  for (int r = 0; r < ranks(); ++r) {
    const auto begin = bytes.begin() + bounds[static_cast<std::size_t>(r)];
    CHECK(std::vector<std::uint8_t>(begin, begin + id_bytes) == first);
  }
  if (api->fill_id) CHECK(std::count(first.begin(), first.end(), 0) == 0);
}

TEST_CASE("one rank whose init fails is an error on all, though the others' never ends") {
  const auto host = make_mpi_communicator();
  const auto api = std::make_shared<NcclWithoutGpu>();
  const int failing = std::min(2, last());
  api->init = rank() == failing ? ncclSystemError : ncclInProgress;
  const auto errors = errors_of_start(*host, api, Seconds{0.5});
  CHECK_THAT(errors[0], StartsWith("NCCL did not start because of rank " + std::to_string(failing) +
                                   ": ncclCommInitRankConfig failed on cpu of rank " + std::to_string(failing)) &&
                            Contains("system error"));
  CHECK(errors == std::vector<std::string>(static_cast<std::size_t>(ranks()), errors[0]));
  CHECK(api->aborts == 1);
}

TEST_CASE("an init that ends on no rank is an error within its time") {
  const auto host = make_mpi_communicator();
  const auto api = std::make_shared<NcclWithoutGpu>();
  api->init = ncclInProgress;
  const auto errors = errors_of_start(*host, api, Seconds{0.5});
  CHECK(errors[0] ==
        "NCCL did not start on any rank: ncclCommInitRankConfig is still in progress on cpu of rank 0 after 0.5 s");
  CHECK(errors == std::vector<std::string>(static_cast<std::size_t>(ranks()), errors[0]));
  CHECK(api->aborts == 1);
}

TEST_CASE("the linked NCCL, given no GPU to work on, is the same error on all ranks") {
  const auto host = make_mpi_communicator();
  const auto errors = errors_of_start(*host, real_nccl_api(), Seconds{20});
  CHECK_THAT(errors[0], StartsWith("NCCL did not start because of rank 0: "));
  CHECK(errors == std::vector<std::string>(static_cast<std::size_t>(ranks()), errors[0]));
}

TEST_CASE("the linked NCCL is the one whose header this was compiled with, or newer") {
  CHECK(real_nccl_api()->version() >= NCCL_VERSION_CODE);
}

TEST_CASE("what a start leaves behind does not disturb the host's communicator") {
  const auto host = make_mpi_communicator();
  const auto api = std::make_shared<NcclWithoutGpu>();
  api->init = ncclSystemError;
  (void)errors_of_start(*host, api, Seconds{20});
  const Tensor tensor = Tensor::from<float>({static_cast<float>(rank() + 1)}, {1});
  host->all_reduce(tensor.view()).wait();
  CHECK(tensor.to_vector<float>().front() == static_cast<float>(ranks() * (ranks() + 1) / 2));
}
