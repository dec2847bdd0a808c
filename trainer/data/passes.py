"""Which pass over the data is under way, and what a commit may say about it: a state machine over positions alone.

After a resize or a restart the script runs the body of the interrupted epoch again from its top. Every call of
`State.batches` in it is a *pass*. It is found again by its name and by how many calls of that name came before it: one
that has ended yields nothing, an interrupted one continues. So a commit must be made where this leads back to the same
place:

* while a pass is under way, in the body of its loop, or
* at the end of a body, when all of it has been done.

Between two passes, and between the last one and the end of the body, it would not: nobody could say whether what stands
there (`scheduler.step()`, an evaluation) was done before the commit. Such a commit is deferred.

The body of a pass's loop is a body too. A pass that is called in it is an *inner* one. If a commit covers the present
step of the passes around it before it begins, the inner pass is not part of the position: training continues with the
next step. If not, the position is that before this step, and the inner passes are found again within it.

All workers decide alike: each decision depends on the order of calls alone.
"""

from collections import Counter
from dataclasses import replace

from hvd_elastic.trainer.data.certified_pass import CertifiedPass
from hvd_elastic.trainer.data.progress import Cursor, EpochPosition
from hvd_elastic.trainer.data.sample_certificate import Certificate
from hvd_elastic.trainer.data.sampler import MicroBatch

NO_BATCH = MicroBatch(count=0, weight=1.0, last=True, position=0, padding=0)


class Pass:
    """One call of `State.batches`."""

    def __init__(self, body: "Body", cursor: Cursor, *, name: str, path: tuple[int, ...]) -> None:
        self.body, self.cursor, self.name = body, cursor, name
        self.path = path
        """Sets the order of this pass apart from that of others in the same epoch; empty for the first one."""
        self.current = NO_BATCH
        """The micro-batch that was yielded last."""
        self.before = replace(cursor)
        """The cursor before the present step."""
        self.in_batch = False
        """A batch was yielded whose step has not been left yet."""
        self.covered = True
        """The last commit covers the present step."""
        self.certified: CertifiedPass | None = None
        """Where its samples are certified; None: they are not."""
        self.unshared_digest = 0
        """Sum of the hashes of this worker's samples of the steps before the present one, which nobody was told yet."""
        self.unshared_step = 0
        """The same of the present step."""
        self._hashed = 0
        """The same of the micro-batches of a step that is not complete."""

    def take(self, micro_batch: MicroBatch) -> None:
        """Yield the next micro-batch. The cursor moves with the last one of a step."""
        if not self.in_batch:
            self.before, self.in_batch, self.covered = replace(self.cursor), True, False
            self.unshared_digest += self.unshared_step
            self.unshared_step = self._hashed = 0
        self.current = micro_batch
        self._hashed += micro_batch.digest
        if micro_batch.last:
            self.unshared_step = self._hashed
            self.cursor.position = micro_batch.position
            self.cursor.padded += micro_batch.padding
            self.cursor.steps += 1


class Body:
    """What runs again from its top: an epoch's body, or that of one step of the passes around it."""

    def __init__(self, position: EpochPosition, around: "Body | None" = None) -> None:
        self.position, self.around = position, around
        self.calls: Counter[str] = Counter()
        self.under_way: list[Pass] = []
        self.inner: Body | None = None
        self.begun = False
        """A pass of this body has begun."""
        self.left = False
        """A pass of this body has ended."""
        self.detached = False
        """The last commit covers the step around it: its passes are not part of the position."""
        self.deferred = False
        """A commit waits for the end of this body."""


