"""What the certificate proves is examined in the background, and the newest is never left out."""

import threading

import pytest

from hvd_elastic.trainer.data import sample_proof
from hvd_elastic.trainer.data.sample_certificate import Certificate, CertificateFinding
from hvd_elastic.trainer.data.sample_proof import SampleProof


def test_the_newest_of_those_that_come_while_another_is_examined_is_examined_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, goes_on = threading.Event(), threading.Event()
    examined: list[int] = []

    def examine(_: Certificate) -> CertificateFinding:
        examined.append(len(examined))
        began.set()
        assert goes_on.wait(20)
        return CertificateFinding(holds=True, words=f"number {len(examined)}")

    monkeypatch.setattr(sample_proof, "examine", examine)
    proof = SampleProof()
    proof.begin(Certificate())
    assert began.wait(20)
    for _ in range(3):
        proof.begin(Certificate())
    goes_on.set()
    proof.wait()
    assert (proof.words, len(examined)) == ("number 2", 2)
    proof.begin(Certificate())
    proof.wait()
    assert proof.words == "number 3"


def test_an_error_ends_one_examination_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sample_proof, "examine", lambda _: 1 / 0)
    proof = SampleProof()
    proof.begin(Certificate())
    proof.wait()
    assert proof.words == "not examined: ZeroDivisionError", "what was proved before says nothing of this one"
    assert "a certificate of samples was not examined: ZeroDivisionError: division by zero (" in caplog.text
    monkeypatch.setattr(sample_proof, "examine", lambda _: CertificateFinding(holds=True, words="well"))
    proof.begin(Certificate())
    proof.wait()
    assert proof.words == "well"
