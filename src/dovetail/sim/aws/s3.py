"""S3 as far as logs are kept in it: objects are put, also only where there is none, read and listed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import md5
from typing import Any
from urllib.parse import quote

from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["S3Buckets", "S3Object"]

PAGE = 1000


@dataclass(frozen=True, slots=True)
class S3Object:
    """An object: what it holds, and since when."""

    body: bytes
    modified: datetime

    @property
    def etag(self) -> str:
        return f'"{md5(self.body, usedforsecurity=False).hexdigest()}"'


class S3Buckets(ServiceState):
    """The buckets of an account, and the objects of each by key."""

    def init_state(self) -> None:
        self.by_name: dict[str, dict[str, S3Object]] = {}

    def find(self, request: AwsRequest) -> dict[str, S3Object]:
        found = self.by_name.get(request.get_required("Bucket"))
        if found is None:
            raise request.refuse("NoSuchBucket", "The specified bucket does not exist", 404)
        return found


@operation("s3", "CreateBucket")
def create_bucket(request: AwsRequest) -> Json:
    buckets, name = request.global_state(S3Buckets), request.get_required("Bucket")
    if name in buckets.by_name:
        said = "Your previous request to create the named bucket succeeded and you already own it."
        raise request.refuse("BucketAlreadyOwnedByYou", said, 409)
    buckets.by_name[name] = {}
    return {"Location": f"/{name}"}


@operation("s3", "PutObject")
def put_object(request: AwsRequest) -> Json:
    buckets = request.global_state(S3Buckets)
    objects, key = buckets.find(request), request.get_required("Key")
    if request.get("IfNoneMatch") == "*" and key in objects:
        said = "At least one of the pre-conditions you specified did not hold"
        raise request.refuse("PreconditionFailed", said, 412)
    body = request.get("Body", b"")
    made = objects[key] = S3Object(
        body.encode() if isinstance(body, str) else bytes(body), buckets.clock.now()
    )
    return {"ETag": made.etag}


@operation("s3", "GetObject")
def get_object(request: AwsRequest) -> Json:
    found = request.global_state(S3Buckets).find(request).get(request.get_required("Key"))
    if found is None:
        raise request.refuse("NoSuchKey", "The specified key does not exist.", 404)
    return {
        "Body": found.body,
        "ContentLength": len(found.body),
        "ETag": found.etag,
        "LastModified": found.modified,
    }


@operation("s3", "ListObjectsV2")
def list_objects(request: AwsRequest) -> Json:
    """Keys in the order of their bytes. A token is the last key of the page before."""
    objects, prefix = request.global_state(S3Buckets).find(request), request.get("Prefix", "")
    after = request.get("ContinuationToken") or request.get("StartAfter", "")
    most = min(int(request.get("MaxKeys", PAGE)), PAGE)
    keys = [key for key in sorted(objects, key=str.encode) if key.startswith(prefix)]
    left = [key for key in keys if not after or key.encode() > after.encode()]
    shown = left[:most]
    quoted = request.get("EncodingType") == "url"
    answer: dict[str, Any] = {
        "Name": request.get("Bucket"),
        "Prefix": quote(prefix) if quoted else prefix,
        "KeyCount": len(shown),
        "MaxKeys": most,
        "IsTruncated": len(left) > len(shown),
        "Contents": [_describe_object(quote(key) if quoted else key, objects[key]) for key in shown],
    }
    if quoted:
        answer["EncodingType"] = "url"
    if answer["IsTruncated"]:
        answer["NextContinuationToken"] = shown[-1]
    return answer


def _describe_object(key: str, found: S3Object) -> Json:
    told: Json = {"Key": key, "LastModified": found.modified, "ETag": found.etag}
    return {**told, "Size": len(found.body), "StorageClass": "STANDARD"}
