"""The closed form knows the fabric: boundaries of a pipeline, rails, cards without peer-to-peer."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.fabric import tree_of
from shardwise.fabric.calls import calls_of
from shardwise.fabric.place import seats_of
from shardwise.fabric.price import Prices
from shardwise.fabric.step import step_load
from shardwise.question.studies.build import report_of
from shardwise.question.studies.fabric.build import fabric_report
from shardwise.question.studies.traffic import traffic_of
from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.hardware import gpu_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

STACK = stack_of("megatron-core")
MODEL, JOB = model_of("qwen2.5-72b"), Job(seq=8192, global_batch=32)
SPLIT = Policy(tp=2, pp=4, cp=2)


def two_nodes(gbps: float) -> Cluster:
    """Eight A100 share a port of so many Gbit/s."""
    levels = (
        Level(name="node", kind="nvlink", degree=8, bandwidth=300e9, latency_s=0.6e-6),
        Level(name="leaf", kind="network", degree=2, bandwidth=gbps / 8 * 1e9 / 8, latency_s=2e-6),
    )
    return Cluster(name="two nodes", gpu=gpu_of("a100-80"), gpus=16, levels=levels)


def found(cluster, policy=SPLIT, model=MODEL, job=JOB):
    return estimate(case_of(model, cluster, job, STACK), Policies.of([policy]), every_stage=True)


class TestPipelineOverTwoNodes:
    """Stages 0 and 1 on one node, 2 and 3 on the other: one boundary of three leaves a node."""

    def test_a_thin_network_is_felt(self):
        steps = [float(found(two_nodes(gbps)).times.step_s[0]) for gbps in (1, 10, 100)]
        assert steps[0] > 1.5 * steps[1]
        assert steps[1] > steps[2]

    @pytest.mark.parametrize(("gbps", "within"), [(1.0, 0.16), (10.0, 0.05)])
    def test_as_the_links_have_it(self, gbps, within):
        """Where a message takes longer than a stage computes, the closed form's boundaries that are all alike are
        quicker than one slow one between two fast ones."""
        report = fabric_report(case_of(MODEL, two_nodes(gbps), JOB, STACK), SPLIT).report
        assert report.closed_form_step_s == pytest.approx(report.step_s, rel=within)

    def test_a_third_of_what_stages_send_leaves_the_node(self):
        sent = traffic_of(case_of(MODEL, two_nodes(10), JOB, STACK), found(two_nodes(10)).work)["pp"]
        assert sent["leaf"] == pytest.approx(sent["node"] / 2)
        assert sent["leaf"] > 0


def thin_rails(way: str) -> Cluster:
    cluster = cluster_of("dgx-h100:128")
    node, leaf = cluster.levels[:2]
    spine = Level(name="spine", kind="network", degree=4, bandwidth=50e9, latency_s=2e-6, oversubscription=4.0)
    return replace(cluster, levels=(node, replace(leaf, degree=4, cross_rail=way), spine))


class TestRailsUnderAThinSpine:
    MODEL, JOB, POLICY = model_of("qwen3-30b-a3b"), Job(seq=4096, global_batch=512), Policy(dp=128, ep=32)

    def step(self, way):
        return float(found(thin_rails(way), self.POLICY, self.MODEL, self.JOB).times.step_s[0])

    def test_experts_over_nvlink_first_and_over_the_spine(self):
        assert self.step("spine") > 1.5 * self.step("nvlink")

    @pytest.mark.parametrize("way", ["nvlink", "spine"])
    def test_as_the_links_have_it(self, way):
        report = fabric_report(case_of(self.MODEL, thin_rails(way), self.JOB, STACK), self.POLICY).report
        assert report.closed_form_step_s == pytest.approx(report.step_s, rel=0.1)
        assert any(line.startswith("rails:") and ("PXN" in line) == (way == "nvlink") for line in report.assumptions)

    def test_an_estimate_says_which_way(self):
        report = report_of(case_of(self.MODEL, thin_rails("nvlink"), self.JOB, STACK), self.POLICY)
        assert any("PXN, as NCCL does" in line for line in report.assumptions)


def test_a_hop_that_leaves_the_node_is_no_nvlink_byte():
    """llama-3-8b, dp 64: seven eighths of what a ring sends stays inside, in `estimate` and on the links."""
    model, cluster, policy = model_of("llama-3-8b"), cluster_of("dgx-h100:64"), Policy(dp=64)
    case = case_of(model, cluster, Job(seq=8192, global_batch=256), STACK)
    work = estimate(case, Policies.of([policy]), every_stage=True).work
    told = traffic_of(case, work)["dp"]
    tree = tree_of(cluster)
    links = step_load(Prices(tree, case.network, seats_of(policy, tree)), calls_of(work)).level_bytes()["dp"]
    assert told == pytest.approx(links)
    assert told["node"] == pytest.approx(7 * told["leaf"])


class TestNoPeerToPeer:
    JOB = Job(seq=2048, global_batch=64)

    def test_tensor_parallelism_goes_through_the_host(self):
        card, model = cluster_of("4xrtx4090"), model_of("llama-3-8b")
        peers = replace(card, gpu=replace(card.gpu, peer_to_peer=True))
        policy = Policy(tp=4, overlap_tp=True)
        sent = [found(cluster, policy, model, self.JOB).times for cluster in (card, peers)]
        assert float(sent[0].parts["tp_comm"][0]) > 2 * float(sent[1].parts["tp_comm"][0])
        assert float(np.max(sent[0].hidden["tp"])) < float(np.max(sent[1].hidden["tp"]))
        assert tree_of(card).links.capacity[0] == 12.5e9

    def test_the_estimate_says_so(self):
        for name, says in (("4xrtx4090", True), ("4xh100", False)):
            report = report_of(case_of(model_of("llama-3-8b"), cluster_of(name), self.JOB, STACK), Policy(tp=4))
            assert any("no peer-to-peer" in line for line in report.assumptions) == says
