#include "reduce/backend_order.hpp"

#include <memory>
#include <utility>

#include "reduce/arithmetic.hpp"

namespace lockstep::detail {

void BackendOrder::run(const Request& request) {
  const TensorView& flat = request.tensors.front();
  (request.kind == Request::Kind::reduce ? communicator_.reduce(flat, request.root) : communicator_.all_reduce(flat))
      .wait();
  if (request.reaches(communicator_.rank()))
    divide(flat, request.divisor(communicator_.size()), communicator_.stream());
}

Work BackendOrder::start(ReduceOp op, std::vector<TensorView> parts) {
  struct Started {
    Scratch memory;
    Message message;
    Work sum;

    Started(std::vector<TensorView> its_parts, Communicator& communicator)
        : message{std::move(its_parts), communicator, memory}, sum{communicator.all_reduce(message.flat())} {}
  };
  const auto started = std::make_shared<Started>(std::move(parts), communicator_);
  const int divisor = op == ReduceOp::mean ? communicator_.size() : 1;
  return Work::later([this, divisor, started] {
    started->sum.wait();
    divide(started->message.flat(), divisor, communicator_.stream());
    started->message.unpack();
  });
}

}  // namespace lockstep::detail
