"""`elastic.run`: `hvd.elastic.run` without its known defects.

It takes any Horovod state, so that scripts written for `hvd.elastic.run` profit too (`horovod_patches.install`).
It differs from Horovod 0.28.1 (`horovod/common/elastic.py`, `run_fn`) as follows:

* After every reset all workers sync. Horovod lets survivors skip it if workers were only removed, while a newcomer of
  the same rendezvous waits for their broadcast without end (horovod issue 3494).
* A host update that arrives while the next world is being formed is not lost, and two in one second are two.
* Leaving, a lost launcher and a mistake in the script end the process with exit codes of their own (`contract.Exit`).
* Training ends when all ranks have left their training function. One that leaves alone is a mistake in the script.
* A failure while the state is synced, or in a reset callback, is one more reset.
"""

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, ParamSpec, TypeVar

from hvd_elastic.mpijob.contract import (
    ENV_CHECKPOINT,
    FIGURES_EXPECTED_KEY,
    FIGURES_SCOPE,
    LAST_FIGURES_KEY,
    Exit,
    HvdElasticError,
)
from hvd_elastic.trainer.collectives.replaced_functions import replace_run
from hvd_elastic.trainer.collectives.setup import setup_calls
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.data.loaders import loader_processes
from hvd_elastic.trainer.elastic import (
    departure,
    distributed_samplers,
    fixed_world,
    host_updates,
    patch_check,
    script_signals,
    training_mark,
)
from hvd_elastic.trainer.elastic.host_updates import HostUpdates
from hvd_elastic.trainer.elastic.init_patch import enter_world, patch_init
from hvd_elastic.trainer.elastic.mistakes import (
    early_end,
    explained_errors,
    late_load,
    refused_join,
    script_checks,
    script_mistake,
    swallowed_interrupt,
)
from hvd_elastic.trainer.elastic.mistakes.alive import tensors_within
from hvd_elastic.trainer.elastic.mistakes.failed_operations import FailedOperations, OperationsError, failure_words
from hvd_elastic.trainer.elastic.reset_timer import ResetTimer
from hvd_elastic.trainer.elastic.stalls import stall_watch
from hvd_elastic.trainer.elastic.state_protocol import DurableState, ElasticState, is_durable
from hvd_elastic.trainer.elastic.world import rendezvous_client, world_membership
from hvd_elastic.trainer.elastic.world.rendezvous_client import Removed
from hvd_elastic.trainer.telemetry import events, json_logs

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


def run(func: Callable[P, R]) -> Callable[P, R]:
    """Run `func(state, ...)` over any number of worlds, until it returns. Patches Horovod (`horovod_patches`).

    Raises:
        Removed: this worker is no longer part of the job (SystemExit, code `Exit.REMOVED`).
        RendezvousLost: the launcher is gone (SystemExit, code `Exit.HOST_CHANGE`).
        SystemExit: code `Exit.SCRIPT_MISTAKE`, with what is wrong on stderr.
    """
    patch_init()
    patch_run()
    distributed_samplers.THIS_PROCESS.install()

    @functools.wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        state: ElasticState = args[0] if args else kwargs["state"]  # type: ignore[assignment]
        fixed_world.THIS_PROCESS.end()
        loader_processes.THIS_PROCESS.install()
        WORLD.init()
        began_as = WORLD.rank()
        if world_membership.THIS_PROCESS.pass_gate(enter_world):
            patch_check.warn_of_missing_patches()
            state.on_reset()
        setup_calls.THIS_PROCESS.end(lambda: tensors_within(state))
        if WORLD.rank() == 0:  # all run the same script, and a newcomer would keep the others waiting
            script_mistake.leave_if(script_checks.find(state))
            _check_at_commits(state)
            _warn_if_never_stored(state)
        _tell_of_training(state)
        signals = script_signals.THIS_PROCESS
        with host_updates.listening(state) as updates, _errors_are_the_scripts(began_as), signals.over_worlds():
            return _over_worlds(state, updates, lambda: func(*args, **kwargs))

    return wrapper


def patch_run() -> None:
    """Replace `hvd.elastic.run` by `run`."""
    replace_run(run)


def _over_worlds(state: ElasticState, updates: HostUpdates, func: Callable[[], R]) -> R:
    from hvd_elastic.trainer.collectives.errors import HorovodInternalError, HostsUpdatedInterrupt

    timer, failed = ResetTimer(state), FailedOperations()
    while True:
        try:
            if timer.cause is not None:
                _next_world(state, updates, timer)
            elif not setup_calls.THIS_PROCESS.has_met:  # Horovod was initialized before its `init` was replaced
                enter_world()
            state.sync()
            world_membership.THIS_PROCESS.report_synced()
            timer.resumed()
            return _train(state, func, timer)
        except HostsUpdatedInterrupt:  # a RuntimeError too
            timer.interrupted(events.PauseCause.HOSTS)
        except (RuntimeError, ConnectionError, EOFError) as error:
            is_lost = isinstance(error, HorovodInternalError) or WORLD.is_loss(error)
            # A killed loader process is no mistake of the script.
            if not (is_lost or loader_processes.THIS_PROCESS.is_lost(error)):
                raise
            timer.interrupted(events.PauseCause.FAILURE)
            logger.warning("%s", failure_words(str(error)))
            if mistake := failed.note(str(error), timer.step):
                raise OperationsError(mistake) from error
            state.restore()


