"""Networks speak USB's language, and ImageNet weights are real or an error."""

from __future__ import annotations

from pathlib import Path
from urllib.error import URLError

import pytest
import torch

from semilearn_ext.errors import UserError
from semilearn_ext.nets.build import net_builder
from semilearn_ext.settings import settings_from
from tests.conftest import SHARED

WEIGHTS = SHARED / "weights" / "resnet18_imagenet_recalibrated.pth"


@pytest.mark.parametrize(("name", "features"), [("cnn", 256), ("resnet18", 512), ("wrn_28_2", 128)])
def test_usbs_contract(name: str, features: int) -> None:
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


def test_weights_are_found_in_torch_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from torchvision import models

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    state = models.resnet18().state_dict()
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(state, tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth")
    net = net_builder(settings_from(net="resnet18", pretrained=True))(num_classes=7)
    assert torch.equal(net.backbone.conv1.weight, state["conv1.weight"])


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
        ({"a": torch.ones(1)}, "does not fit ResNet-18"),
    ],
)
def test_a_wrong_file_is_a_clear_error(tmp_path: Path, content: object, expected: str) -> None:
    path = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(UserError, match=expected):
        net_builder(settings_from(net="resnet18", pretrained=True, pretrain_path=str(path)))(num_classes=7)
