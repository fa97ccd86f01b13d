"""Manifests of examples/cluster are valid for their readers: Kubernetes, Ray's launcher, EC2 and the shell.

KubeRay ships no schema as a package, so the fields we use are written down in tests/data; Ray ships the schema of its
launcher, and botocore that of EC2.
"""

import copy
import importlib.util
import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import botocore.session
import jsonschema
import pytest
import typer
import yaml
from botocore.validate import ParamValidator

from dorylus.cli.app import app
from dorylus.cli.flags import settings_of
from dorylus.config import RunConfig
from dorylus.cost.price_book import PriceBook

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "cluster"
PAGE = ROOT / "docs" / "cluster.md"
KUBERNETES = ("kuberay.yaml", "kuberay-job.yaml")


def documents(name):
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def kinds():
    return {each["kind"]: each for name in KUBERNETES for each in documents(name)}


def aws():
    (config,) = documents("aws.yaml")
    return config


def blocks(page=PAGE):
    """The code blocks of the page."""
    return re.findall(r"```\w*\n(.*?)```", page.read_text(), re.DOTALL)


def kuberay_faults(document):
    schema = json.loads((ROOT / "tests" / "data" / "kuberay-1.6-reduced.schema.json").read_text())
    return list(jsonschema.Draft202012Validator(schema).iter_errors(document))


def launcher_faults(config):
    spec = importlib.util.find_spec("ray")
    assert spec is not None
    schema = json.loads(Path(spec.submodule_search_locations[0], "autoscaler", "ray-schema.json").read_text())
    return list(jsonschema.Draft7Validator(schema).iter_errors(config))


def ec2_faults(node_config):
    input_shape = botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances").input_shape
    return ParamValidator().validate({"MinCount": 1, "MaxCount": 1, **node_config}, input_shape).generate_report()


def every_field(value, path=()):
    """The path to every field below a value, except below maps that accept any key."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in pairs:
        if isinstance(value, dict):
            yield (*path, key)
        if key not in ("rayStartParams", "matchLabels", "clusterSelector", "requests", "limits"):
            yield from every_field(below, (*path, key))


def misspelled(document, path):
    wrong = copy.deepcopy(document)
    at = wrong
    for key in path[:-1]:
        at = at[key]
    at[path[-1] + "s"] = at.pop(path[-1])
    return wrong


# Kubernetes


@pytest.mark.parametrize("name", KUBERNETES)
def test_kubernetes_manifests_have_only_fields_that_exist(name):
    for document in documents(name):
        assert kuberay_faults(document) == []


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "RayCluster", "RayJob"])
def test_any_misspelled_field_of_a_kubernetes_manifest_is_noticed(kind):
    document = kinds()[kind]
    fields = list(every_field(document))
    assert len(fields) > 5
    for path in fields:
        assert kuberay_faults(misspelled(document, path)), path


def test_a_number_where_kubernetes_requires_text_is_noticed():
    cluster = copy.deepcopy(kinds()["RayCluster"])
    cluster["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 1
    assert kuberay_faults(cluster)


def test_the_kubernetes_cluster_requires_a_token():
    assert kinds()["RayCluster"]["spec"]["authOptions"] == {"mode": "token"}


def groups():
    spec = kinds()["RayCluster"]["spec"]
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def test_every_pod_has_the_same_image_and_mounts_the_claim_at_the_same_place():
    claim = kinds()["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    images = set()
    for group in groups():
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        (volume,) = pod["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/data"}]
        images.add(container["image"])
    assert len(images) == 1


def test_graph_servers_are_kept_apart_by_labels_that_their_pods_have():
    cluster = kinds()["RayCluster"]
    (workers,) = cluster["spec"]["workerGroupSpecs"]
    affinity = workers["template"]["spec"]["affinity"]["podAntiAffinity"]
    (rule,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    named = {"ray.io/cluster": cluster["metadata"]["name"], "ray.io/group": workers["groupName"]}
    assert rule["labelSelector"]["matchLabels"] == named


def test_the_job_runs_on_that_cluster_and_fits_into_it():
    cluster, job = kinds()["RayCluster"], kinds()["RayJob"]
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}
    words = shlex.split(job["spec"]["entrypoint"])
    (workers,) = cluster["spec"]["workerGroupSpecs"]
    cores = workers["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"]
    assert words[words.index("--threads") + 1] == cores
    assert int(words[words.index("--servers") + 1]) <= workers["replicas"]
    head = cluster["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"]
    assert int(head) < int(cores), "a graph server would fit on the head"


# AWS


def test_the_launcher_takes_the_aws_cluster():
    assert launcher_faults(aws()) == []


@pytest.mark.parametrize("path", [("setup_commands",), ("available_node_types", "graph-server", "min_workers")])
def test_a_misspelled_field_of_the_aws_cluster_is_noticed(path):
    assert launcher_faults(misspelled(aws(), path))


def test_ec2_takes_every_node():
    for node in aws()["available_node_types"].values():
        assert ec2_faults(node["node_config"]) == ""


@pytest.mark.parametrize("path", [("InstanceMarketOptions",), ("InstanceMarketOptions", "MarketType"), ("ImageId",)])
def test_a_misspelled_field_of_a_node_is_noticed(path):
    node = aws()["available_node_types"]["graph-server"]["node_config"]
    assert "Unknown parameter" in ec2_faults(misspelled(node, path))


def test_graph_servers_are_on_spot_instances_and_the_head_is_not():
    config = aws()
    spot = {
        name: node["node_config"].get("InstanceMarketOptions") == {"MarketType": "spot"}
        for name, node in config["available_node_types"].items()
    }
    assert config["head_node_type"] in spot
    assert [name for name, is_spot in spot.items() if not is_spot] == [config["head_node_type"]]


def test_the_launcher_may_start_as_many_nodes_as_are_requested():
    config = aws()
    workers = [node for name, node in config["available_node_types"].items() if name != config["head_node_type"]]
    assert sum(node["min_workers"] for node in workers) <= config["max_workers"]
    assert all(node["min_workers"] <= node["max_workers"] for node in workers)


def test_every_instance_is_in_the_price_book_and_has_the_stated_cores():
    config, book = aws(), PriceBook.load()
    for name, node in config["available_node_types"].items():
        instance = book.instance(node["node_config"]["InstanceType"])
        num_cores = node["resources"]["CPU"]
        assert num_cores == instance.vcpus if name != config["head_node_type"] else num_cores <= instance.vcpus
        assert instance.arch == "x86_64", "the image is for x86"
    cores = {name: node["resources"]["CPU"] for name, node in config["available_node_types"].items()}
    assert cores[config["head_node_type"]] < min(
        its for name, its in cores.items() if name != config["head_node_type"]
    ), "a graph server would fit on the head"


# All of them


@pytest.mark.parametrize("name", ["two-laptops.sh"])
def test_a_script_is_one_that_the_shell_can_read(name):
    done = subprocess.run(["sh", "-n", EXAMPLES / name], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_script_called_without_a_task_prints_its_usage():
    done = subprocess.run(["sh", EXAMPLES / "two-laptops.sh"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert all(task in done.stdout for task in ("head", "join", "train"))


def starts_of_ray():
    """Every text that starts Ray: the block of the page, the command of the launcher or the script it is in."""
    commands = [*aws()["head_start_ray_commands"], *aws()["worker_start_ray_commands"]]
    texts = [*blocks(), *blocks(ROOT / "README.md"), *commands, (EXAMPLES / "two-laptops.sh").read_text()]
    return [text for text in texts if re.search(r"ray start\b", text)]


def test_ray_is_never_started_without_a_token():
    starts = starts_of_ray()
    assert len(starts) >= 6
    assert [text for text in starts if "RAY_AUTH_MODE=token" not in text] == []


def test_the_aws_token_comes_from_a_file_that_only_its_owner_reads():
    assert aws()["file_mounts"] == {"/home/ubuntu/.ray/auth_token": "~/.ray/auth_token"}
    assert "chmod 600 ~/.ray/auth_token" in aws()["setup_commands"]


def documented_commands():
    """Every documented dorylus command: by itself, in a pod or on a head, or in the job."""
    commands = re.findall(r"(?m)(?:^|-- |')(dorylus [^'\n]*)", "\n".join(blocks()))
    return [*commands, kinds()["RayJob"]["spec"]["entrypoint"]]


def parsed(command):
    """The command's name and the parsed values of its flags and arguments; an unknown flag is an error."""
    _, name, *words = shlex.split(command)
    return name, typer.main.get_command(app).commands[name].make_context(name, words).params


