"""`dovetail up` as a person runs it: a process, a kubeconfig, kubectl, and a signal at the end."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import stat
import sys
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from dovetail.app.embedded_cluster import EmbeddedOptions, run_embedded_cluster
from dovetail.settings import read_settings
from support.commands import dovetail, process
from support.https_apiserver import node_pool
from support.up_process import PATIENCE, READY, up


async def test_it_writes_a_private_kubeconfig_of_its_own_and_leaves_the_users_alone(tmp_path: Path) -> None:
    users = tmp_path / ".kube" / "config"
    users.parent.mkdir()
    users.write_text("mine: true\n")
    async with up(tmp_path, "--no-controller") as cluster:
        assert cluster.kubeconfig == tmp_path / ".cache" / "dovetail" / "kubeconfig"
        assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600
        assert "no controller is running" in cluster.said
        assert "namespace/default" in await cluster.kubectl("get", "namespaces", "-o", "name")
        # As people do; it rewrites the file, which is ours all the same the next time.
        await cluster.kubectl("config", "set-context", "--current", "--namespace=kube-system")
        await cluster.stop()
    cluster.kubeconfig.chmod(0o644)
    async with up(tmp_path, "--no-controller") as again:
        assert stat.S_IMODE(again.kubeconfig.stat().st_mode) == 0o600
        assert again.url in again.kubeconfig.read_text()
    assert users.read_text() == "mine: true\n"


@pytest.mark.parametrize(
    "content", ["mine: true\n", "clusters: [{name: dovetail}, {name: prod}]\n", "{", "\0"]
)
def test_a_kubeconfig_that_is_not_ours_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    users = tmp_path / "config"
    users.write_text(content)
    ended = process("up", "--no-controller", "--kubeconfig", str(users), env={"HOME": str(tmp_path)})
    assert ended.code == 2
    assert ended.err == (
        f"dovetail: writing the kubeconfig {users}: it holds something else; choose another --kubeconfig\n"
    )
    assert users.read_text() == content


def test_a_busy_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = process("up", "--no-controller", "--port", str(port), env={"HOME": str(tmp_path)})
    assert ended.code == 2
    assert ended.err.startswith(f"dovetail: listening on port {port}: ")
    assert ended.err.endswith("; choose another --port\n")
    assert ended.err.count("\n") == 1
    assert not (tmp_path / ".cache" / "dovetail" / "kubeconfig").exists()


async def test_it_listens_on_loopback_only_and_wants_its_token_over_tls(tmp_path: Path) -> None:
    async with up(tmp_path, "--no-controller") as cluster:
        port = int(cluster.url.rpartition(":")[2])
        assert _listening(port) == {"0100007F"}
        assert (await cluster.ask("/api/v1/nodes"))[0] == 200
        for wrong in ("", "wrong", cluster.credentials()[0][:-1]):
            code, answer = await cluster.ask("/api/v1/nodes", token=wrong)
            assert (code, answer["reason"]) == (401, "Unauthorized")
        async with aiohttp.ClientSession() as stranger:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await stranger.get(f"{cluster.url}/version")
            with pytest.raises(aiohttp.ClientError):
                await stranger.get(f"http://127.0.0.1:{port}/version")


def _listening(port: int) -> set[str]:
    """The addresses on which somebody listens at this port, as the kernel spells them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            address, _, number = local.partition(":")
            if state == "0A" and int(number, 16) == port:
                found.add(address)
    return found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_quickly_and_well_while_it_is_busy(
    tmp_path: Path, how: signal.Signals
) -> None:
    async with up(tmp_path, "--cloud", "kwok", "--data-dir", str(tmp_path / "data")) as cluster:
        assert "Dovetail is autoscaling it" in cluster.said
        await cluster.kubectl("create", "deployment", "web", "--image=web", "--replicas=20")
        watcher = asyncio.create_task(cluster.kubectl("get", "pods", "-w", "--request-timeout=30s"))
        await asyncio.sleep(1)
        code, seconds = await cluster.stop(how)
        assert code == 0
        assert seconds < 2 + _slack()
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        assert cluster.process.stderr is not None
        assert (await cluster.process.stderr.read()).decode() == "stopping…\n"


def _slack() -> float:
    """Seconds more on a machine that has less to give than its cores."""
    return 3.0 * max(0.0, os.getloadavg()[0] / (os.cpu_count() or 1) - 0.5)


async def test_dovetail_inside_gives_pods_their_nodes_from_the_pool_that_is_there(tmp_path: Path) -> None:
    async with up(tmp_path, "--cloud", "kwok") as cluster:
        await cluster.kubectl("create", "deployment", "web", "--image=web", "--replicas=3")
        await cluster.kubectl("rollout", "status", "deployment/web", f"--timeout={PATIENCE:.0f}s")
        assert (await cluster.kubectl("get", "nodeclaims", "-o", "name")).startswith(
            "nodeclaim.karpenter.sh/"
        )


