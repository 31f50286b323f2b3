"""Networks have USB's interface, and missing ImageNet weights are an error."""

from __future__ import annotations

import math
import os
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torchvision import models

from semilearn_ext.data.digits_generator import FONTS
from semilearn_ext.data.digits_looks import draw_print, to_bytes
from semilearn_ext.errors import UserError
from semilearn_ext.nets import resnet_mini
from semilearn_ext.nets.build import net_builder
from semilearn_ext.nets.resnet_mini_pretrain import LOOK
from semilearn_ext.settings import settings_from
from tests.conftest import SHARED

WEIGHTS = SHARED / "weights" / "resnet18_imagenet_recalibrated.pth"


@pytest.mark.parametrize(
    ("name", "features"), [("cnn", 256), ("resnet18", 512), ("resnet_mini", 128), ("wrn_28_2", 128)]
)
def test_networks_have_usbs_interface(name: str, features: int) -> None:
    net = net_builder(settings_from(net=name, img_size=32))(num_classes=7).eval()
    x = torch.randn(2, 3, 32, 32)
    out = net(x)
    assert out["logits"].shape == (2, 7)
    assert out["feat"].shape == (2, features) == (2, net.num_features)
    assert torch.equal(net(x, only_feat=True), out["feat"])
    torch.testing.assert_close(net(out["feat"], only_fc=True), out["logits"])


def test_no_weights_and_no_download_is_an_error_not_random_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_network(*arguments: object, **keywords: object) -> None:
        raise URLError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.download_url_to_file", no_network)
    with pytest.raises(
        UserError, match=r"no ImageNet weights: .*resnet18-f37072fd.pth does not exist.*--pretrain_path"
    ):
        net_builder(settings_from(net="resnet18", pretrained=True))


@pytest.fixture
def torch_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The place of torchvision's weights in TORCH_HOME."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    return tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"


def test_weights_are_found_in_torch_home(monkeypatch: pytest.MonkeyPatch, torch_home: Path) -> None:
    state = models.resnet18().state_dict()
    torch.save(state, torch_home)
    monkeypatch.setattr("semilearn_ext.nets.resnet.file_hash", lambda path, name: "f37072fd0000")
    net = net_builder(settings_from(net="resnet18", pretrained=True))(num_classes=7)
    assert torch.equal(net.backbone.conv1.weight, state["conv1.weight"])


@pytest.mark.parametrize("kind", ["other weights", "empty", "folder", "pipe"])
def test_another_file_with_the_name_of_torchvisions_weights_is_refused(torch_home: Path, kind: str) -> None:
    if kind == "other weights":
        torch.save(models.resnet18().state_dict(), torch_home)
    elif kind == "empty":
        torch_home.touch()
    else:
        torch_home.mkdir() if kind == "folder" else os.mkfifo(torch_home)
    with pytest.raises(UserError, match=r"pretrained: .*f37072fd.pth: (not torchvision's file|cannot be read)"):
        net_builder(settings_from(net="resnet18", pretrained=True))


@pytest.mark.skipif(not WEIGHTS.exists(), reason=f"needs {WEIGHTS.name} in the shared folder beside the checkout")
def test_recalibrated_weights_load_as_float32() -> None:
    net = net_builder(settings_from(net="resnet18", pretrained=True, pretrain_path=str(WEIGHTS)))(num_classes=7)
    raw = torch.load(WEIGHTS, weights_only=True)
    assert net.backbone.layer4[1].conv2.weight.dtype is torch.float32
    assert torch.equal(net.backbone.layer1[0].conv1.weight, raw["layer1.0.conv1.weight"].float())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"not weights", "not a file of PyTorch weights"),
        ([1, 2], "expected names and tensors"),
        ({"a": torch.ones(1)}, "does not fit the network"),
        (b"", "not a file of PyTorch weights .EOFError"),
        ({"a": torch.tensor([1.0, math.nan])}, "'a' contains values that are not finite"),
        ({"a": torch.ones(2, dtype=torch.int64)}, "'a' has the type int64, expected floating-point numbers"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "'a' has the type complex64"),
        ({"a": torch.ones(2).to_sparse()}, "'a' is not a plain tensor"),
        ({"a": torch.zeros(1).expand(10**12)}, "'a' is not a plain tensor"),
        ({"bn.running_var": -torch.ones(1)}, "'bn.running_var' is negative"),
    ],
)
def test_an_invalid_file_is_a_clear_error(tmp_path: Path, content: object, expected: str) -> None:
    path = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(UserError, match=expected):
        net_builder(settings_from(net="resnet18", pretrained=True, pretrain_path=str(path)))(num_classes=7)


def test_weights_of_usbs_networks_are_loaded_or_refused(tmp_path: Path) -> None:
    """USB ignores missing weights and would train from random ones."""
    path = tmp_path / "weights.pth"
    settings = settings_from(net="wrn_28_2", pretrained=True, pretrain_path=str(path))
    trained = net_builder(settings_from(net="wrn_28_2"))(num_classes=3)
    state = {f"module.{name}": value for name, value in trained.state_dict().items()}
    torch.save({"model": state}, path)
    net = net_builder(settings)(num_classes=7)
    assert torch.equal(net.conv1.weight, trained.conv1.weight)
    assert net.classifier.weight.shape[0] == 7
    torch.save({"model": {name: value for name, value in state.items() if "block1" not in name}}, path)
    with pytest.raises(UserError, match=r"the file does not fit the network: .*Missing key"):
        net_builder(settings)(num_classes=7)


def test_pretrained_weights_exist_and_are_used() -> None:
    with pytest.raises(UserError, match="pretrained: there are no pretrained weights for resnet50; pass a file with"):
        settings_from(net="resnet50", pretrained=True)
    with pytest.raises(UserError, match="pretrain_path: is not used with pretrained: false; set --pretrained true"):
        settings_from(net="resnet18", pretrain_path="weights.pth")


def test_embedded_weights_distinguish_characters() -> None:
    """Nearest class means of features, on images of ten characters that the network was not trained on."""
    characters = "AKRWehq&?+"
    rows = [
        to_bytes(draw_print(np.random.default_rng([77, label, number]), FONTS[number], character, LOOK))
        for label, character in enumerate(characters)
        for number in range(12)
    ]
    images = torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).float().div(127.5).sub(1)
    net = net_builder(settings_from(net="resnet_mini", pretrained=True))(num_classes=10).eval()
    with torch.no_grad():
        features = torch.nn.functional.normalize(net(images)["feat"]).view(len(characters), 12, -1)
    nearest = (features[:, 6:].flatten(0, 1) @ features[:, :6].mean(1).T).argmax(1)
    assert (nearest == torch.arange(len(characters)).repeat_interleave(6)).float().mean() > 0.8


def test_damaged_embedded_weights_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    damaged = bytearray(resnet_mini.EMBEDDED.read_bytes())
    damaged[5000] ^= 1
    monkeypatch.setattr(resnet_mini, "EMBEDDED", tmp_path / "resnet_mini.pt")
    (tmp_path / "resnet_mini.pt").write_bytes(damaged)
    with pytest.raises(UserError, match="is damaged; install the package again"):
        net_builder(settings_from(net="resnet_mini", pretrained=True))
