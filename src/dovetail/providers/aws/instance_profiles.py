"""Instance profiles: a role's shell, which EC2 wants in its place, made anew whenever a class's role changes.

A new profile for each change, because IAM tells of changes late: an instance launched with a changed profile
might still get the old role. Old ones are kept while nodes may use them, and collected later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from random import Random
from typing import Any, Final
from uuid import UUID

from dovetail.api.hashes import legacy_instance_profile, structural_hash
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import Aws, AwsAbsent, AwsError, list_pages
from dovetail.errors import DovetailError, Retry
from dovetail.ports import Clock
from dovetail.providers.aws.tags import build_profile_tags, list_tags
from dovetail.providers.aws.ttl_cache import TtlCache
from dovetail.settings import Settings

__all__ = ["InstanceProfileProvider", "RoleMissing"]

KEPT: Final = timedelta(minutes=15)
ROLE_MISSING_KEPT: Final = timedelta(minutes=1)
RECREATION_KEPT: Final = timedelta(minutes=1)
PROTECTED: Final = timedelta(hours=1)
LEGAL: Final = re.compile(r"[\w+=,.@-]{1,128}", re.ASCII)


class RoleMissing(Retry):
    """IAM does not know the role a class names."""


class InstanceProfileProvider:
    """Makes, reads and deletes instance profiles."""

    def __init__(self, aws: Aws, clock: Clock, settings: Settings, rng: Random) -> None:
        self._aws = aws
        self._cluster = settings.cluster_name
        self._chance = rng
        self._roles: TtlCache[str, str] = TtlCache(clock, KEPT)
        self._missing_roles: TtlCache[str, str] = TtlCache(clock, ROLE_MISSING_KEPT)
        self._made: TtlCache[tuple[str, str], str] = TtlCache(clock, RECREATION_KEPT)
        self._protected: TtlCache[str, bool] = TtlCache(clock, PROTECTED)

    async def resolve_profile(self, node_class: EC2NodeClass) -> str:
        """The profile nodes of the class get: the one it names, or one that holds its role."""
        before = node_class.status.instance_profile or ""
        if node_class.spec.instance_profile:
            found = node_class.spec.instance_profile
        else:
            found = await self._for_role(node_class, node_class.spec.role or "")
        if before and before != found:
            self.protect_profile(before)
        return found

    async def _for_role(self, node_class: EC2NodeClass, role: str) -> str:
        # A profile made a moment ago may not have reached the status, if the write of that was lost.
        made = (role, node_class.uid)
        current = self._made.get(made) or node_class.status.instance_profile or ""
        # Roles are compared without their paths, which profiles do not show.
        if current and await self._role_of(current) == _role_name(role):
            return current
        name = self._fresh_name(node_class)
        await self._create_profile(node_class, name, role)
        self._made.put(made, name)
        self.protect_profile(name)
        return name

    async def _role_of(self, profile: str) -> str:
        """The role in a profile; empty when it holds none or is not there."""
        known = self._roles.get(profile)
        if known is not None:
            return known
        try:
            answer = await self._aws.call("iam", "GetInstanceProfile", {"InstanceProfileName": profile})
        except AwsAbsent:
            return ""
        roles = answer["InstanceProfile"].get("Roles") or ()
        role = str(roles[0]["RoleName"]) if roles else ""
        if role:
            self._roles.put(profile, role)
        return role

    async def _create_profile(self, node_class: EC2NodeClass, name: str, role: str) -> None:
        missing = self._missing_roles.get(role)
        if missing is not None:
            raise RoleMissing(missing)
        asked = {
            "InstanceProfileName": name,
            "Path": self.path_of(node_class),
            "Tags": list_tags(build_profile_tags(node_class, self._cluster, self._aws.region)),
        }
        await self._aws.call("iam", "CreateInstanceProfile", asked)
        try:
            await self._attach_role(name, role)
        except DovetailError:
            await self._undo_create(name)
            raise
        self._roles.put(name, _role_name(role))

    async def _attach_role(self, name: str, role: str) -> None:
        asked = {"InstanceProfileName": name, "RoleName": _role_name(role)}
        try:
            await self._aws.call("iam", "AddRoleToInstanceProfile", asked)
        except AwsAbsent as error:
            # The code is the same for a missing profile and a missing role: only the text tells them apart.
            if "role" not in error.message.lower():
                raise
            why = f"IAM has no role {_role_name(role)}; create it, or name another in spec.role"
            self._missing_roles.put(role, why)
            raise RoleMissing(why) from error

    async def _undo_create(self, name: str) -> None:
        try:
            await self.delete(name)
        except AwsError:
            # What is left is under our path, and collected with the garbage.
            return

    async def delete(self, name: str) -> None:
        """Empty a profile and delete it; one that is not there is fine."""
        try:
            answer = await self._aws.call("iam", "GetInstanceProfile", {"InstanceProfileName": name})
            for role in answer["InstanceProfile"].get("Roles") or ():
                asked = {"InstanceProfileName": name, "RoleName": role["RoleName"]}
                await self._aws.call("iam", "RemoveRoleFromInstanceProfile", asked)
            await self._aws.call("iam", "DeleteInstanceProfile", {"InstanceProfileName": name})
        except AwsAbsent:
            pass
        self._roles.drop(name)
        self._protected.drop(name)

    async def delete_for(self, node_class: EC2NodeClass) -> None:
        """Delete every profile ever made for a class, one under its old name included."""
        for name in await self._list_under(self.path_of(node_class)):
            await self.delete(name)
        old = legacy_instance_profile(self._cluster, self._aws.region, node_class.name)
        if LEGAL.fullmatch(old):
            await self.delete(old)

    async def list_profiles(self) -> tuple[str, ...]:
        """Every profile made for this cluster in this region."""
        return await self._list_under(f"/karpenter/{self._aws.region}/{self._cluster}/")

    async def _list_under(self, path: str) -> tuple[str, ...]:
        found: list[Mapping[str, Any]] = []
        async for page in list_pages(self._aws, "iam", "ListInstanceProfiles", {"PathPrefix": path}):
            found += page.get("InstanceProfiles") or ()
        return tuple(str(each["InstanceProfileName"]) for each in found)

    def protect_profile(self, name: str) -> None:
        """Nodes may be starting with this profile: spare it for a while."""
        self._protected.put(name, True)

    def is_protected(self, name: str) -> bool:
        return name in self._protected

    def path_of(self, node_class: EC2NodeClass) -> str:
        return f"/karpenter/{self._aws.region}/{self._cluster}/{node_class.uid}/"

    def _fresh_name(self, node_class: EC2NodeClass) -> str:
        salt = UUID(int=self._chance.getrandbits(128), version=4)
        return f"{self._cluster}_{structural_hash(f'{self._aws.region}{node_class.name}{salt}')}"


def _role_name(role: str) -> str:
    """A role's name without its path."""
    return role.rpartition("/")[2]