def _train(state: ElasticState, func: Callable[[], R], timer: ResetTimer) -> R:
    """Call the training function, and leave it together with all other ranks.

    An exit with 0 is such an end, too. After SIGTERM any end is this rank's alone, and the others train on. Under
    Horovod's own states Horovod's rule stays: the first rank that ends well ends the job.
    """
    if not is_durable(state):
        with distributed_samplers.THIS_PROCESS.training(state), _watched_for_stalls():
            result = func()
        timer.ended()
        return result
    mark, rank = training_mark.THIS_PROCESS, WORLD.rank()
    mark.enter(rank, WORLD.size())
    ended: SystemExit | None = None
    with distributed_samplers.THIS_PROCESS.training(state), _watched_for_stalls():
        try:
            with script_signals.THIS_PROCESS.training(), refused_join.refused(), late_load.refused(state):
                result = func()
                swallowed_interrupt.THIS_PROCESS.raise_again()
        except SystemExit as error:
            if error.code and not mark.is_ordered:
                raise
            ended = error
    if mark.is_ordered and rendezvous_client.launched():
        _leave_alone(state)
    with early_end.THIS_PROCESS.ended(rank, state.step_count), stall_watch.THIS_PROCESS.paused():
        state.end_training()  # a loss meanwhile is one more reset, which calls the training function again
    mark.leave()
    if ended is not None:
        raise ended
    return result


def _leave_alone(state: DurableState) -> NoReturn:
    """End this process, which was told to, and whose training function has returned. The job goes on without it."""
    if WORLD.size() == 1:  # nobody else holds the state
        state.end_training()
    logger.info("this worker leaves, because it has received SIGTERM")
    raise Removed


def _warn_if_never_stored(state: ElasticState) -> None:
    """Say on rank 0 that the job asks for durable checkpoints, and that the script's state makes none.

    Horovod's own states are not stored: their commit neither agrees with the other workers, when a pod must not leave
    before its state is durable, nor says which worker's copy is the newest. `State` does both and takes the same
    arguments, so a second way to the store would have to be all of it again.
    """
    place = os.environ.get(ENV_CHECKPOINT, "")
    if not place or is_durable(state):
        return
    kind = type(state).__name__
    message = (
        f"checkpoint: {place.partition('?')[0]} stays empty, because the state is a {kind}, which lives in the "
        "workers' memory alone: if all of them are lost, training begins anew. Create the state as "
        "hvd_elastic.State(model=..., optimizer=..., ...) in its place: it takes the same arguments, and is stored"
    )
    logger.warning("%s", message)
    events.emit(events.Kind.CHECKPOINT, rank=0, size=WORLD.size(), step=0, saved=None, error=message)


def _watched_for_stalls() -> contextlib.AbstractContextManager[None]:
    return stall_watch.THIS_PROCESS.training(WORLD.rank(), WORLD.size(), WORLD.local_rank())


def _next_world(state: ElasticState, updates: HostUpdates, timer: ResetTimer) -> None:
    updates.forget()
    try:
        # Horovod's own states live in memory alone: they are needed as long as another worker can take them over.
        world_membership.THIS_PROCESS.reset(getattr(state, "dispensable", departure.has_no_successor), enter_world)
    except Removed:
        timer.left()
        raise
    state.on_reset()
    updates.redeliver()


def _tell_of_training(state: ElasticState) -> None:
    """Log as JSON, write figures and serve metrics, as far as somebody wants them.

    The launcher hears, before this process registers, whether to wait for the steps of the script.
    """
    from hvd_elastic.trainer.data.sample_proof import words_of_this_process
    from hvd_elastic.trainer.telemetry import figures_file, metrics_server

    json_logs.configure()
    figures_file.start(words_of_this_process, lambda line: _tell_launcher(LAST_FIGURES_KEY, line))
    if is_durable(state):
        _tell_launcher(FIGURES_EXPECTED_KEY, "")
    metrics_server.THIS_PROCESS.start(WORLD.local_rank())


def _tell_launcher(key: str, text: str) -> None:
    if rendezvous_client.launched():
        rendezvous_client.publish(FIGURES_SCOPE, key, text)


@contextlib.contextmanager
def _errors_are_the_scripts(began_as: int) -> Iterator[None]:
    """An error that no restart can repair ends the process with a message and an exit code of its own.

    What the script makes of another one, and how it ends then, is its own affair. `began_as`: this process's rank in
    its first world.
    """
    try:
        yield
    except HvdElasticError as error:
        training_mark.THIS_PROCESS.leave()
        if error.exit_code in (Exit.SCRIPT_MISTAKE, Exit.BAD_INPUT):
            script_mistake.leave_if([str(error)])
        raise
    except Exception as error:
        training_mark.THIS_PROCESS.leave()
        explained_errors.leave_if_known(error, began_as=began_as, rank=_rank_in_world())
        raise


def _rank_in_world() -> int:
    """-1 where a world could not be formed."""
    return WORLD.rank() if WORLD.is_initialized() else -1


def _check_at_commits(state: ElasticState) -> None:
    from hvd_elastic.trainer.elastic.mistakes.unsaved_helpers import UnsavedHelpers

    commit, unsaved = state.commit, UnsavedHelpers(state)
    plain = [found] if (found := script_checks.plain_optimizers(state)) else []
    if not plain and unsaved.is_empty:
        return

    @functools.wraps(commit)
    def checked(*args: Any, **kwargs: Any) -> None:
        if plain:
            script_mistake.leave_if(script_checks.find_wrapped_since(state, plain.pop()))
        script_mistake.leave_if(unsaved.find())
        commit(*args, **kwargs)

    state.commit = checked  # type: ignore[method-assign]
