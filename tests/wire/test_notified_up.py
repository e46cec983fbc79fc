"""`dovetail up` tells a receiver on loopback of its decisions, logs them, and shows nobody its secrets."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.runtime.recording_folder import read_recording
from support.commands import process
from support.up_process import Up, up
from support.webhooks import SECRET, Receiver, answer, receive

TOKEN = "xoxb-token-777"
SINKS = """apiVersion: dovetail.sh/v1alpha1
kind: Notify
sinks:
- name: hook
  to: {url}
  headers: {{Authorization: {{file: {token}}}}}
  when: [{{kinds: [NodeOrdered, NodeReady, NodeGone]}}]
"""
METRICS = "/api/v1/namespaces/kube-system/services/dovetail:http-metrics/proxy/metrics"


async def run(cluster: Up, *arguments: str) -> str:
    ended = await asyncio.to_thread(process, *arguments, env={"KUBECONFIG": str(cluster.kubeconfig)})
    assert ended.code == 0, ended.err
    assert not any(secret in ended.err for secret in (SECRET, TOKEN))
    return ended.out


def read_kinds(receiver: Receiver) -> list[str]:
    return [post.json()["data"]["kind"] for post in receiver.posts]


def read_hour(path: Path) -> str:
    """One hour of a decision log; hours that have passed are compressed."""
    written = path.read_bytes()
    return (gzip.decompress(written) if path.suffix == ".gz" else written).decode()


async def buy_and_sell(cluster: Up, receiver: Receiver) -> None:
    """A node is bought for a pod and goes when it does; the receiver fails for the first message."""
    receiver.manners = answer(500)
    await cluster.kubectl("wait", "--for=condition=Ready", "nodepool/default", "--timeout=60s")
    await cluster.kubectl("create", "deployment", "web", "--image=web")
    await receiver.wait_for(2, 120)
    receiver.manners = None
    await cluster.kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=120s")
    await cluster.kubectl("delete", "deployment", "web")
    async with asyncio.timeout(240):
        while "NodeGone" not in read_kinds(receiver):
            await receiver.wait_for(len(receiver.posts) + 1, 240)


@pytest.mark.spec("NO-9")
async def test_a_receiver_hears_of_a_node_and_no_secret_is_shown(tmp_path: Path) -> None:
    token, file, log = tmp_path / "token", tmp_path / "notify.yaml", tmp_path / "controller.log"
    decisions, recording = tmp_path / "decisions", tmp_path / "recording"
    token.write_text(f"Bearer {TOKEN}\n")
    settings: dict[str, Any] = {
        "--notify-file": file,
        "--decision-log": f"log,file:{decisions}",
        "--recording": f"file:{recording}",
        "--log-level": "debug",
        "--log-file": log,
    }
    flags = [str(part) for pair in settings.items() for part in pair]
    async with receive() as receiver:
        file.write_text(SINKS.format(url=receiver.url, token=token))
        async with up(tmp_path, "--cloud", "kwok", *flags) as cluster:
            await buy_and_sell(cluster, receiver)
            history = await run(cluster, "history", "--all", "-o", "jsonl")
            snapshot = await run(cluster, "snapshot", "-o", "-")
            metrics = await cluster.kubectl("get", "--raw", METRICS)
            lease = await cluster.kubectl("get", "leases", "-A", "-o", "yaml")
            code, _ = await cluster.stop()
            assert code == 0
    taken = {post.json()["id"]: post for post in receiver.posts}
    assert list(dict.fromkeys(read_kinds(receiver))) == ["NodeOrdered", "NodeReady", "NodeGone"]
    assert len(receiver.posts) > len(taken) == 3, "what was refused at first was sent again"
    for post in taken.values():
        assert post.headers["Authorization"] == f"Bearer {TOKEN}"
        assert post.headers["Content-Type"] == "application/cloudevents+json"
        assert post.json()["specversion"] == "1.0"
    told = {each["id"]: each.get("told") for each in map(json.loads, history.splitlines())}
    assert {told[each] == ["hook"] for each in taken} == {True}, "the history says who was told"
    assert 'dovetail_notifications_total{result="sent",sink="hook"} 3.0' in metrics
    checked = await run(cluster, "history", "--check", str(decisions))
    assert "nothing else is missing or changed" in checked
    looks = repr(list(read_recording(str(recording)).looks()))
    logged = "".join(map(read_hour, decisions.iterdir())) + log.read_text()
    for shown in (history, snapshot, metrics, lease, checked, looks, logged):
        assert shown
        for secret in (SECRET, TOKEN, str(receiver.url.partition("/services")[0])):
            assert secret not in shown
