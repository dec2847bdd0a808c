"""The cluster's own certificate authority, and kubeconfigs made from it."""

import datetime
import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=30)
"""Longer than any cluster of a test lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Issues certificates into one folder."""

    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        """Make a new authority; `ca.crt` and `ca.key` lie in the folder."""
        folder.mkdir(parents=True, mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hvd-elastic-test")])
        builder = _builder(subject, subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        made = cls(folder=folder, certificate=builder.sign(key, hashes.SHA256()), key=key)
        _write(folder, "ca", made.certificate, key)
        return made

    @classmethod
    def load(cls, folder: Path) -> "Authority":
        """Read back what `create` wrote."""
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(folder=folder, certificate=x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()), key=key)

    @property
    def root(self) -> Path:
        """The authority's own certificate."""
        return self.folder / "ca.crt"

    def issue(self, name: str, user: str, *, groups: Iterable[str] = (), answers_to: Iterable[str] = ()) -> Pair:
        """Issue a certificate: of `user` in `groups` to the API server, and of a server that `answers_to` names."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        builder = _builder(subject, self.certificate.subject, key.public_key())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(usage, critical=False)
        if names := [_alternative(name) for name in answers_to]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _write(self.folder, name, builder.sign(self.key, hashes.SHA256()), key)


def signing_keys(folder: Path) -> tuple[Path, Path]:
    """Make the keys that sign and check service account tokens: (private, public)."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = folder / "sa.key", folder / "sa.pub"
    private.write_bytes(_pem(key))
    pem, info = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(pem, info))
    return private, public


def kubeconfig(file: Path, *, server: str, root: Path, user: Pair | str) -> Path:
    """Write a kubeconfig for a certificate or a token (as JSON, which is YAML)."""
    if isinstance(user, str):
        credentials: dict[str, str] = {"token": user}
    else:
        credentials = {"client-certificate": str(user.certificate), "client-key": str(user.key)}
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(root)}}],
        "users": [{"name": "test", "user": credentials}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(value))
    return file


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _LIFE)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pair = Pair(certificate=folder / f"{name}.crt", key=folder / f"{name}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pair.key.touch(mode=0o600)
    pair.key.write_bytes(_pem(key))
    return pair


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain)
