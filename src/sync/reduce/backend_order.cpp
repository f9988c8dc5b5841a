#include "sync/reduce/backend_order.hpp"

#include <memory>
#include <utility>

#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/messages.hpp"

namespace lockstep::detail {

void sum_in_backend_order(Communicator& communicator, const Request& request) {
  const TensorView& flat = request.tensors.front();
  const bool to_one = request.kind == Request::Kind::reduce;
  (to_one ? communicator.reduce(flat, request.root) : communicator.all_reduce(flat)).wait();
  if (request.reaches(communicator.rank())) divide(flat, request.divisor(communicator.size()), communicator.stream());
}

Work start_in_backend_order(Communicator& communicator, ReduceOp op, std::vector<TensorView> parts) {
  const auto memory = std::make_shared<Scratch>();
  const auto message = std::make_shared<const Message>(std::move(parts), communicator, *memory);
  const auto sum = std::make_shared<Work>(communicator.all_reduce(message->flat()));
  const int divisor = op == ReduceOp::mean ? communicator.size() : 1;
  return Work::later([&communicator, memory, message, sum, divisor] {
    sum->wait();
    divide(message->flat(), divisor, communicator.stream());
    message->unpack();
  });
}

}  // namespace lockstep::detail
