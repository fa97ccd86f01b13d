"""A parameter server in a process of its own: some of the weights, behind a data port.

Graph servers ask three things of it: ``pull`` (the weights an interval has pinned, unless they have that version),
``finish`` (an interval's gradients, all of them, and its weight update) and ``latest``. A session begins with
``restore``; whatever the driver or a graph server asks of another session is refused.
"""

import os
import threading
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dorylus.runtime.fence import Fence, OtherSessionError, PeerLostError
from dorylus.runtime.job import Job
from dorylus.servers import ParameterServers, PSState, Weights, slice_parameters, state_part
from dorylus.wire import BETWEEN_SERVERS, DataPort, Frame, Refused, RunKeys

END_S = 20.0  # for the driver to say that an epoch is over
KEY_LIFETIME_S = 30 * 86400.0  # the port is gone with its process, which ends with the run


def slices_of(program: nn.Module, num_servers: int) -> list[list[str]]:
    """Which parameters each parameter server holds."""
    return slice_parameters({name: each.numel() for name, each in program.named_parameters()}, num_servers)


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
        self._fence = Fence(f"parameter server {server}")
        self._keys = RunKeys.fresh()
        self._port = DataPort(self._keys, self._answer, host=host, limits=BETWEEN_SERVERS)

    def address(self) -> str:
        """Where it listens."""
        return self._port.address

    def whereabouts(self) -> tuple[str, int]:
        """Where it runs: the node's address, the process."""
        return self._host, os.getpid()

    def restore(self, session: int, state: PSState | None, epoch: int) -> None:
        """Begin a session, after so many epochs, from this server's part of a state, or from the start of the run.

        Before anything changes, the session before is shut out, and what was let in of it has been dealt with.
        """
        self._fence.enter(session)
        with self._changed:
            self._changed.notify_all()  # an update of the session before may wait for the end of an epoch
        if not self._fence.wait_for_earlier(session, END_S):
            raise PeerLostError(f"an update of an earlier session was not over within {END_S:g} s.")
        with self._fence.within(session, "restore"):
            self._parameters.restore(self._start if state is None else state_part(state, self._parameters.names))
            self._end(epoch)

    def key(self, session: int) -> dict[str, Any]:
        """A key for one graph server."""
        with self._fence.within(session, "key"):
            return self._keys.client(KEY_LIFETIME_S).to_header()

    def state(self, session: int) -> PSState:
        """Its part of the run's state."""
        with self._fence.within(session, "state"):
            return self._parameters.state()

    def end_epoch(self, session: int, epoch: int, loss: float, tell: bool) -> tuple[PSState | None, int]:
        """Move the learning-rate schedule on; the state after so many epochs, if it is asked for, and how many messages
        were refused since the last epoch.

        Nobody need wait for it to begin the next one: in an exact run that has no update before this has come.
        """
        with self._fence.within(session, "end_epoch"):
            try:
                self._parameters.end_epoch(loss)
                self._parameters.check_finite(f"after epoch {epoch}")
                return self._parameters.state() if tell else None, self._fence.take_refused()
            finally:
                self._end(epoch)  # also of a run that diverged: nobody need wait to hear of it

    def synchronise(self, session: int) -> None:
        """From now on one update an epoch."""
        with self._fence.within(session, "synchronise"):
            self._parameters.synchronise()
            self._exact = True

    def close(self) -> None:
        """Stop listening."""
        self._port.close()

    def _end(self, epoch: int) -> None:
        with self._changed:
            self._ended = epoch
            self._changed.notify_all()

    def _wait_for_end(self, session: int, epoch: int) -> None:
        """Until all epochs before this one have been ended, for as long as the session lasts."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended >= epoch or not self._fence.is_in(session), END_S)
            if not self._fence.is_in(session):
                raise Refused(f"session {session} was ended before epoch {epoch} was.")
            if self._ended < epoch:
                raise Refused(f"epoch {epoch} was not ended within {END_S:g} s, and the next one is at its update.")

    def _answer(self, frame: Frame) -> Frame:
        session, what = int(frame.header.get("session", 0)), str(frame.header.get("what"))
        try:
            with self._fence.within(session, what):
                return self._answer_within(session, what, frame)
        except OtherSessionError as why:
            raise Refused(str(why)) from why

    def _answer_within(self, session: int, what: str, frame: Frame) -> Frame:
        header = frame.header
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
            self._wait_for_end(session, epoch)
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
