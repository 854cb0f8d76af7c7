"""Federated averaging in plain PyTorch: the least that the task costs."""

from __future__ import annotations

import torch
from peers.task import Clock, Task, client_data, load, make_model, test, train, warm_up


def main() -> None:
    task = Task.from_command_line()
    clock = Clock()
    load(task.samples)
    warm_up()
    shares = [client_data(task, k) for k in range(task.clients)]
    shared = make_model()
    local = make_model()
    clock.start()
    for _ in range(task.rounds):
        total = [torch.zeros_like(p) for p in shared.parameters()]
        for x, y in shares:
            local.load_state_dict(shared.state_dict())
            train(local, x, y, task)
            for mean, p in zip(total, local.parameters(), strict=True):
                mean.add_(p.detach(), alpha=len(y) / task.samples)
        for p, mean in zip(shared.parameters(), total, strict=True):
            p.data.copy_(mean)
        clock.round_done(test(shared, task))
    clock.report(name="bare loop")


if __name__ == "__main__":
    main()