class EpochAccount:
    """The passes of an epoch, as they are called, begin, advance and end."""

    def __init__(self, position: EpochPosition) -> None:
        self._top = Body(position)
        self._certified: list[Pass] = []
        """The passes whose samples are certified, as far as they may have samples that nobody was told."""
        self.in_epoch = False
        """`State.remaining_epochs` runs the body, so its end is seen."""

    @property
    def position(self) -> EpochPosition:
        """The live position. That of a commit is what `commit()` returns."""
        return self._top.position

    def enter_epoch(self, epoch: int) -> None:
        """Run the body of this epoch from its top, in `State.remaining_epochs`."""
        self.in_epoch = True
        self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        before = self.position
        if before.epoch != epoch and before.certificate is not None:
            before.certificate.put_together(before.epoch, [each.certified for each in self._certified])
        new = EpochPosition(epoch=epoch, certificate=before.certificate)
        self._top = Body(before if before.epoch == epoch else new)

    def leave_epoch(self) -> None:
        """The script has left the loop over the epochs."""
        self.in_epoch = False

    def call(self, name: str, epoch: int) -> Pass:
        """Return the pass of the next call under this name."""
        self._follow(epoch)
        body = self._top
        path: tuple[int, ...] = ()
        while body.under_way:
            path = (*path, *(each.before.position for each in body.under_way))
            if body.inner is None:
                body.position.inner = body.position.inner or EpochPosition(epoch=epoch)
                body.inner = Body(body.position.inner, around=body)
            body = body.inner
        call = body.calls[name]
        body.calls[name] += 1
        if call or path:
            path = (*path, call)
        return Pass(body, body.position.cursor(name, call), name=name, path=path)

    def begin(self, begun: Pass) -> None:
        """Begin a pass: its first batch is asked for."""
        body = begun.body
        if not body.begun:
            body.begun, body.detached = True, self._is_detached(begun)
        for each in body.under_way:
            _run_beside(each, begun.name)
            _run_beside(begun, each.name)
        body.under_way.append(begun)

    def leave_step(self, finished: Pass) -> bool:
        """Leave the present step: the next batch is asked for. Returns whether a deferred commit is due now."""
        body = finished.body
        if not finished.in_batch or not finished.current.last:
            return False
        if body.around is not None and body.around.inner is not body:
            for each in body.around.under_way:
                _run_beside(each, finished.name)
        finished.in_batch = False
        return _end_inner(body)

    def end(self, ended: Pass) -> None:
        """End a pass: it was exhausted, or the script has left it."""
        body = ended.body
        ended.cursor.ended = True
        body.position.add_up(ended.name)
        body.under_way.remove(ended)
        body.left = True
        if ended.in_batch:
            body.deferred |= _end_inner(body)

    def end_epoch(self) -> bool:
        """End the body of an epoch. Returns whether a deferred commit is due now, which belongs to the next epoch."""
        deferred, self._top = self._top.deferred, Body(self.position)
        return deferred

    def once(self, name: str, epoch: int) -> bool:
        """Return True the first time for this name in this epoch."""
        self._follow(epoch)
        first = name not in self.position.once
        if first:
            self.position.once.append(name)
        return first

    @property
    def is_between_passes(self) -> bool:
        """Whether a pass has ended in the body of an epoch, and none is under way."""
        return self.in_epoch and self._top.left and not self._top.under_way

    def may_commit(self) -> bool:
        """Return whether training that continues from a commit made now would come back to this place."""
        body = self._innermost()
        if body.under_way or not body.left:
            return True
        return body is self._top and not self.in_epoch

    def defer(self) -> None:
        """Put a commit off until the end of the present body."""
        self._innermost().deferred = True

    def commit(self) -> EpochPosition:
        """Return the position of a commit made now."""
        position = self.position.copy()
        for each in self._certified:
            assert each.certified is not None
            each.certified.position = self._covered(each)
        _settle(self._top, position)
        return position

    # --- The certificate of samples ----------------------------------------------------------------------------------

    def certify(self, begun: Pass, *, seed: int, shuffle: bool | None) -> None:
        """Certify the samples of a pass: the first one of its name in an epoch, at the top of its body.

        Passes within a step are done again with it, and their number is not known from a length; they are left out, as
        is a pass that an older version has begun.
        """
        if begun.path or begun.body.around is not None or begun.cursor.ended:
            return
        self.position.certificate = certificate = self.position.certificate or Certificate()
        found = certificate.find(begun.name, self.position.epoch)
        if found is None and begun.cursor.position:
            return
        if found is None:
            epoch = self.position.epoch
            found = CertifiedPass(
                name=begun.name, first=epoch, last=epoch, length=begun.cursor.length, seed=seed, shuffle=shuffle
            )
            certificate.passes.append(found)
        begun.certified = found
        self._certified.append(begun)

    def unshared_digest(self) -> int:
        """The sum, modulo 2^64, over this worker's samples that the next commit covers and that it has not told yet."""
        steps = sum(each.unshared_step for each in self._certified if self._covers_step(each))
        return (steps + sum(each.unshared_digest for each in self._certified)) % (1 << 64)

    def confirm(self, digest: int) -> None:
        """All workers have told: `digest` is the sum of what `unshared_digest` was on each of them."""
        for each in self._certified:
            assert each.certified is not None
            each.unshared_digest = 0
            each.unshared_step = 0 if self._covers_step(each) else each.unshared_step
            each.certified.position = each.certified.told = self._covered(each)
            each.certified.length = each.cursor.length
        self._certified = [each for each in self._certified if each in self._top.under_way]
        if self.position.certificate is not None:
            self.position.certificate.add(digest)

    def _covers_step(self, each: Pass) -> bool:
        """Whether a commit made now covers the present step of a pass. See `_settle`."""
        if each.covered or each not in self._top.under_way:
            return True
        return self._top.inner is None or not _has_position(self._top.inner)

    def _covered(self, each: Pass) -> int:
        return each.cursor.position if self._covers_step(each) else each.before.position

    # --- Internal ----------------------------------------------------------------------------------------------------

    def _follow(self, epoch: int) -> None:
        """A script that counts its epochs itself has begun the next one."""
        if not self._top.under_way and self.position.epoch != epoch:
            self._begin(epoch)

    def _innermost(self) -> Body:
        """Return the innermost body that is part of the position."""
        body = self._top
        while body.under_way and _has_position(body.inner):
            assert body.inner is not None
            body = body.inner
        return body

    def _is_detached(self, begun: Pass) -> bool:
        """Whether the passes of this pass's body are not part of the position. `begun` is the first of them."""
        body, around = begun.body, begun.body.around
        if around is None:
            return body is not self._top
        if around.inner is not body or all(each.covered for each in around.under_way):
            return True
        # A smaller data set that is begun again whenever it is exhausted runs beside the larger one, not within it.
        return any(begun.name in each.cursor.beside for each in around.under_way)


def _has_position(inner: Body | None) -> bool:
    return inner is not None and inner.begun and not inner.detached


def _end_inner(body: Body) -> bool:
    """End the body of a step. Returns whether a commit was deferred in it."""
    inner, body.inner, body.position.inner = body.inner, None, None
    return inner is not None and (inner.deferred or _end_inner(inner))


def _run_beside(one: Pass, name: str) -> None:
    one.cursor.beside = sorted({*one.cursor.beside, name})


def _settle(body: Body, position: EpochPosition) -> None:
    """Make `position`, a copy of the body's, the committed one, and note what it covers."""
    body.deferred = False
    if not body.under_way:
        return
    inner = body.inner
    if inner is not None and _has_position(inner):
        for each in body.under_way:
            if not each.covered:
                cursors = body.position.passes[each.name]
                index = next(index for index, cursor in enumerate(cursors) if cursor is each.cursor)
                position.passes[each.name][index] = replace(each.before)
        assert position.inner is not None
        _settle(inner, position.inner)
        return
    position.inner = None
    if inner is None:
        body.position.inner = None
    for each in body.under_way:
        each.covered = True
