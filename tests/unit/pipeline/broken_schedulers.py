"""Schedulers and stashes that are wrong on purpose, each in one way that is easily got wrong."""

import copy
import random

from dorylus.pipeline import Arrived, Permit, Scheduler, Start, StepFinished, Waiting
from dorylus.pipeline.scheduler import Frontier
from dorylus.servers.parameter.stash import Stash


class BoundIsOneEpochTooWide(Scheduler):
    """An interval may start one epoch too early."""

    def _bound(self, epoch):
        return super()._bound(epoch) - 1


class BoundIsOneTooWideInRelaxedEpochs(Scheduler):
    """The same, but only where epochs are relaxed anyway."""

    def _bound(self, epoch):
        exact = self._is_exact(epoch) or self._is_exact(epoch - 1)
        return super()._bound(epoch) - (not exact)


class BoundIsTooNarrow(Scheduler):
    """Never lets an interval run ahead: right by every property but that what is due happens."""

    def _bound(self, epoch):
        return epoch - 1


class BoundForgetsPeers(Scheduler):
    """An epoch is over when this server's own intervals have finished it."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._frontier = _OwnFrontier(self._first_epoch, 1, 0)
        self._frontier.server = self._server


class _OwnFrontier(Frontier):
    def hear(self, epoch, report):
        return getattr(report, "server", None) == self.server and super().hear(epoch, report)


class BoundForgetsRows(Scheduler):
    """An epoch is over when every server says so, though rows of it are still on their way."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._frontier = _WordFrontier(self._first_epoch, self._num_servers, 0)


class _WordFrontier(Frontier):
    def hear(self, epoch, report):
        if isinstance(report, Arrived):
            self._heard.setdefault(epoch, {})[report] = None
            return False
        return super().hear(epoch, report)


class NoBarrierBeforeAnExactEpoch(Scheduler):
    """The bound of an exact epoch is that of the relaxed one before it."""

    def _bound(self, epoch):
        relaxed = epoch > self._first_epoch and not self._is_exact(epoch - 1)
        return epoch - 1 - (self._staleness if relaxed else 0)


class ExactEpochsAreRelaxed(Scheduler):
    """Tasks of exact epochs wait for their own interval only."""

    def __init__(self, schedule, *args, **options):
        super().__init__(schedule, *args, **options)
        arrivals = self._exact.arrivals
        self._exact = copy.copy(self._relaxed)
        self._exact.arrivals = arrivals


class SynchroniseIsIgnored(Scheduler):
    """Epochs stay relaxed."""

    def _synchronise(self, epoch):
        return []


class ATaskIsStartedTwice(Scheduler):
    """Now and then the first task of a list of actions is started once more."""

    def handle(self, event):
        actions = super().handle(event)
        starts = [action for action in actions if isinstance(action, Start)]
        return actions + starts[:1] if len(starts) > 1 else actions


class ATaskIsForgotten(Scheduler):
    """Of several tasks that may start at once, the last is not started."""

    def handle(self, event):
        actions = super().handle(event)
        starts = [action for action in actions if isinstance(action, Start)]
        return [action for action in actions if len(starts) < 3 or action is not starts[-1]]


class EarlyReportsAreLost(Scheduler):
    """What peers report of an epoch before it is open here is not looked up when it opens."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._frontier.heard = lambda epoch: ()


class StepsAreNotReported(Scheduler):
    """Peers that wait for a whole step are never told."""

    def handle(self, event):
        return [action for action in super().handle(event) if not isinstance(action, StepFinished)]


class PermitsAreIgnored(Scheduler):
    """The first permit opens every epoch."""

    def handle(self, event):
        return super().handle(event._replace(epoch=event.epoch + 1) if isinstance(event, Permit) else event)


class WaitingIsNotSaid(Scheduler):
    """Nobody learns that the bound holds an interval."""

    def handle(self, event):
        return [action for action in super().handle(event) if not isinstance(action, Waiting)]


class WaitingIsSaidAgain(Scheduler):
    """Each time an interval is looked at."""

    def _admit(self, intervals):
        self._waiting.clear()
        return super()._admit(intervals)


class ActionsComeInAnyOrder(Scheduler):
    """As from a set whose order differs from run to run."""

    order = random.Random(1)

    def handle(self, event):
        actions = super().handle(event)
        self.order.shuffle(actions)
        return actions


class PeersStepsAreTakenForTheirEpochs(Scheduler):
    """A peer that has finished the first step is taken to have finished the epoch."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._assumed = set()

    def _peer_finished(self, event):
        word = event._replace(step=None)
        if event.step is None and word in self._assumed:
            return []
        actions = super()._peer_finished(event)
        if event.step == 0:
            self._assumed.add(word)
            actions += super()._peer_finished(word)
        return actions


class IntervalsTakeTurns(Scheduler):
    """In relaxed epochs one interval at a time, from its first task to its last."""

    def _admit(self, intervals):
        actions = []
        for interval in sorted(self._idle, key=lambda each: (self._idle[each], each)):
            nobody_inside = len(self._idle) == len(self._exact.mine)
            if nobody_inside or self._is_exact(self._idle[interval]):
                actions += super()._admit([interval])
        return actions


class StashIsNotPinned(Stash):
    """Backward is given the version that was pinned last, by whomever."""

    def pin(self, interval, epoch, version, weights):
        super().pin(interval, epoch, version, weights)
        self.latest = (version, weights)

    def get(self, interval, epoch):
        return self.latest


class ReleaseIsForgotten(Stash):
    """What was pinned stays."""

    def release(self, interval, epoch):
        pass


class ReleaseFreesForEveryone(Stash):
    """The first release of a version takes it from the others."""

    def release(self, interval, epoch):
        version, _ = self.get(interval, epoch)
        super().release(interval, epoch)
        self._versions.pop(version, None)


class VersionsAreNotFreed(Stash):
    """Pins go, but the weights they held stay."""

    def release(self, interval, epoch):
        del self._pins[interval, epoch]
