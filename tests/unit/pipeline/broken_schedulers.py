"""Schedulers and stashes that are wrong on purpose, each with one plausible mistake."""

import copy
import random

from dorylus.pipeline import Arrived, Permit, Scheduler, Start, StepFinished, Waiting
from dorylus.pipeline.staleness import Frontier, StalenessBound
from dorylus.servers.parameter.stash import Stash


class _OtherBound(Scheduler):
    """A scheduler whose staleness bound is of another class."""

    bound_class = StalenessBound

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._bound = self.bound_class(self._bound.staleness, self._bound.first_epoch)


class BoundIsOneEpochTooWide(_OtherBound):
    """An interval may start one epoch too early."""

    class bound_class(StalenessBound):
        def required_frontier(self, epoch):
            return super().required_frontier(epoch) - 1


class BoundIsOneTooWideInRelaxedEpochs(_OtherBound):
    """The same, but only where epochs are relaxed anyway."""

    class bound_class(StalenessBound):
        def required_frontier(self, epoch):
            exact = self.is_exact(epoch) or self.is_exact(epoch - 1)
            return super().required_frontier(epoch) - (not exact)


class BoundIsTooNarrow(_OtherBound):
    """Never lets an interval run ahead: violates only the property that every due action happens."""

    class bound_class(StalenessBound):
        def required_frontier(self, epoch):
            return epoch - 1


class BoundForgetsPeers(Scheduler):
    """An epoch is over when this server's own intervals have finished it."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._frontier = _OwnFrontier(self._bound.first_epoch, 1, 0)
        self._frontier.server = self._server


class _OwnFrontier(Frontier):
    def add(self, epoch, report):
        return getattr(report, "server", None) == self.server and super().add(epoch, report)


class BoundForgetsRows(Scheduler):
    """An epoch is over when every server has reported it, though rows of it have not arrived."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._frontier = _ReportFrontier(self._bound.first_epoch, self._num_servers, 0)


class _ReportFrontier(Frontier):
    def add(self, epoch, report):
        if isinstance(report, Arrived):
            self._reports.setdefault(epoch, {})[report] = None
            return False
        return super().add(epoch, report)


class NoBarrierBeforeAnExactEpoch(_OtherBound):
    """The bound of an exact epoch is that of the relaxed one before it."""

    class bound_class(StalenessBound):
        def required_frontier(self, epoch):
            relaxed = epoch > self.first_epoch and not self.is_exact(epoch - 1)
            return epoch - 1 - (self.staleness if relaxed else 0)


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
        self._frontier.reports = lambda epoch: ()


class StepsAreNotReported(Scheduler):
    """Peers that wait for a whole step receive no report of it."""

    def handle(self, event):
        return [action for action in super().handle(event) if not isinstance(action, StepFinished)]


class PermitsAreIgnored(Scheduler):
    """The first permit opens every epoch."""

    def handle(self, event):
        return super().handle(event._replace(epoch=event.epoch + 1) if isinstance(event, Permit) else event)


class WaitingIsNotReported(Scheduler):
    """That the bound holds an interval back is not reported."""

    def handle(self, event):
        return [action for action in super().handle(event) if not isinstance(action, Waiting)]


class WaitingIsReportedAgain(Scheduler):
    """Waiting is returned each time an interval is considered."""

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
        report = event._replace(step=None)
        if event.step is None and report in self._assumed:
            return []
        actions = super()._peer_finished(event)
        if event.step == 0:
            self._assumed.add(report)
            actions += super()._peer_finished(report)
        return actions


class IntervalsTakeTurns(Scheduler):
    """In relaxed epochs one interval at a time, from its first task to its last."""

    def _admit(self, intervals):
        actions = []
        for interval in sorted(self._idle, key=lambda each: (self._idle[each], each)):
            none_inside = len(self._idle) == len(self._exact.mine)
            if none_inside or self._bound.is_exact(self._idle[interval]):
                actions += super()._admit([interval])
        return actions


class StashIsNotPinned(Stash):
    """Backward receives the version that was pinned last, by any interval."""

    def pin(self, interval, epoch, version, weights):
        super().pin(interval, epoch, version, weights)
        self.latest = (version, weights)

    def get(self, interval, epoch):
        return self.latest


class ReleaseIsForgotten(Stash):
    """Pins are never released."""

    def release(self, interval, epoch):
        pass


class ReleaseFreesForEveryone(Stash):
    """The first release of a version takes it from the others."""

    def release(self, interval, epoch):
        version, _ = self.get(interval, epoch)
        super().release(interval, epoch)
        self._versions.pop(version, None)


class VersionsAreNotFreed(Stash):
    """Pins are released, but their weights are kept."""

    def release(self, interval, epoch):
        del self._pins[interval, epoch]
