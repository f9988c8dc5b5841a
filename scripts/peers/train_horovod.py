"""Trains lockstep's models with PyTorch and Horovod over MPI (see measure.py); start it with mpirun. Modes:

default  as it comes
tuned    a fused optimizer; the caller tunes Horovod itself by its variables
"""
import horovod
import horovod.torch as hvd
import torch

from measure import arguments, measure, report
from pytorch_models import count, loss_of, make_batches, make_model, make_optimizer

MODES = ("default", "tuned")


def main():
    mode, models = arguments(MODES)
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    hvd.init()
    for name in models:
        # Horovod takes only gradients that are contiguous in the usual order.
        model = make_model(name, channels_last=False)
        data = make_batches(name, hvd.rank(), hvd.size(), channels_last=False)
        optimizer = hvd.DistributedOptimizer(
            make_optimizer(name, model.parameters(), **({"fused": True} if mode == "tuned" else {})),
            named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)

        def step(number):
            inputs, labels = data[number]
            optimizer.zero_grad()
            loss = loss_of(model(inputs), labels)
            loss.backward()
            optimizer.step()
            return loss.detach()

        version = f"{horovod.__version__} with PyTorch {torch.__version__}"
        report(hvd.rank(), "Horovod", version, mode, name, count(model), measure(name, step))


if __name__ == "__main__":
    main()
