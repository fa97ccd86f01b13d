"""A parameter server in a process of its own: some of the weights, behind a data port.

Graph servers send three requests: ``pull`` (the weights an interval has pinned, unless they have that version),
``finish`` (an interval's gradients, all of them, and its weight update) and ``latest``. A session begins with
``restore``; requests of the driver or of a graph server that belong to another session are refused.
"""

import os
import threading
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dorylus.runtime.fence import Fence, OtherSessionError, PeerLostError
from dorylus.runtime.runtime import Job
from dorylus.servers import ParameterServers, PSState, WeightsByName, slice_parameters, state_part
from dorylus.wire import BETWEEN_SERVERS, DataPort, Frame, Refused, RunKeys

END_S = 20.0  # for the driver to end an epoch
KEY_LIFETIME_S = 30 * 86400.0  # the port closes with its process, which ends with the run


def slices_of(program: nn.Module, num_servers: int) -> list[list[str]]:
    """The names of the parameters that each parameter server holds."""
    return slice_parameters({name: each.numel() for name, each in program.named_parameters()}, num_servers)


class ParameterNode:
    """One of the ``job.training.parameter_servers`` parameter servers of a run."""

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
        self._updates_in_order = training.mode != "async"  # an update waits for the end of all epochs before
        self._ended, self._changed = training.first_epoch, threading.Condition()  # the number of epochs that have ended
        self._fence = Fence(f"parameter server {server}")
        self._keys = RunKeys.fresh()
        self._port = DataPort(self._keys, self._answer, host=host, limits=BETWEEN_SERVERS)

    def address(self) -> str:
        """Where it listens."""
        return self._port.address

    def whereabouts(self) -> tuple[str, int]:
        """The address of its node and the number of its process."""
        return self._host, os.getpid()

    def restore(self, session: int, state: PSState | None, epoch: int) -> None:
        """Begin a session after ``epoch`` epochs, from this server's part of a state, or from the start of the run.

        Before anything changes, requests of the session before are refused, and those in progress have ended.
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
        """This server's part of the run's state."""
        with self._fence.within(session, "state"):
            return self._parameters.state()

    def end_epoch(self, session: int, epoch: int, loss: float, with_state: bool) -> tuple[PSState | None, int]:
        """Advance the learning-rate schedule; returns the state after ``epoch`` epochs, if ``with_state``, and how many
        messages were refused since the last epoch.

        The next epoch may begin before this call arrives: in a synchronous run its update waits for it.
        """
        with self._fence.within(session, "end_epoch"):
            try:
                self._parameters.end_epoch(loss)
                self._parameters.check_finite(f"after epoch {epoch}")
                return self._parameters.state() if with_state else None, self._fence.take_refused()
            finally:
                self._end(epoch)  # also if the run diverged, so that no update waits for this epoch's end

    def synchronise(self, session: int) -> None:
        """Make one update an epoch from now on."""
        with self._fence.within(session, "synchronise"):
            self._parameters.synchronise()
            self._updates_in_order = True

    def close(self) -> None:
        """Stop listening."""
        self._port.close()

    def _end(self, epoch: int) -> None:
        with self._changed:
            self._ended = epoch
            self._changed.notify_all()

    def _wait_for_end(self, session: int, epoch: int) -> None:
        """Wait until all epochs before this one have ended, while the session lasts."""
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
            raise Refused(f"a parameter server has no request {what!r}.")
        if self._updates_in_order:
            self._wait_for_end(session, epoch)
        for step in header["steps"]:
            prefix = f"{step}:"
            grads = {
                name.removeprefix(prefix): _tensor(array)
                for name, array in frame.arrays.items()
                if name.startswith(prefix)
            }
            self._parameters.push(interval, epoch, int(step), grads)
        self._parameters.finish(interval, epoch)
        return Frame({}, {})


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.copy())  # a copy: the frame's memory is reused


def _arrays(weights: WeightsByName) -> dict[str, Any]:
    return {name: weight.detach().numpy() for name, weight in weights.items()}
