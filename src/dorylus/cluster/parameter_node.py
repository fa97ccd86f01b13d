"""A parameter server in a process of its own: some of the weights, behind a data port.

Graph servers ask three things of it: ``pull`` (the weights an interval has pinned, unless they have that version),
``finish`` (an interval's gradients, all of them, and its weight update) and ``latest``.
"""

import os
import threading
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dorylus.cluster.job import Job
from dorylus.servers import ParameterServers, PSState
from dorylus.servers.parameter_server import Weights
from dorylus.servers.ps_state import part_of
from dorylus.servers.slices import cut_slices
from dorylus.wire import DataPort, Frame, Refused, RunKeys
from dorylus.wire.frames import BETWEEN_SERVERS

END_S = 20.0  # for the driver to say that an epoch is over
KEY_LIFETIME_S = 30 * 86400.0  # the port is gone with its process, which ends with the run


def slices_of(program: nn.Module, num_servers: int) -> list[list[str]]:
    """Which parameters each parameter server holds."""
    return cut_slices({name: each.numel() for name, each in program.named_parameters()}, num_servers)


class ParameterNode:
    """One of ``job.training.parameter_servers``."""

    def __init__(self, job: Job, server: int, host: str) -> None:
        training = job.training
        assert training is not None
        owned = slices_of(job.program, training.parameter_servers)[server]
        self._server, self._host = server, host
        self._parameters = ParameterServers(
            job.program,
            make_optimizer=training.make_optimizer,
            make_schedule=training.make_lr_schedule,
            update=training.update,
            num_intervals=job.cut.num_intervals,
            only=owned,
        )
        self._start = self._parameters.state()
        self._exact = training.mode != "async"
        self._ended, self._changed = training.first_epoch, threading.Condition()  # so many epochs
        self._keys = RunKeys.fresh()
        self._port = DataPort(self._keys, self._answer, host=host, limits=BETWEEN_SERVERS)

    def address(self) -> str:
        """Where it listens."""
        return self._port.address

    def whereabouts(self) -> tuple[str, int]:
        """Where it runs: the node's address, the process."""
        return self._host, os.getpid()

    def key(self) -> dict[str, Any]:
        """A key for one graph server."""
        return self._keys.client(KEY_LIFETIME_S).to_header()

    def state(self) -> PSState:
        """Its part of the run's state."""
        return self._parameters.state()

    def restore(self, state: PSState | None, epoch: int) -> None:
        """Go on after so many epochs from its part of a state, or from the beginning; forget what was in progress."""
        self._parameters.restore(self._start if state is None else part_of(state, self._parameters.names))
        self._end(epoch)

    def end_epoch(self, epoch: int, loss: float, tell: bool) -> PSState | None:
        """Move the learning-rate schedule on; the state after so many epochs, if it is to be told.

        Nobody need wait for it to begin the next one: in an exact run that has no update before this has come.
        """
        self._parameters.end_epoch(loss)
        state = self.state() if tell else None
        self._end(epoch)
        return state

    def synchronise(self) -> None:
        """From now on one update an epoch."""
        self._parameters.synchronise()
        self._exact = True

    def close(self) -> None:
        """Stop listening."""
        self._port.close()

    def _end(self, epoch: int) -> None:
        with self._changed:
            self._ended = epoch
            self._changed.notify_all()

    def _wait_for_end(self, epoch: int) -> None:
        """Until all epochs before this one have been ended."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended >= epoch, END_S):
                raise Refused(f"epoch {epoch} was not ended within {END_S:g} s, and the next one is at its update.")

    def _answer(self, frame: Frame) -> Frame:
        header = frame.header
        what = header.get("what")
        if what == "latest":
            return Frame({}, _arrays(self._parameters.latest()))
        interval, epoch = int(header["interval"]), int(header["epoch"])
        if what == "pull":
            version, weights = self._parameters.pull_version(interval, epoch)
            known = list(version) in header["known"]
            return Frame({"version": list(version)}, {} if known else _arrays(weights))
        if what != "finish":
            raise Refused(f"a parameter server was asked to {what!r}.")
        if self._exact:
            self._wait_for_end(epoch)
        for step in header["steps"]:
            its = f"{step}:"
            grads = {
                name.removeprefix(its): _tensor(array) for name, array in frame.arrays.items() if name.startswith(its)
            }
            self._parameters.push(interval, epoch, int(step), grads)
        self._parameters.finish(interval, epoch)
        return Frame({}, {})


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.copy())  # in memory of its own: the frame's is used again


def _arrays(weights: Weights) -> dict[str, Any]:
    return {name: weight.detach().numpy() for name, weight in weights.items()}