def test_documented_commands_can_be_parsed():
    commands = documented_commands()
    assert len(commands) >= 10
    names = [parsed(command)[0] for command in commands]
    assert {"train", "resume", "doctor", "convert"} <= set(names)


def test_documented_runs_have_valid_settings():
    runs = [given for name, given in map(parsed, documented_commands()) if name == "train"]
    for given in runs:
        config = RunConfig.of(**settings_of({name: given[name] for name in RunConfig.names() if given[name]}))
        assert config.cluster == "ray"
        assert config.threads, "cores of the driver's machine say nothing about the nodes"


def test_a_flag_that_does_not_exist_is_noticed():
    with pytest.raises(Exception, match="No such option"):
        parsed("dorylus train cora --serverz 2")


def test_every_setting_of_the_page_exists():
    table = PAGE.read_text().split("## Settings")[1].split("## ")[0]
    named = [name for row in re.findall(r"(?m)^\| (`[^|]*) \|", table) for name in re.findall(r"`(\w+)`", row)]
    assert {"cluster", "address", "servers"} <= set(named) <= set(RunConfig.names())


def test_links_of_the_page_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)(?:#([\w-]+))?\)", PAGE.read_text())
    assert len(links) >= 10
    for target, heading in links:
        path = PAGE.parent / target
        assert path.exists(), target
        if heading:
            slugs = [
                re.sub(r"[^\w -]", "", line.lstrip("# ").lower())
                for line in path.read_text().splitlines()
                if line[:1] == "#"
            ]
            assert heading in [slug.replace(" ", "-") for slug in slugs], f"{target}#{heading}"


def test_the_page_contains_the_dockerfile():
    assert (EXAMPLES / "Dockerfile").read_text() in PAGE.read_text()


def test_versions_are_those_that_are_tested():
    locks = "".join((ROOT / f"requirements{part}.lock").read_text() for part in ("", "-torch"))
    lock = dict(re.findall(r"(?m)^([a-z0-9-]+)==([^ ;]+)", locks))
    lock["dorylus"] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    named = set()
    for path in (*sorted(EXAMPLES.iterdir()), PAGE):
        for package, version in re.findall(r"([a-z0-9]+)(?:\[\w+\])?==([0-9][0-9.]*)", path.read_text()):
            assert version == lock[package], f"{path.name} has {package} {version}"
            named.add(package)
    assert {"ray", "torch", "dorylus", "boto3"} <= named
    assert kinds()["RayCluster"]["spec"]["rayVersion"] == lock["ray"]
    for group in groups():
        assert group["template"]["spec"]["containers"][0]["image"].endswith(f"/dorylus:{lock['dorylus']}")
