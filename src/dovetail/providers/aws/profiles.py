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

from dovetail.api.hashes import legacy_instance_profile
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.structural_hash import structural_hash
from dovetail.aws import Aws, AwsAbsent, AwsError, pages
from dovetail.errors import DovetailError, Retry
from dovetail.ports import Clock
from dovetail.providers.aws.cached import Cached
from dovetail.providers.aws.tags import listed, profile_tags
from dovetail.settings import Settings

__all__ = ["Profiles", "RoleMissing"]

KEPT: Final = timedelta(minutes=15)
ROLE_MISSING_KEPT: Final = timedelta(minutes=1)
RECREATION_KEPT: Final = timedelta(minutes=1)
PROTECTED: Final = timedelta(hours=1)
LEGAL: Final = re.compile(r"[\w+=,.@-]{1,128}", re.ASCII)


class RoleMissing(Retry):
    """IAM does not know the role a class names."""


class Profiles:
    """Makes, reads and deletes instance profiles."""

    def __init__(self, aws: Aws, clock: Clock, settings: Settings, chance: Random) -> None:
        self._aws = aws
        self._cluster = settings.cluster_name
        self._chance = chance
        self._roles: Cached[str, str] = Cached(clock, KEPT)
        self._missing_roles: Cached[str, str] = Cached(clock, ROLE_MISSING_KEPT)
        self._made: Cached[tuple[str, str], str] = Cached(clock, RECREATION_KEPT)
        self._protected: Cached[str, bool] = Cached(clock, PROTECTED)

    async def resolve(self, node_class: EC2NodeClass) -> str:
        """The profile nodes of the class get: the one it names, or one that holds its role."""
        before = node_class.status.instance_profile or ""
        if node_class.spec.instance_profile:
            found = node_class.spec.instance_profile
        else:
            found = await self._for_role(node_class, node_class.spec.role or "")
        if before and before != found:
            self.protect(before)
        return found

    async def _for_role(self, node_class: EC2NodeClass, role: str) -> str:
        # A profile made a moment ago may not have reached the status, if the write of that was lost.
        made = (role, node_class.uid)
        current = self._made.get(made) or node_class.status.instance_profile or ""
        # Roles are compared without their paths, which profiles do not show.
        if current and await self._role_of(current) == _bare(role):
            return current
        name = self._fresh_name(node_class)
        await self._create(node_class, name, role)
        self._made.put(made, name)
        self.protect(name)
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

    async def _create(self, node_class: EC2NodeClass, name: str, role: str) -> None:
        missing = self._missing_roles.get(role)
        if missing is not None:
            raise RoleMissing(missing)
        asked = {
            "InstanceProfileName": name,
            "Path": self.path_of(node_class),
            "Tags": listed(profile_tags(node_class, self._cluster, self._aws.region)),
        }
        await self._aws.call("iam", "CreateInstanceProfile", asked)
        try:
            await self._attach(name, role)
        except DovetailError:
            await self._undo(name)
            raise
        self._roles.put(name, _bare(role))

    async def _attach(self, name: str, role: str) -> None:
        asked = {"InstanceProfileName": name, "RoleName": _bare(role)}
        try:
            await self._aws.call("iam", "AddRoleToInstanceProfile", asked)
        except AwsAbsent as error:
            # The code is the same for a missing profile and a missing role: only the text tells them apart.
            if "role" not in error.message.lower():
                raise
            why = f"IAM has no role {_bare(role)}; create it, or name another in spec.role"
            self._missing_roles.put(role, why)
            raise RoleMissing(why) from error

    async def _undo(self, name: str) -> None:
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
        for name in await self._under(self.path_of(node_class)):
            await self.delete(name)
        old = legacy_instance_profile(self._cluster, self._aws.region, node_class.name)
        if LEGAL.fullmatch(old):
            await self.delete(old)

    async def ours(self) -> tuple[str, ...]:
        """Every profile made for this cluster in this region."""
        return await self._under(f"/karpenter/{self._aws.region}/{self._cluster}/")

    async def _under(self, path: str) -> tuple[str, ...]:
        found: list[Mapping[str, Any]] = []
        async for page in pages(self._aws, "iam", "ListInstanceProfiles", {"PathPrefix": path}):
            found += page.get("InstanceProfiles") or ()
        return tuple(str(each["InstanceProfileName"]) for each in found)

    def protect(self, name: str) -> None:
        """Nodes may be starting with this profile: spare it for a while."""
        self._protected.put(name, True)

    def protected(self, name: str) -> bool:
        return name in self._protected

    def path_of(self, node_class: EC2NodeClass) -> str:
        return f"/karpenter/{self._aws.region}/{self._cluster}/{node_class.uid}/"

    def _fresh_name(self, node_class: EC2NodeClass) -> str:
        salt = UUID(int=self._chance.getrandbits(128), version=4)
        return f"{self._cluster}_{structural_hash(f'{self._aws.region}{node_class.name}{salt}')}"


def _bare(role: str) -> str:
    """A role's name without its path."""
    return role.rpartition("/")[2]