async def test_nodes_asked_for_are_there_from_the_start_and_run_pods(tmp_path: Path) -> None:
    async with up(tmp_path, "--no-controller", "--nodes", "3") as cluster:
        listed = await cluster.kubectl("get", "nodes", "-o", "name")
        assert listed.split() == ["node/node-1", "node/node-2", "node/node-3"]
        await cluster.kubectl("create", "deployment", "web", "--image=web", "--replicas=3")
        await cluster.kubectl("rollout", "status", "deployment/web", f"--timeout={PATIENCE:.0f}s")
        accounts = await cluster.kubectl("get", "serviceaccounts", "-A", "-o", "name")
        assert accounts.split() == ["serviceaccount/default"] * 4
        trusted = await cluster.kubectl("get", "configmap", "kube-root-ca.crt", "-o", "yaml")
        assert "BEGIN CERTIFICATE" in trusted


async def test_the_same_seed_gives_the_same_names(tmp_path: Path) -> None:
    names = []
    for seed in ("7", "7", "8"):
        async with up(tmp_path, "--no-controller", "--seed", seed) as cluster:
            body = {"metadata": {"generateName": "a-"}}
            made = await cluster.ask("/api/v1/namespaces/default/configmaps", "POST", json=body)
            names.append(made[1]["metadata"]["name"])
    assert names[0] == names[1] != names[2]


