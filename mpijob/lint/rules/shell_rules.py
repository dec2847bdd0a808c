"""HE13x: what a shell around the launcher does to signals and exit codes."""

from collections.abc import Iterator

from hvd_elastic.mpijob.contract import ADOPT_FILE
from hvd_elastic.mpijob.lint.job.container_command import ShellScript, unwrap
from hvd_elastic.mpijob.lint.job.launcher_command_line import LauncherProgram
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule


def _script(job: LintedJob) -> ShellScript | None:
    return job.command_line.shell_script if job.command_line.program is not LauncherProgram.OTHER else None


@rule(
    "HE131",
    "shell-keeps-signals",
    Severity.WARNING,
    why="The kubelet sends SIGTERM to PID 1. That is the shell, which does not forward it: the launcher is killed in "
    "mid-flight when the grace period ends, and the pod takes the whole grace period (30 s by default) to terminate.",
    fix="Write the command as a list without a shell, or put `exec` before the launcher.",
    part=ManifestPart.LAUNCHER,
    bad="""
command: [bash, -c, "cd /code; horovodrun -np 2 --host-discovery-script /hosts python train.py; echo done"]
""",
    good="""
command: [bash, -c, "cd /code && exec horovodrun -np 2 --host-discovery-script /hosts python train.py"]
""",
)
def shell_keeps_signals(job: LintedJob) -> Iterator[Violation]:
    """Finds a launcher that runs as the child of a shell."""
    script, source = _script(job), job.command_line.container_command
    if script is None or source.replaces_shell:
        return
    # A shell replaces itself with a script's only command, so that command needs no `exec`.
    if len(script.steps) > 1:
        yield Violation(
            path=script.path, value=script.text, message="the shell is PID 1 and does not forward SIGTERM; use exec"
        )


@rule(
    "HE132",
    "exit-code-lost",
    Severity.ERROR,
    why="A pipe into `tee` ends with tee's exit code 0, `|| true` or a later command hides a failure, and `&` leaves "
    "the launcher behind. The operator then marks a failed training Succeeded and never restarts it.",
    fix="Put `set -o pipefail` before a pipe, `set -e` before several commands, and the launcher last; or drop the "
    "log file and use `kubectl logs`.",
    part=ManifestPart.LAUNCHER,
    bad="""
command: [bash, -c, "horovodrun -np 2 --host-discovery-script /hosts python train.py | tee /logs/out"]
""",
    good="""
command: [bash, -c, "set -o pipefail; horovodrun -np 2 --host-discovery-script /hosts python train.py | tee /logs/out"]
""",
)
def exit_code_lost(job: LintedJob) -> Iterator[Violation]:
    """Finds shell scripts whose exit code is not the launcher's."""
    script = _script(job)
    reason = _why_lost(script, job.command_line.container_command.step) if script else ""
    if script and reason:
        yield Violation(path=script.path, value=script.text, message=reason)


def _why_lost(script: ShellScript, index: int) -> str:
    operator = script.steps[index].operator
    following = script.steps[index + 1 :]
    if operator == "|" and not script.pipefail:
        return "the exit code of the pipe is that of its last command; use set -o pipefail"
    if operator == "||" and following and following[0].words[0].text in ("true", ":", "exit", "echo"):
        return f"`|| {following[0].words[0].text}` hides the launcher's failure"
    if operator == "&" and not any(step.words[0].text == "wait" for step in following):
        return "`&` leaves the launcher in the background, and nothing waits for it"
    if operator in (";", "\n") and following and not script.stops_on_error and not _passes_exit_code_on(script, index):
        return "a later command determines the exit code; use set -e, or put the launcher last"
    return ""


def _passes_exit_code_on(script: ShellScript, index: int) -> bool:
    """Whether the script passes the exit code on, as in `code=$?; ...; exit $code`."""
    texts = [word.text for step in script.steps[index + 1 :] for word in step.words]
    return any("$?" in text for text in texts) and any(text == "exit" for text in texts)


@rule(
    "HE133",
    "worker-exit-hidden",
    Severity.ERROR,
    why="A worker that exits with 0 while it is still assigned ends the whole job as a success. After a non-zero "
    "exit, the other workers restore and continue. A script whose failure is hidden therefore ends the training at "
    "the first error, with status Succeeded.",
    fix="Start the script directly, or make its shell exit with the script's exit code.",
    part=ManifestPart.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, sh, -c, "python train.py || true"]
""",
    good="""
command: [horovodrun, -np, "2", --host-discovery-script, /hosts, sh, -c, "cd /code && exec python train.py"]
""",
)
def worker_exit_hidden(job: LintedJob) -> Iterator[Violation]:
    """Finds training commands whose shell hides their exit code."""
    command = job.command_line.training_command
    if command and command[0].program == ADOPT_FILE:
        command = command[1:]
    script = unwrap(command, {}, frozenset(("python", "python3"))) if job.elastic else None
    if script and script.script and script.program.startswith("python"):
        reason = _why_lost(script.script, script.step)
        if reason:
            where = script.script
            yield Violation(path=where.path, value=where.text, message=reason.replace("launcher", "training command"))
