"""HE13x: what a shell around the launcher does to signals and exit codes."""

from collections.abc import Iterator

from hvd_elastic.mpijob.contract import ADOPT_FILE
from hvd_elastic.mpijob.lint.model.container_command import ShellScript, unwrap
from hvd_elastic.mpijob.lint.model.horovodrun_flags import Launcher
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob
from hvd_elastic.mpijob.lint.rule import At, Hit, Severity, rule


def _script(job: LintedJob) -> ShellScript | None:
    return job.call.script if job.call.launcher is not Launcher.OTHER else None


@rule(
    "HE131",
    "shell-keeps-signals",
    Severity.WARNING,
    why="The kubelet's SIGTERM goes to PID 1, the shell, which does not hand it on: the launcher is killed in "
    "mid-flight when the grace is over, and the pod takes the whole grace (30 s by default) to end.",
    fix="Write the command as a list without a shell, or put `exec` before the launcher.",
    at=At.LAUNCHER,
    bad="""
command: [bash, -c, "cd /code; horovodrun -np 2 --host-discovery-script /hosts python train.py; echo done"]
""",
    good="""
command: [bash, -c, "cd /code && exec horovodrun -np 2 --host-discovery-script /hosts python train.py"]
""",
)
def shell_keeps_signals(job: LintedJob) -> Iterator[Hit]:
    """Finds a launcher that runs as the child of a shell."""
    script, source = _script(job), job.call.source
    if script is None or source.replaces_shell:
        return
    # Shells replace themselves with a script's only command, so that one needs no `exec`.
    if len(script.steps) > 1:
        yield Hit(
            path=script.path, value=script.text, message="the shell is PID 1 and keeps SIGTERM to itself; use exec"
        )


@rule(
    "HE132",
    "exit-code-lost",
    Severity.ERROR,
    why="A pipe into `tee` ends with tee's 0, `|| true` and a later command hide a failure, `&` leaves the launcher "
    "behind: the operator marks a failed training Succeeded, and never restarts it.",
    fix="Put `set -o pipefail` before a pipe, `set -e` before several commands, and the launcher last; or leave the "
    "log to `kubectl logs`.",
    at=At.LAUNCHER,
    bad="""
command: [bash, -c, "horovodrun -np 2 --host-discovery-script /hosts python train.py | tee /logs/out"]
""",
    good="""
command: [bash, -c, "set -o pipefail; horovodrun -np 2 --host-discovery-script /hosts python train.py | tee /logs/out"]
""",
)
def exit_code_lost(job: LintedJob) -> Iterator[Hit]:
    """Finds shell scripts in which the launcher's exit code does not become the script's."""
    script = _script(job)
    reason = _why_lost(script, job.call.source.step) if script else ""
    if script and reason:
        yield Hit(path=script.path, value=script.text, message=reason)


def _why_lost(script: ShellScript, at: int) -> str:
    operator = script.steps[at].operator
    following = script.steps[at + 1 :]
    if operator == "|" and not script.pipefail:
        return "the pipe ends with its last command's exit code; set -o pipefail"
    if operator == "||" and following and following[0].words[0].text in ("true", ":", "exit", "echo"):
        return f"`|| {following[0].words[0].text}` hides the launcher's failure"
    if operator == "&" and not any(step.words[0].text == "wait" for step in following):
        return "`&` leaves the launcher in the background, and nothing waits for it"
    if operator in (";", "\n") and following and not script.stops_on_error and not _hands_on(script, at):
        return "a later command decides the exit code; set -e, or put the launcher last"
    return ""


def _hands_on(script: ShellScript, at: int) -> bool:
    """`code=$?; ...; exit $code` hands the exit code on."""
    texts = [word.text for step in script.steps[at + 1 :] for word in step.words]
    return any("$?" in text for text in texts) and any(text == "exit" for text in texts)


@rule(
    "HE133",
    "worker-exit-hidden",
    Severity.ERROR,
    why="A worker that exits 0 while it is still assigned stops the whole job as a success; one that exits non-zero is "
    "restored around. A script whose failure is hidden so ends the training at the first error, with status Succeeded.",
    fix="Start the script itself, or end its shell with the script's exit code.",
    at=At.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, sh, -c, "python train.py || true"]
""",
    good="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, sh, -c, "cd /code && exec python train.py"]
""",
)
def worker_exit_hidden(job: LintedJob) -> Iterator[Hit]:
    """Finds training commands in a shell that hides their exit code."""
    command = job.call.command
    if command and command[0].program == ADOPT_FILE:
        command = command[1:]
    script = unwrap(command, {}, frozenset(("python", "python3"))) if job.elastic else None
    if script and script.script and script.program.startswith("python"):
        reason = _why_lost(script.script, script.step)
        if reason:
            where = script.script
            yield Hit(path=where.path, value=where.text, message=reason.replace("launcher", "training command"))
