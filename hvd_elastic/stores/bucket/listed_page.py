"""One answer to a ListObjectsV2, from its XML (Amazon S3 API, "ListObjectsV2")."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourceObject:
    """One object of the source."""

    key: str
    """Below the source's prefix; the file's path below the staged folder."""
    size_bytes: int
    etag: str
    """Without quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPage:
    """Up to 1,000 objects."""

    objects: tuple[SourceObject, ...]
    """With whole keys."""
    more: str | None
    """The continuation token of the next page. None: this is the last one."""

    @classmethod
    def of_xml(cls, body: bytes) -> "ListedPage":
        """From the answer's body. Raises ValueError if it is not one (ParseError is one, too)."""
        try:
            root = ET.fromstring(body)  # noqa: S314 - from the store that the data set comes from; botocore does the same
        except ET.ParseError as error:
            raise ValueError(f"a listing that is no XML: {error}") from error
        if _name(root) != "ListBucketResult":
            raise ValueError(f"a listing that is <{_name(root)}>")
        top = {_name(each): each.text or "" for each in root}
        is_quoted = top.get("EncodingType") == "url"
        objects = tuple(
            _object({_name(part): part.text or "" for part in each}, is_quoted=is_quoted)
            for each in root
            if _name(each) == "Contents"
        )
        return cls(objects=objects, more=_more(top.get("IsTruncated") == "true", top.get("NextContinuationToken")))

    @classmethod
    def of_boto3(cls, answer: Mapping[str, Any]) -> "ListedPage":
        """From what boto3 has made of it."""
        objects = tuple(
            SourceObject(key=one["Key"], size_bytes=one["Size"], etag=one["ETag"].strip('"'))
            for one in answer.get("Contents", ())
        )
        return cls(objects=objects, more=_more(bool(answer.get("IsTruncated")), answer.get("NextContinuationToken")))


def _object(parts: Mapping[str, str], *, is_quoted: bool) -> SourceObject:
    if missing := {"Key", "Size", "ETag"} - parts.keys():
        raise ValueError(f"an object without {', '.join(sorted(missing))}")
    key = unquote_plus(parts["Key"]) if is_quoted else parts["Key"]
    return SourceObject(key=key, size_bytes=int(parts["Size"]), etag=parts["ETag"].strip('"'))


def _more(is_truncated: bool, token: str | None) -> str | None:
    if is_truncated and not token:
        raise ValueError("a listing that goes on, and does not say where")
    return token if is_truncated else None


def _name(element: "ET.Element") -> str:
    return element.tag.rpartition("}")[2]