async def test_objects_survive_a_restart_custom_kinds_too(tmp_path: Path) -> None:
    data = ("--no-controller", "--data-dir", str(tmp_path / "data"))
    async with up(tmp_path, *data, "--nodes", "1") as cluster:
        await cluster.ask("/apis/karpenter.sh/v1/nodepools", "POST", json=node_pool())
        body = {"metadata": {"name": "kept"}, "data": {"a": "b"}}
        _, made = await cluster.ask("/api/v1/namespaces/default/configmaps", "POST", json=body)
        assert (await cluster.stop())[0] == 0
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    async with up(tmp_path, *data) as cluster:
        _, kept = await cluster.ask("/api/v1/namespaces/default/configmaps/kept")
        assert kept == made
        _, pool = await cluster.ask("/apis/karpenter.sh/v1/nodepools/default")
        assert pool["spec"]["disruption"]["consolidateAfter"] == "0s"
        body["metadata"] = {"name": "new"}
        _, new = await cluster.ask("/api/v1/namespaces/default/configmaps", "POST", json=body)
        _, everything = await cluster.ask("/api/v1/configmaps")
        uids = [each["metadata"]["uid"] for each in everything["items"]] + [pool["metadata"]["uid"]]
        assert len(set(uids)) == len(uids), "a uid was given twice"
        assert int(new["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
        old = {"watch": "true", "resourceVersion": "2"}
        _, expired = await cluster.ask("/api/v1/namespaces/default/configmaps", params=old)
        assert expired["object"]["code"] == 410


async def test_two_clusters_do_not_share_a_folder(tmp_path: Path) -> None:
    data = ("--no-controller", "--data-dir", str(tmp_path / "data"))
    async with up(tmp_path, *data):
        ended = process("up", *data, env={"HOME": str(tmp_path)})
    assert ended.code == 2
    assert ended.err == (
        f"dovetail: keeping objects in {tmp_path / 'data'}: another cluster is using it; "
        "stop that one or choose another --data-dir\n"
    )


async def test_a_torn_file_is_reported_and_the_state_before_it_used(tmp_path: Path) -> None:
    data = ("--no-controller", "--data-dir", str(tmp_path / "data"))
    for name in ("first", "second"):
        async with up(tmp_path, *data) as cluster:
            body = {"metadata": {"name": name}}
            await cluster.ask("/api/v1/namespaces/default/configmaps", "POST", json=body)
            assert (await cluster.stop())[0] == 0
    state = tmp_path / "data" / "cluster.state"
    os.truncate(state, state.stat().st_size // 2)
    async with up(tmp_path, *data) as cluster:
        names = (await cluster.kubectl("get", "configmaps", "-o", "name")).split()
        assert names == ["configmap/first", "configmap/kube-root-ca.crt"]
        await cluster.stop()
        assert cluster.process.stderr is not None
        said = (await cluster.process.stderr.read()).decode()
    assert said == (
        f"dovetail: {state} is torn or was changed by hand; using the state before it\nstopping…\n"
    )


async def test_on_a_terminal_it_says_that_it_is_starting(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dovetail", "up", "--no-controller"),
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    assert running.stdout is not None
    await asyncio.wait_for(running.stdout.readuntil(READY), PATIENCE)
    seen = os.read(ours, 4096).decode()
    running.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(running.wait(), PATIENCE) == 0
    os.close(ours)
    # Shown, then wiped away.
    assert seen == "\r\x1b[Kstarting a cluster…\r\x1b[K"


async def test_two_clusters_at_once_have_a_name_and_a_kubeconfig_each(tmp_path: Path) -> None:
    bare = ("--no-controller", "--cloud", "kwok")
    async with up(tmp_path, *bare) as first, up(tmp_path, *bare, "--cluster-name", "shop") as second:
        assert second.kubeconfig == first.kubeconfig.with_name("kubeconfig-2")
        assert await first.kubectl("config", "current-context") == "dovetail\n"
        assert await second.kubectl("config", "current-context") == "shop\n"
        for cluster in (first, second):
            assert cluster.url in await cluster.kubectl("cluster-info")
        taken = process("up", *bare, "--kubeconfig", str(first.kubeconfig), env={"HOME": str(tmp_path)})
        assert (taken.code, taken.err) == (
            2,
            f"dovetail: writing the kubeconfig {first.kubeconfig}: another `dovetail up` is using it; "
            "choose another --kubeconfig\n",
        )
        await first.kubectl("get", "namespaces")
        await second.stop()
    # The second ended by itself and left its kubeconfig alone; the first was killed, and its place is free.
    assert [each.name for each in first.kubeconfig.parent.glob("*config-2*")] == ["kubeconfig-2"]
    async with up(tmp_path, *bare, "--cluster-name", "third") as third:
        assert third.kubeconfig == first.kubeconfig


async def test_settings_are_taken_as_flags_and_claims_get_volumes_by_default(tmp_path: Path) -> None:
    flags = ("--batch-idle-duration", "2s", "--feature-gates=NodeRepair=true")
    async with up(tmp_path, "--cloud", "kwok", "--no-controller", *flags) as cluster:
        told = await cluster.kubectl("get", "configmap", "dovetail-up", "-n", "kube-system", "-o", "yaml")
        assert "BATCH_IDLE_DURATION: 2s" in told
        assert "NodeRepair=true" in told
        storage = await cluster.kubectl("get", "storageclasses")
        assert re.search(r"^gp3 \(default\) +ebs\.csi\.aws\.com +Delete +WaitForFirstConsumer", storage, re.M)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--batch-idle-duration=soon",), '--batch-idle-duration is "soon"'),
        (("--dasboard=1",), "there is no option --dasboard; did you mean --dashboard?"),
        (("--kubeconfg", "x"), "there is no option --kubeconfg; did you mean --kubeconfig?"),
        (("--cluster-name", "a b"), "--cluster-name is 'a b', but must be"),
        (("--nonsense",), "there is no flag --nonsense"),
    ],
)
def test_a_wrong_option_is_one_sentence(flags: tuple[str, ...], told: str) -> None:
    ended = dovetail("up", *flags)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert told in ended.err


async def test_what_dovetail_does_is_told_in_a_file_and_on_the_terminal_only_if_asked(tmp_path: Path) -> None:
    left = tmp_path / ".cache" / "dovetail" / "up-4000000000.log"
    left.parent.mkdir(parents=True)
    left.write_text("of a process that is no more")
    async with up(tmp_path, "--cloud", "kwok", "-v") as cluster:
        named = re.search(r"What Dovetail does is told in (\S+);", cluster.said)
        assert named is not None
        log = Path(named[1])
        assert log.parent == left.parent
        assert not left.exists()
        await cluster.kubectl("create", "deployment", "web", "--image=web", "--replicas=3")
        await cluster.kubectl("rollout", "status", "deployment/web", f"--timeout={PATIENCE:.0f}s")
        assert (await cluster.stop())[0] == 0
        written = await asyncio.to_thread(log.read_text)
        lines = [json.loads(line) for line in written.splitlines()]
        told = [line["message"] for line in lines]
        assert [each for each in STORY if each in told] == list(STORY)
        assert not [line for line in lines if line["level"] == "ERROR"]
        assert cluster.process.stderr is not None
        shown = (await cluster.process.stderr.read()).decode()
        assert shown.replace("stopping…\n", "") == written


STORY = (
    *("found provisionable pod(s)", "computed new nodeclaim(s) to fit pod(s)", "created nodeclaim"),
    *("launched nodeclaim", "registered nodeclaim", "initialized nodeclaim"),
)


async def test_the_policy_of_zonal_shift_that_is_there_counts_from_the_start(tmp_path: Path) -> None:
    """Also fields that are read only then, as in the controller of a real cluster."""
    flags = ("--enable-zonal-shift=true", "--zonal-shift-config-map=default/policy")
    before = EmbeddedOptions(
        read_settings(flags, {}, provider="kwok"),
        data_dir=tmp_path / "data",
        kubeconfig=tmp_path / "kubeconfig",
        controller=False,
    )
    async with run_embedded_cluster(before) as cluster:
        policy = {"metadata": {"name": "policy", "namespace": "default"}, "data": {"rehearsal": "@weekly"}}
        cluster.world.api.create("configmaps", policy)
    async with run_embedded_cluster(replace(before, controller=True)) as cluster:
        assert cluster.dovetail is not None
        assert cluster.dovetail.settings.zonal_policy.rehearsal == "@weekly"
