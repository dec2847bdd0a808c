"""What a checkpoint proves of the samples that its training used: its certificate, read and compared."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hvd_elastic.trainer.checkpoint import Checkpoint

WRONG: Final = "WRONG"
"""What is said of a checkpoint begins with it if the samples are not what its position says."""


def verified_samples(found: "Checkpoint") -> str:
    """Read every byte of a checkpoint, compare it to its SHA-256, and say what its certificate of samples proves.

    Raises:
        CorruptError: the checkpoint does not verify.
    """
    from hvd_elastic.trainer.checkpoint import IncompatibleError

    try:
        return _words(found.load())
    except IncompatibleError as error:  # it was whole: classes are looked for only then
        return f"not read: {error}"


def _words(values: dict[str, object]) -> str:
    from hvd_elastic.trainer.data.progress import Progress
    from hvd_elastic.trainer.data.sample_certificate import examine

    progress = values.get("progress")
    if not isinstance(progress, dict):
        return "not a State's"
    certificate = Progress.from_state_dict(progress).data.certificate
    if certificate is None:
        return "no certificate"
    certificate.forget()
    finding = examine(certificate)
    return finding.words if finding.holds else f"{WRONG}: {finding.words}"
